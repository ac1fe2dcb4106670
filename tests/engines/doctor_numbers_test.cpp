// Mistakes with numbers that no catalogue has, at any op, in any layer, in any arithmetic: a cause
// that is named is the right one; what is no mistake that anybody knows gets no name.
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "base/test_effort.h"
#include "clinic.h"
#include "subjects.h"

namespace lockstep::engines {
namespace {

using doctor::Alteration;
using doctor::Diagnosis;
using parity::Order;

struct OddMistake {
  std::string words;
  std::set<std::string> causes;  // any of them is right; none: it has no name
  Alteration alteration;
};

class DoctorNumbers : public testing::TestWithParam<Subject> {
 protected:
  DoctorNumbers()
      : lab_(GetParam().file.empty() ? Lab::forged(GetParam().spec)
                                     : Lab::shipped(GetParam().file)) {
    RecordProperty("seed", std::to_string(seed_));
    run_.prompt = 9;
    run_.tokens = random_tokens(seed_, 13, lab_.model().config().vocabulary);
  }

  double between(double low, double high) { return low + (high - low) * random_.uniform(); }
  double power(double low, double high) { return std::pow(10.0, between(low, high)); }
  // Not 1, by a little or by much.
  double factor() { return random_.below(2) == 0 ? 1 + power(-2.5, -0.5) : power(-1, 1.5); }
  std::vector<int64_t> permutation(int64_t count) {
    std::vector<int64_t> out(static_cast<size_t>(count));
    std::iota(out.begin(), out.end(), int64_t{0});
    for (size_t i = out.size(); i > 1; --i)
      std::swap(out[i - 1], out[static_cast<size_t>(random_.below(static_cast<int64_t>(i)))]);
    return out;
  }

  std::vector<OddMistake> of_norm(const op::Norm& norm) {
    const double epsilon = norm.epsilon * power(1, 4);
    const double times = factor();
    return {{fmt::format("epsilon {:g}", epsilon), {"norm.epsilon"}, doctor::epsilon(epsilon)},
            {fmt::format("times {:g}", times), {"scale.value"}, doctor::times(times)},
            {"weights without a sign and a half more", {}, doctor::norm_weight([](float w) {
               return std::fabs(w) + 0.5F;
             })}};
  }

  std::vector<OddMistake> of_rope(const op::Rope& rope) {
    const auto change = [](std::function<void(op::Rope&)> how) {
      return doctor::rope([how](op::Rope& own) {
        how(own);
        return true;
      });
    };
    const double base = rope.base * (random_.below(2) == 0 ? 1 + power(-2, -0.3) : power(-1, 2));
    const double scale = rope.position_scale * power(-1.5, 0.5);
    const double magnitude = rope.magnitude * factor();
    const int64_t offset = random_.below(2) == 0 ? 1 + random_.below(40) : -1;
    const int64_t step = 2 + random_.below(7);
    return {{fmt::format("base {:g}", base), {"rope.base"}, doctor::rope_base(base)},
            {fmt::format("scaled by {:g}", scale), {"rope.scaling"}, change([=](op::Rope& own) {
               own.position_scale = scale;
             })},
            {fmt::format("magnitude {:g}", magnitude),
             {"rope.magnitude", "scale.value"},
             change([=](op::Rope& own) { own.magnitude = magnitude; })},
            {fmt::format("offset {}", offset), {"rope.position"}, doctor::position_offset(offset)},
            {"square positions", {}, doctor::counted_as([](int64_t p) { return p * p; })},
            {fmt::format("positions in steps of {}", step),
             {},
             doctor::counted_as([step](int64_t p) { return p / step; })}};
  }

  std::vector<OddMistake> of_attention(const op::Attention& attention) {
    const double scale = attention.scale * factor();
    const double cap = power(-1, 1.3);
    const int64_t window = 1 + random_.below(8);
    const int64_t key = 1 + random_.below(7);
    const int64_t other = random_.below(key);
    const auto heads = permutation(attention.heads);
    const int64_t kv = attention.kv_heads;
    std::vector<int64_t> map(static_cast<size_t>(attention.heads));
    for (int64_t& head : map) head = random_.below(kv);
    return {{fmt::format("scale {:g}", scale), {"attention.scale"}, doctor::attention_scale(scale)},
            {fmt::format("cap {:g}", cap), {"attention.soft_cap"}, doctor::soft_cap(cap)},
            {fmt::format("window {}", window), {"attention.window"}, doctor::window(window)},
            {fmt::format("key {} is that of {}", key, other),
             {"cache.stale"},
             doctor::cache_row(doctor::kKeysAndValues, key, other)},
            {fmt::format("heads {}", fmt::join(heads, " ")),
             {"attention.heads_permuted", "attention.head_map"},
             doctor::output_columns([heads, size = attention.value_size](int64_t count) {
               std::vector<int64_t> out;
               for (int64_t i = 0; i < count; ++i)
                 out.push_back(heads[static_cast<size_t>(i / size)] * size + i % size);
               return out;
             })},
            {fmt::format("heads of keys {}", fmt::join(map, " ")),
             {"attention.head_map", "attention.heads_permuted"},
             doctor::kv_head([map](const op::Attention&, int64_t head) {
               return map[static_cast<size_t>(head)];
             })},
            {"sees every other key",
             {},
             doctor::sees([](const op::Attention&, int64_t position, int64_t at) {
               return at <= position && (position - at) % 2 == 0;
             })}};
  }

  std::vector<OddMistake> of_linear(const op::Linear& linear) {
    const int64_t outputs = linear.weight.rows;
    const int64_t inputs = linear.weight.columns;
    const auto order = permutation(outputs);
    const int64_t first = random_.below(inputs);
    const int64_t last = first + 1 + random_.below(inputs - first);
    const double times = factor();
    const uint64_t seed = static_cast<uint64_t>(random_.below(1 << 30));
    const auto noise = [seed](double size) {
      return doctor::reweigh([=](const op::Weight& weight) {
        std::vector<float> out = doctor::decode(weight);
        Random random(seed);
        for (float& w : out) w *= static_cast<float>(1 + size * (random.uniform() - 0.5));
        return out;
      });
    };
    std::vector<OddMistake> out = {
        {"rows in another order", {"weight.rows"}, doctor::output_columns([order](int64_t) {
           return order;
         })},
        {fmt::format("without columns {} to {}", first, last - 1),
         {"weight.shard", "weight.decode"},
         doctor::input_columns([=](int64_t count) {
           std::vector<int64_t> columns;
           for (int64_t i = 0; i < count; ++i)
             columns.push_back(i >= first && i < last ? op::Deviation::kZeros : i);
           return columns;
         })},
        {fmt::format("times {:g}", times), {"scale.value"}, doctor::times(times)},
        {"noisy weights", {}, noise(0.1)},
        {"very noisy weights", {}, noise(3)}};
    if (linear.bias) {
      const auto bias = static_cast<float>(between(0.3, 0.6) * (random_.below(2) == 0 ? 1 : -2));
      out.push_back({fmt::format("bias times {:g}", bias), {}, doctor::bias_times(bias)});
    }
    return out;
  }

  std::vector<OddMistake> of_activation() {
    const double slope = between(0.05, 0.4);
    const double steep = between(1.1, 1.6);
    const double limit = between(0.05, 0.4);
    return {{fmt::format("leaky relu, {:g}", slope), {}, doctor::activation_function([=](double x) {
               return x > 0 ? x : slope * x;
             })},
            {fmt::format("silu of {:g} x", steep), {}, doctor::activation_function([=](double x) {
               return x / (1 + std::exp(-steep * x));
             })},
            {fmt::format("limit {:g}", limit), {"activation.clamp"}, doctor::limited(limit)}};
  }

  std::optional<OddMistake> mistake_at(const op::Op& op) {
    std::vector<OddMistake> all;
    if (const auto* norm = std::get_if<op::Norm>(&op.what)) all = of_norm(*norm);
    if (const auto* rope = std::get_if<op::Rope>(&op.what)) all = of_rope(*rope);
    if (const auto* attention = std::get_if<op::Attention>(&op.what))
      all = of_attention(*attention);
    if (const auto* linear = std::get_if<op::Linear>(&op.what)) all = of_linear(*linear);
    if (std::holds_alternative<op::Activate>(op.what)) all = of_activation();
    if (const auto* scale = std::get_if<op::Scale>(&op.what)) {
      const double times = scale->factor * factor();
      all = {{fmt::format("factor {:g}", times),
              {"scale.value", "scale.missing"},
              doctor::scale_factor(times)}};
    }
    if (all.empty()) return std::nullopt;
    return all[static_cast<size_t>(random_.below(std::ssize(all)))];
  }

  void hold_to(const std::string& set, const Style& style, int count);

  uint64_t seed_ = search_seed();
  Random random_{seed_};
  Lab lab_;
  Job run_;
};

void DoctorNumbers::hold_to(const std::string& set, const Style& style, int count) {
  run_.checkpoints = set;
  const op::Program program = lab_.program(run_);
  const auto honest = lab_.record(run_, {.order = Order::kPairwise}, program);
  const bool table = std::getenv("LOCKSTEP_TABLE") != nullptr;
  std::map<std::string, int> scores;
  for (int round = 0; round < count; ++round) {
    const auto at = static_cast<size_t>(random_.below(std::ssize(program.ops)));
    const auto mistake = mistake_at(program.ops[at]);
    Patient patient(program);
    if (!mistake || !mistake->alteration(patient.altered, at)) continue;
    const std::string value = program.value(program.ops[at].outputs[0]).name;
    SCOPED_TRACE(fmt::format("{} at {}, set {}, {}, seed {}", mistake->words, value, set,
                             style.name, seed_));
    const Diagnosed found = diagnose(lab_, honest, lab_.record(run_, style, patient));
    if (!found.wrong()) continue;
    const auto& diagnoses = found.diagnoses;
    for (const Diagnosis& each : diagnoses) {
      const bool silent = each.cause == doctor::kUnknown;
      const bool right = mistake->causes.contains(each.cause);
      const bool listed = std::ranges::any_of(each.alternatives, [&](const std::string& cause) {
        return mistake->causes.contains(cause);
      });
      const bool wrong = !silent && !right && !listed;
      const char* score = right ? "right" : listed ? "listed" : silent ? "silent" : "wrong";
      if (&each == &diagnoses.front()) ++scores[score];
      EXPECT_FALSE(wrong) << each.cause << ": " << each.text;
      if (table && (wrong || listed || (silent && !mistake->causes.empty())))
        fmt::print("{} | {} | {} | {} at {} | {} | {} | {} [{}]\n", GetParam().name, set,
                   style.name, mistake->words, value, score, each.cause, each.text,
                   fmt::join(each.alternatives, ", "));
    }
  }
  if (!table) return;
  fmt::print("{} {} {}:", GetParam().name, set, style.name);
  for (const auto& [score, number] : scores) fmt::print(" {} {}", score, number);
  fmt::print("\n");
}

TEST_P(DoctorNumbers, NoWrongName) {
  const Style styles[] = {
      {.name = "f32", .order = Order::kLanes8},
      {.name = "bf16", .order = Order::kLanes8, .activations = DType::kBF16},
      {.name = "f16", .order = Order::kLanes8, .activations = DType::kF16},
      {.name = "int8", .order = Order::kLanes8, .int8 = true},
  };
  for (const Style& style : styles) hold_to("ops", style, runs_slow_tests() ? 60 : 6);
  if (!runs_slow_tests()) return;
  hold_to("layers", styles[0], 12);
  hold_to("logits", styles[0], 4);
}

INSTANTIATE_TEST_SUITE_P(Models, DoctorNumbers, testing::ValuesIn([] {
                           auto all = subjects();
                           std::erase_if(all,
                                         [](const Subject& each) { return !each.file.empty(); });
                           return all;
                         }()),
                         [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace lockstep::engines
