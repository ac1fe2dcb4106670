#include "doctor/pooled_diagnosis.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/progress.h"
#include "doctor/pooled.h"
#include "doctor/recorded_rows.h"
#include "doctor/words.h"

namespace lockstep::doctor {
namespace {

using parity::CheckpointResult;

// Seconds that it may take where nobody asked for it, or this share of what the comparison took.
constexpr double kUnasked = 1;
constexpr double kShareUnasked = 0.0625;
constexpr size_t kMostRowsUnasked = 64;

// Whether ops without matrices, which are the ones that are looked at unasked, compute or hand on
// in a coarse type. Types of factors of products and of the cache are not theirs.
bool is_coarse(const trace::Precision& precision) {
  constexpr std::array<std::string_view, 2> kHalves = {"f16", "bf16"};
  return std::ranges::any_of(
      std::array{&precision.compute, &precision.activations},
      [&](const auto* field) { return *field && std::ranges::count(kHalves, **field) > 0; });
}

class HiddenDoctor {
 public:
  explicit HiddenDoctor(const HiddenPatient& patient)
      : patient_(patient),
        program_(patient.side.forwards.front().program),
        deadline_(Examination::after(
            patient.asked
                ? patient.seconds
                : std::min(patient.seconds,
                           std::max(kUnasked, kShareUnasked * patient.comparison.seconds)))) {}

  std::vector<Diagnosis> run() {
    if (!patient_.asked && !is_coarse(patient_.side.precision)) return {};
    // The same checkpoint of all layers, in order of execution.
    std::vector<std::pair<std::string, std::vector<const CheckpointResult*>>> groups;
    for (const CheckpointResult& result : patient_.comparison.checkpoints) {
      const auto id = patient_.scope.ids.find(result.name);
      if (id == patient_.scope.ids.end() || (result.*patient_.judgement).judged == 0) continue;
      if (!patient_.asked && !costs_little(id->second)) continue;
      const std::string name = short_name(program_.value(id->second));
      auto group = std::ranges::find(groups, name, [](const auto& each) { return each.first; });
      if (group == groups.end()) group = groups.insert(groups.end(), {name, {}});
      group->second.push_back(&result);
    }
    Progress progress("pooling", std::ssize(groups), "kinds of checkpoints");
    for (const auto& [name, group] : groups) {
      pool(group);
      progress.advance(1, 0);
      patient_.side.trace->release_pages();
      patient_.model.file().release_pages();
    }
    for (Diagnosis& each : found_) each.text = sentence(each);
    return std::move(found_);
  }

 private:
  bool late() const {
    return Examination::Clock::now() > deadline_ ||
           (patient_.interrupted != nullptr && *patient_.interrupted);
  }

  bool costs_little(op::ValueId id) const {
    for (const op::Op& op : program_.ops)
      if (std::ranges::find(op.outputs, id) != op.outputs.end())
        return !std::holds_alternative<op::Linear>(op.what) &&
               !std::holds_alternative<op::Embed>(op.what);
    return false;
  }

  std::vector<int64_t> rows_of(const std::string& name) const {
    std::vector<int64_t> all;
    const RecordedRows rows(patient_.side);
    for (const int64_t position : patient_.side.replayed)
      if (patient_.side.trace->row(name, position) && !rows.has_non_finite(name, position))
        all.push_back(position);
    if (patient_.asked || all.size() <= kMostRowsUnasked) return all;
    std::vector<int64_t> some;
    for (size_t i = 0; i < kMostRowsUnasked; ++i)
      some.push_back(all[i * all.size() / kMostRowsUnasked]);
    return some;
  }

  void pool(const std::vector<const CheckpointResult*>& group) {
    std::vector<std::unique_ptr<Case>> cases;  // examinations refer to them
    std::vector<std::unique_ptr<Examination>> layers;
    std::vector<const CheckpointResult*> results;
    for (const CheckpointResult* result : group) {
      if (late()) return;
      const std::vector<int64_t> rows = rows_of(result->name);
      if (rows.empty()) continue;
      cases.push_back(std::make_unique<Case>(
          Case{patient_.side, patient_.model, patient_.used, patient_.threads,
               patient_.scope.ids.find(result->name)->second, rows, rows, 0, patient_.interrupted,
               patient_.products}));
      layers.push_back(std::make_unique<Examination>(
          *cases.back(), Altered(patient_.side.forwards.front()), deadline_));
      results.push_back(result);
    }
    const auto pooled = find_pooled(layers);
    if (!pooled) return;
    for (const size_t layer : pooled->layers) add(*results[layer], cases[layer]->wrong, *pooled);
  }

  void add(const CheckpointResult& result, const std::vector<int64_t>& rows, const Pooled& pooled) {
    const auto before = std::ranges::find(found_, pooled.hypothesis.cause, &Diagnosis::cause);
    if (before != found_.end()) {
      add_checkpoint(*before, result, rows);
      return;
    }
    Diagnosis made;  // no row is wrong by itself
    made.side = patient_.which;
    add_checkpoint(made, result, rows);
    made.cause = pooled.hypothesis.cause;
    made.parameters = pooled.hypothesis.parameters;
    made.fix = pooled.hypothesis.fix;
    made.alternatives = pooled.alternatives;
    made.text = fmt::format(
        "{}; no row is beyond its bound, but over {} rows together this explains {:.3g}% of the "
        "squared error (logarithm of the likelihood ratio: {:.0f}; chance gives at most 32)",
        pooled.hypothesis.text, pooled.rows, 100 * (1 - pooled.share), pooled.likelihood);
    const auto& worst = (result.*patient_.judgement).worst;
    made.ratio_before = made.ratio_after = worst ? worst->ratio() : 0;
    found_.push_back(std::move(made));
  }

  const HiddenPatient& patient_;
  const op::Program& program_;
  const Examination::Clock::time_point deadline_;
  std::vector<Diagnosis> found_;
};

}  // namespace

std::vector<Diagnosis> diagnose_hidden(const HiddenPatient& patient) {
  return HiddenDoctor(patient).run();
}

}  // namespace lockstep::doctor
