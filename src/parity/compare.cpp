#include "parity/compare.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>

#include "base/parallel.h"
#include "base/progress.h"
#include "gguf/fingerprint.h"
#include "trace/checkpoints.h"

namespace lockstep::parity {
namespace {

// Multiply-adds that a replay may cost before positions are sampled: some tens of seconds.
constexpr double kReplayBudget = 3e10;

int64_t layer_of(const std::string& checkpoint) {
  int64_t layer = -1;
  return std::sscanf(checkpoint.c_str(), "blk.%ld.", &layer) == 1 ? layer : -1;
}

class Comparer {
 public:
  Comparer(const trace::Trace& reference, const trace::Trace& suspect, const model::Model* model,
           const CompareOptions& options)
      : reference_(reference), suspect_(suspect), model_(model), options_(options) {
    threads_ = options.threads > 0 ? options.threads : available_cores();
  }

  Result<Comparison> run() {
    out_.tokens = compare_tokens(reference_.manifest(), suspect_.manifest());
    if (!out_.tokens.same_prompt) {
      out_.verdict = "different prompts";
      if (out_.tokens.offset) note_offset(*out_.tokens.offset);
      return std::move(out_);
    }
    note_incomplete(reference_, "reference");
    note_incomplete(suspect_, "suspect");
    LS_TRY_VOID(preflight());
    list_checkpoints();
    if (out_.checkpoints.empty())
      return error("no checkpoint of the traces matches '{}'", options_.checkpoints);
    note_ranges();
    note_widths();
    choose_positions();
    judge_all();
    judge_fork();
    conclude();
    return std::move(out_);
  }

 private:
  void note_incomplete(const trace::Trace& trace, const char* side) {
    if (!trace.manifest().complete)
      out_.notes.push_back(
          fmt::format("the {}'s trace is not complete: its run was cut short", side));
    if (trace.manifest().dropped_steps > 0)
      out_.notes.push_back(fmt::format("the {}'s trace lacks {} steps that were dropped", side,
                                       trace.manifest().dropped_steps));
    if (!trace.manifest().engine.precision.compute)
      out_.notes.push_back(fmt::format("the {} does not say its precision; f32 is assumed", side));
  }

  void note_offset(int64_t offset) {
    const bool later = offset > 0;
    out_.notes.push_back(fmt::format(
        "the {0}'s tokens are the {1}'s from token {2} on: the {0} counts positions from another "
        "start (from the generation, not from the prompt?). Write absolute positions, with the "
        "prompt's tokens first",
        later ? "suspect" : "reference", later ? "reference" : "suspect", std::abs(offset)));
  }

  // Positions that only one side has are not compared, and are told.
  void note_ranges() {
    if (!out_.tokens.known)
      out_.notes.push_back("a side does not say its tokens: positions are taken to be the same");
    const auto range = [](const trace::Trace& trace) {
      const auto& steps = trace.manifest().steps;
      return std::pair(steps.empty() ? 0 : steps.front().first_position, trace.positions());
    };
    const auto a = range(reference_);
    const auto b = range(suspect_);
    if (a != b)
      out_.notes.push_back(fmt::format("the reference has positions {} to {}, the suspect {} to {}",
                                       a.first, a.second - 1, b.first, b.second - 1));
    const auto dtype = [](const trace::Trace& trace) {
      const auto& checkpoints = trace.manifest().checkpoints;
      return checkpoints.empty() ? DType::kF32 : checkpoints.front().dtype;
    };
    if (dtype(reference_) != dtype(suspect_))
      out_.notes.push_back(fmt::format("values are {} in the reference and {} in the suspect",
                                       lockstep::name(dtype(reference_)),
                                       lockstep::name(dtype(suspect_))));
  }

  // A vocabulary may be padded on one side; any other value of another width is another value.
  void note_widths() {
    for (CheckpointResult& c : out_.checkpoints) {
      if (!c.in_reference || !c.in_suspect) continue;
      const int64_t a = reference_.checkpoint(c.name)->width;
      const int64_t b = suspect_.checkpoint(c.name)->width;
      if (a == b) continue;
      c.comparable = c.name == "logits";
      out_.notes.push_back(
          fmt::format("{} has {} numbers in the reference and {} in the suspect: {}", c.name, a, b,
                      c.comparable ? "compared as far as both go" : "not compared"));
    }
  }

  // The same model on both sides, and the one that was given?
  Result<void> preflight() {
    const auto& a = reference_.manifest().model;
    const auto& b = suspect_.manifest().model;
    if (!a.architecture.empty() && !b.architecture.empty() && a.architecture != b.architecture)
      return error("the traces are of different architectures: {} and {}", a.architecture,
                   b.architecture);
    if (!a.fingerprint.empty() && !b.fingerprint.empty() && a.fingerprint != b.fingerprint)
      out_.notes.push_back(
          fmt::format("the traces are of different model files ({} and {}): differences include "
                      "those of the weights",
                      a.file, b.file));
    if (model_ == nullptr) {
      out_.notes.push_back("no model file was given (-m): differences are measured, not judged");
      return {};
    }
    // One file can be given; a side that ran another one is measured, not judged.
    const std::string own = gguf::fingerprint(model_->file());
    const auto matches = [&](const trace::ModelInfo& info) {
      return info.fingerprint.empty() || info.fingerprint == own;
    };
    reference_judged_ = matches(a);
    suspect_judged_ = matches(b);
    if (!reference_judged_ && !suspect_judged_)
      return error("{} is not the model of the traces (fingerprint {}, the traces have {} of {})",
                   model_->file().path(), own, a.fingerprint, a.file);
    if (!reference_judged_ || !suspect_judged_)
      out_.notes.push_back(
          fmt::format("the {} ran another model file ({}) than {}: only the other side is judged",
                      reference_judged_ ? "suspect" : "reference",
                      reference_judged_ ? b.file : a.file, model_->file().path()));
    int64_t positions = std::max(reference_.positions(), suspect_.positions());
    positions = std::clamp<int64_t>(positions, 1, model_->config().context_length);
    LS_TRY(program_, model_->program(positions));
    return {};
  }

  // In the order of the program where there is one, else as the reference has them.
  void list_checkpoints() {
    std::set<std::string> listed;
    const auto list = [&](const std::string& name) {
      if (!listed.insert(name).second) return;
      CheckpointResult result;
      result.name = name;
      result.layer = layer_of(name);
      result.in_reference = reference_.has(name);
      result.in_suspect = suspect_.has(name);
      out_.checkpoints.push_back(std::move(result));
    };
    if (program_)
      for (const op::Op& op : program_->ops)
        for (const size_t i : execution_order(op)) {
          const std::string& name = program_->value(op.outputs[i]).name;
          if (reference_.has(name) || suspect_.has(name)) list(name);
          ids_[name] = op.outputs[i];
        }
    for (const auto* trace : {&reference_, &suspect_})
      for (const auto& info : trace->manifest().checkpoints) list(info.name);
    std::erase_if(out_.checkpoints, [&](const CheckpointResult& c) { return !selected(c.name); });
  }

  // Attention's scores and probabilities come before its mix.
  static std::vector<size_t> execution_order(const op::Op& op) {
    if (op.outputs.size() == 3) return {1, 2, 0};
    return {0};
  }

  bool selected(const std::string& name) const {
    return trace::in_checkpoints(options_.checkpoints, name);
  }

  int64_t shared_positions() const {
    const int64_t both = std::min(reference_.positions(), suspect_.positions());
    // Traces without token ids are taken at their positions.
    return out_.tokens.known ? std::min(both, out_.tokens.shared) : both;
  }

  void choose_positions() {
    const int64_t shared = shared_positions();
    const auto covered = [](const trace::Trace& trace) {
      std::vector<int64_t> all;
      for (const auto& step : trace.manifest().steps)
        for (int64_t i = 0; i < step.tokens; ++i) all.push_back(step.first_position + i);
      return all;
    };
    const auto a = covered(reference_);
    const auto b = covered(suspect_);
    std::ranges::set_intersection(a, b, std::back_inserter(positions_));
    std::erase_if(positions_, [&](int64_t p) { return p >= shared; });
    std::ranges::set_union(a, b, std::back_inserter(anywhere_));
    // What follows a fork is not to be compared; what one side has beyond the other's end is.
    if (out_.tokens.first_difference)
      std::erase_if(anywhere_, [&](int64_t p) { return p >= shared; });
    if (!program_) return;
    if (!options_.positions.empty()) {
      for (const int64_t p : options_.positions)
        if (p >= 0 && p < shared) replayed_.push_back(p);
      out_.notes.push_back(fmt::format("only the {} chosen of {} positions were replayed",
                                       replayed_.size(), positions_.size()));
      return;
    }
    double cost = 0;
    for (const op::Op& op : program_->ops)
      if (const auto* linear = std::get_if<op::Linear>(&op.what))
        cost += 4 * static_cast<double>(linear->weight.rows * linear->weight.columns);
    const auto affordable = std::max<int64_t>(4, static_cast<int64_t>(kReplayBudget / cost));
    if (affordable >= shared) {
      replayed_ = positions_;
      return;
    }
    // First and last, the turn from prompt to generation, and the rest evenly.
    const int64_t turn = std::clamp<int64_t>(reference_.manifest().prompt_tokens, 1, shared - 1);
    std::set<int64_t> chosen = {0, turn - 1, turn, shared - 1};
    for (int64_t i = 0; i < affordable; ++i) chosen.insert(i * (shared - 1) / affordable);
    replayed_.assign(chosen.begin(), chosen.end());
    sampled_ = true;
    out_.notes.push_back(
        fmt::format("{} of {} positions were replayed, and of each checkpoint the one where the "
                    "sides differ most; --positions chooses others",
                    replayed_.size(), shared));
  }

  void judge_all() {
    std::optional<Replay> reference_replay;
    std::optional<Replay> suspect_replay;
    if (program_) {
      reference_replay.emplace(*program_, reference_, out_.tokens.tokens, options_.checkpoints,
                               threads_);
      suspect_replay.emplace(*program_, suspect_, out_.tokens.tokens, options_.checkpoints,
                             threads_);
    }
    Progress progress("comparing", static_cast<int64_t>(out_.checkpoints.size()), "checkpoints");
    for (CheckpointResult& result : out_.checkpoints) {
      measure(result);
      if (const auto id = ids_.find(result.name); program_ && id != ids_.end()) {
        const std::vector<int64_t> positions = positions_to_judge(result);
        if (result.in_reference && reference_judged_)
          result.reference = judge(*reference_replay, id->second, positions);
        if (result.in_suspect && suspect_judged_)
          result.suspect = judge(*suspect_replay, id->second, positions);
      }
      result.verdict = verdict_of(result);
      progress.advance(1);
      // Traces and models may be larger than memory; every checkpoint has pages of its own.
      reference_.release_pages();
      suspect_.release_pages();
      if (model_ != nullptr) model_->file().release_pages();
    }
  }

  // A sample must not pass over the row that stands out.
  std::vector<int64_t> positions_to_judge(const CheckpointResult& result) const {
    std::vector<int64_t> out = replayed_;
    const auto place = std::ranges::lower_bound(out, result.worst_position);
    if (sampled_ && result.positions > 0 && (place == out.end() || *place != result.worst_position))
      out.insert(place, result.worst_position);
    return out;
  }

  void measure(CheckpointResult& result) {
    if (result.comparable) measure_rows(result);
    for (const int64_t position : anywhere_) {
      const bool a = reference_.row(result.name, position).has_value();
      const bool b = suspect_.row(result.name, position).has_value();
      rows_anywhere_ += a || b ? 1 : 0;
    }
    rows_compared_ += result.positions;
  }

  // Rows are measured in any order and added up in theirs, so that the sums have the same bits on
  // any number of threads.
  void measure_rows(CheckpointResult& result) {
    const bool logits = result.name == "logits";
    std::vector<std::optional<Metrics>> rows(positions_.size());
    std::vector<LogitMetrics> choices(logits ? positions_.size() : 0);
    const auto range = [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        rows[i] = compare_rows(reference_, suspect_, result.name, positions_[i]);
        if (rows[i] && logits) choices[i] = choice(positions_[i]);
      }
    };
    parallel_for(static_cast<int64_t>(positions_.size()), 1, range, threads_);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (!rows[i]) continue;
      if (result.positions == 0) result.worst_position = positions_[i];
      ++result.positions;
      result.metrics.add(*rows[i]);
      if (const double apart = rows[i]->relative_l2(); apart > result.worst_relative_l2) {
        result.worst_relative_l2 = apart;
        result.worst_position = positions_[i];
      }
      if (logits) count_choice(choices[i]);
    }
  }

  LogitMetrics choice(int64_t position) const {
    const auto a = reference_.row("logits", position);
    const auto b = suspect_.row("logits", position);
    const int64_t width = std::min(a->width, b->width);
    return logit_metrics(row_values(*a, width), row_values(*b, width));
  }

  void count_choice(const LogitMetrics& m) {
    ChoiceStatistics& choices = out_.choices;
    ++choices.compared;
    choices.same += m.reference_choice == m.suspect_choice ? 1 : 0;
    choices.mean_kl += (m.kl_divergence - choices.mean_kl) / static_cast<double>(choices.compared);
    choices.worst_kl = std::max(choices.worst_kl, m.kl_divergence);
  }

  SideJudgement judge(Replay& replay, op::ValueId id, std::span<const int64_t> positions) {
    SideJudgement out;
    const auto errors = replay.judge(id, positions);
    if (!errors) return out;
    out.judged = static_cast<int64_t>(errors->size());
    for (const OwnError& own : *errors) {
      if (!out.worst || own.non_finite > out.worst->non_finite || own.ratio() > out.worst->ratio())
        out.worst = own;
      if (own.defect() && !out.first_defect) out.first_defect = own;
    }
    return out;
  }

  Verdict verdict_of(const CheckpointResult& result) const {
    if (result.positions == 0) return Verdict::kMissing;
    const auto garbage = [](const SideJudgement& side) {
      return side.first_defect && side.first_defect->non_finite;
    };
    if (garbage(result.reference) || garbage(result.suspect)) return Verdict::kGarbage;
    if (result.reference.first_defect || result.suspect.first_defect) return Verdict::kDefect;
    if (result.metrics.exact()) return Verdict::kExact;
    if (result.reference.judged == 0 || result.suspect.judged == 0)
      return result.metrics.non_finite_differs > 0 && !masks_differ(result) ? Verdict::kGarbage
                                                                            : Verdict::kDiffers;
    const double elements = static_cast<double>(std::max<int64_t>(1, result.metrics.elements));
    const double apart = std::sqrt(result.metrics.squares_difference / elements);
    const double rounding =
        kRowLimit * std::hypot(result.reference.worst->expected, result.suspect.worst->expected);
    return apart <= rounding ? Verdict::kRounding : Verdict::kDrift;
  }

  // Scores are minus infinity where a mask hides them, so an infinity that one side has is a
  // question of masks, and without a replay nobody's fault.
  static bool masks_differ(const CheckpointResult& result) {
    return result.name.ends_with("attn_scores") &&
           result.metrics.reference.nan + result.metrics.suspect.nan == 0;
  }

  void judge_fork() {
    if (!out_.tokens.first_difference) return;
    const auto index = static_cast<size_t>(*out_.tokens.first_difference);
    const auto& a = reference_.manifest().tokens;
    const auto& b = suspect_.manifest().tokens;
    if (index >= a.size() || index >= b.size() || index == 0) return;
    Fork fork;
    fork.position = static_cast<int64_t>(index) - 1;
    fork.reference_token = a[index];
    fork.suspect_token = b[index];
    const auto x = reference_.row("logits", fork.position);
    const auto y = suspect_.row("logits", fork.position);
    if (x && y && std::max(a[index], b[index]) < std::min(x->width, y->width)) {
      fork.margin = x->at(0, a[index]) - x->at(0, b[index]);
      const double other = y->at(0, a[index]) - y->at(0, b[index]);
      fork.difference = std::fabs(fork.margin - other);
      fork.tie = std::fabs(fork.margin) <= fork.difference;
    }
    out_.fork = fork;
  }

  // Prompt positions run together, op by op; then every generated one by itself.
  struct When {
    int64_t group;
    size_t checkpoint;
    int64_t position;
    auto operator<=>(const When&) const = default;
  };

  When when(size_t checkpoint, int64_t position) const {
    const int64_t prompt = reference_.manifest().prompt_tokens;
    return {position < prompt ? 0 : position - prompt + 1, checkpoint, position};
  }

  void find_first_defect() {
    std::optional<When> first;
    for (size_t i = 0; i < out_.checkpoints.size(); ++i) {
      const CheckpointResult& c = out_.checkpoints[i];
      const bool wrong = c.verdict == Verdict::kDefect || c.verdict == Verdict::kGarbage ||
                         c.reference.first_defect || c.suspect.first_defect;  // also of one alone
      out_.defects += wrong ? 1 : 0;
      for (const Side side : {Side::kReference, Side::kSuspect}) {
        const auto& judged = side == Side::kReference ? c.reference : c.suspect;
        if (!judged.first_defect) continue;
        const When at = when(i, judged.first_defect->position);
        if (first &&
            std::pair(at.group, at.checkpoint) == std::pair(first->group, first->checkpoint)) {
          out_.first_defect->side = Side::kBoth;
          continue;
        }
        if (first && *first < at) continue;
        first = at;
        out_.first_defect =
            Defect{c.name, c.layer, judged.first_defect->position, side, *judged.first_defect};
      }
    }
  }

  void conclude() {
    find_first_defect();
    int64_t judged = 0;
    int64_t possible = 0;
    std::optional<Verdict> worst;
    for (const CheckpointResult& c : out_.checkpoints) {
      judged += std::min(c.reference.judged, c.suspect.judged);
      possible += c.positions;
      if (c.verdict == Verdict::kMissing) continue;
      worst = worst ? std::max(*worst, c.verdict) : c.verdict;
    }
    out_.coverage = rows_anywhere_ > 0
                        ? static_cast<double>(rows_compared_) / static_cast<double>(rows_anywhere_)
                        : 0;
    out_.judged = possible > 0 ? static_cast<double>(judged) / static_cast<double>(possible) : 0;
    if (!worst) {
      out_.verdict = "nothing to compare";
      return;
    }
    if (out_.first_defect)
      worst = out_.first_defect->own.non_finite ? Verdict::kGarbage : Verdict::kDefect;
    if (*worst == Verdict::kDiffers && within_declared_precision()) worst = Verdict::kDrift;
    out_.verdict = name(*worst);
    if (!out_.first_defect && *worst > Verdict::kDrift) find_first_difference();
    // A NaN is the worse news, though differences that were not judged surround it.
    if (*worst == Verdict::kDiffers && out_.first_defect && out_.first_defect->own.non_finite &&
        out_.first_defect->side != Side::kUndetermined)
      out_.verdict = name(Verdict::kGarbage);
    // Whoever takes the largest logit parts only where the difference is larger than the margin, so
    // the question is whether rounding explains that difference.
    if (out_.fork && *worst > Verdict::kDrift) out_.fork->tie = false;
    const bool forked = out_.fork && !out_.fork->tie;
    if (forked && *worst <= Verdict::kDrift) out_.verdict = "fork";
    out_.parity = *worst <= Verdict::kDrift && !forked;
  }

  // Without a replay: the relative difference that rounding by the declared precision, added up
  // over the layers, could explain. A guess, and said to be one in the report.
  double allowed_difference(const CheckpointResult& c) const {
    double coarsest = 0;
    for (const auto* trace : {&reference_, &suspect_}) {
      const auto& info = trace->manifest();
      const DType stored = info.checkpoints.empty() ? DType::kF32 : info.checkpoints[0].dtype;
      const Arithmetic a = arithmetic_of(info.engine.precision, stored);
      coarsest = std::max({coarsest, a.activations, a.kv, a.stored, a.of_levels()});
    }
    return 32 * coarsest * static_cast<double>(std::max<int64_t>(c.layer, 0) + 2);
  }

  bool within_declared_precision(const CheckpointResult& c, const Metrics& metrics) const {
    return metrics.non_finite_differs == 0 && metrics.relative_l2() <= allowed_difference(c);
  }

  bool within_declared_precision() const {
    return std::ranges::all_of(out_.checkpoints, [&](const CheckpointResult& c) {
      return c.positions == 0 || c.verdict <= Verdict::kDrift ||
             (c.metrics.non_finite_differs == 0 && c.worst_relative_l2 <= allowed_difference(c));
    });
  }

  // Where nothing was proved: the first difference that the declared precision does not explain.
  void find_first_difference() {
    std::optional<When> first;
    for (size_t i = 0; i < out_.checkpoints.size(); ++i) {
      const CheckpointResult& c = out_.checkpoints[i];
      if (c.positions == 0 || c.verdict <= Verdict::kDrift ||
          (c.metrics.non_finite_differs == 0 && c.worst_relative_l2 <= allowed_difference(c)))
        continue;
      for (const int64_t position : positions_) {
        const auto metrics = compare_rows(reference_, suspect_, c.name, position);
        if (!metrics || within_declared_precision(c, *metrics)) continue;
        const When at = when(i, position);
        if (first && *first < at) break;
        first = at;
        out_.first_defect = difference_at(c, position, *metrics);
        break;
      }
    }
  }

  Defect difference_at(const CheckpointResult& c, int64_t position, const Metrics& m) const {
    Defect out{c.name, c.layer, position, Side::kUndetermined, {}};
    const double elements = static_cast<double>(std::max<int64_t>(1, m.elements));
    out.own.position = position;
    out.own.error = std::sqrt(m.squares_difference / elements);
    out.own.expected =
        allowed_difference(c) * std::sqrt(m.squares_reference / elements) / kRowLimit;
    out.own.non_finite = m.non_finite_differs > 0;
    if (!out.own.non_finite) return out;
    // The side with a NaN or infinity where the other has numbers.
    const bool a = m.reference.nan + m.reference.infinite > 0;
    const bool b = m.suspect.nan + m.suspect.infinite > 0;
    if (a != b && !masks_differ(c)) out.side = a ? Side::kReference : Side::kSuspect;
    return out;
  }

  const trace::Trace& reference_;
  const trace::Trace& suspect_;
  const model::Model* model_;
  const CompareOptions& options_;
  int threads_;
  bool reference_judged_ = true;  // ran the model that was given
  bool suspect_judged_ = true;
  std::optional<op::Program> program_;
  std::map<std::string, op::ValueId> ids_;
  std::vector<int64_t> anywhere_;   // that either side has
  std::vector<int64_t> positions_;  // compared
  std::vector<int64_t> replayed_;   // of those
  bool sampled_ = false;            // not all, and not chosen by the user
  int64_t rows_anywhere_ = 0;
  int64_t rows_compared_ = 0;
  Comparison out_;
};

}  // namespace

std::string_view name(Verdict verdict) {
  constexpr std::string_view kNames[] = {"exact",   "rounding", "drift",  "defect",
                                         "garbage", "differs",  "missing"};
  return kNames[static_cast<int>(verdict)];
}

std::string_view name(Side side) {
  constexpr std::string_view kNames[] = {"reference", "suspect", "both", "undetermined"};
  return kNames[static_cast<int>(side)];
}

Result<Comparison> compare(const trace::Trace& reference, const trace::Trace& suspect,
                           const model::Model* model, const CompareOptions& options) {
  return Comparer(reference, suspect, model, options).run();
}

}  // namespace lockstep::parity
