// Hypotheses on rotations, attention and the rows that ops read.
#include <algorithm>
#include <cmath>
#include <set>

#include "base/float16.h"
#include "doctor/hypothesis.h"
#include "op/rope.h"
#include "quant/decode.h"

namespace lockstep::doctor {
namespace {

int64_t step_begin(const trace::Trace& trace, int64_t position) {
  const auto& steps = trace.manifest().steps;
  const auto after =
      std::ranges::upper_bound(steps, position, {}, &trace::StepInfo::first_position);
  return after == steps.begin() ? 0 : std::prev(after)->first_position;
}

// Pairs from `first` on are not turned.
Alteration turns_pairs(int64_t count) {
  return rope([count](op::Rope& rope) {
    const auto pairs = static_cast<size_t>(rope.dims / 2);
    if (count <= 0 || static_cast<size_t>(count) >= pairs) return false;
    if (rope.factors.empty()) rope.factors.assign(pairs, 1.0F);
    for (auto i = static_cast<size_t>(count); i < pairs; ++i)
      rope.factors[i] = std::numeric_limits<float>::infinity();
    return true;
  });
}

void position_hypotheses(const Findings& findings, std::vector<Hypothesis>& out) {
  const std::string fix =
      "Look at the position that is handed to the rotation, in the prompt and in later steps.";
  for (const int offset : {1, -1, 2, -2, 3, -3, 4, -4})
    out.push_back({"rope.position",
                   fmt::format("it rotates by position {:+d}", offset),
                   fix,
                   {{"offset", int64_t{offset}}},
                   position_offset(offset)});
  const auto& steps = findings.trace.manifest().steps;
  if (steps.size() > 1)
    out.push_back({"rope.position",
                   "it counts the positions of each step from 0 on",
                   fix,
                   {{"offset", std::string("from the step's start")}},
                   counted_as([&trace = findings.trace](int64_t position) {
                     return position - step_begin(trace, position);
                   })});
  out.push_back({"rope.position",
                 "it rotates all positions as position 1",
                 fix,
                 {{"offset", std::string("always 1")}},
                 counted_as([](int64_t) { return 1; })});
  out.push_back({"rope.direction",
                 "it rotates in the other direction",
                 "Look at the sign of the sine.",
                 {},
                 counted_as([](int64_t position) { return -position; })});
  out.push_back({"rope.precision",
                 "positions are rounded to bfloat16",
                 "Look at the type in which positions and angles are computed.",
                 {{"type", std::string("bf16")}},
                 counted_as([](int64_t position) {
                   return static_cast<int64_t>(
                       bfloat_to_float(float_to_bfloat(static_cast<float>(position))));
                 })});
  out.push_back({"rope.precision",
                 "positions are rounded to half precision",
                 "Look at the type in which positions and angles are computed.",
                 {{"type", std::string("f16")}},
                 counted_as([](int64_t position) {
                   return static_cast<int64_t>(
                       half_to_float(float_to_half(static_cast<float>(position))));
                 })});
}

// Frequencies that were rounded, as divisors of the right ones.
Alteration rounded_frequencies(const std::function<float(float)>& rounded) {
  return rope([rounded](op::Rope& rope) {
    if (rope.yarn || rope.position_scale != 1) return false;
    const std::vector<double> exact = op::rope_frequencies(rope);
    if (rope.factors.empty()) rope.factors.assign(exact.size(), 1.0F);
    for (size_t i = 0; i < exact.size(); ++i) {
      const auto used = static_cast<double>(rounded(static_cast<float>(exact[i])));
      if (used > 0)
        rope.factors[i] =
            static_cast<float>(static_cast<double>(rope.factors[i]) * exact[i] / used);
    }
    return true;
  });
}

}  // namespace

void rope_hypotheses(const Findings& findings, size_t index, std::vector<Hypothesis>& out) {
  const auto& own = std::get<op::Rope>(findings.program().ops[index].what);
  const bool adjacent = own.pairing == op::Rope::Pairing::kAdjacent;
  const int64_t half = own.dims / 2;
  out.push_back({"rope.pairing",
                 adjacent ? fmt::format("it rotates number i of a head with number i + {}; this "
                                        "model pairs neighbours, 2i with 2i + 1",
                                        half)
                          : fmt::format("it rotates neighbours, 2i with 2i + 1; this model pairs "
                                        "number i of a head with number i + {}",
                                        half),
                 "Look at which two numbers of a head a rotation takes, and at the conversion of "
                 "the q and k matrices.",
                 {{"value", std::string(adjacent ? "halves" : "neighbours")}},
                 other_pairing()});
  out.push_back({"rope.missing",
                 "it does not rotate",
                 "Look whether the rotation is called here.",
                 {},
                 without_rotation()});
  for (const double base : {10000.0, 500000.0, 1e6, 1e5, 5e6, 1e7, 160000.0})
    if (base != own.base)
      out.push_back({"rope.base",
                     fmt::format("the base is {:g}, not {:g}", base, own.base),
                     "Look at where the base of the rotation is read from the file.",
                     {{"value", base}},
                     rope_base(base)});
  const std::string scaling_fix = "Look at the scaling of the rotation in the file's metadata.";
  out.push_back({"rope.scaling",
                 fmt::format("positions are not scaled by {:g}", own.position_scale),
                 scaling_fix,
                 {{"value", 1.0}},
                 without_scaling()});
  if (own.position_scale != 1)
    out.push_back({"rope.scaling",
                   fmt::format("positions are scaled by {:g}, not by {:g}", 1 / own.position_scale,
                               own.position_scale),
                   scaling_fix,
                   {{"value", 1 / own.position_scale}},
                   rope([](op::Rope& rope) {
                     rope.position_scale = 1 / rope.position_scale;
                     return true;
                   })});
  if (own.yarn) {
    out.push_back({"rope.scaling",
                   "all pairs are scaled alike: it has no YaRN",
                   scaling_fix,
                   {{"value", std::string("linear")}},
                   rope([](op::Rope& rope) {
                     rope.magnitude = op::rope_magnitude(rope);
                     rope.yarn.reset();
                     return true;
                   })});
    out.push_back({"rope.scaling",
                   "it has neither YaRN nor another scaling",
                   scaling_fix,
                   {{"value", std::string("none")}},
                   rope([](op::Rope& rope) {
                     rope.yarn.reset();
                     rope.position_scale = 1;
                     return true;
                   })});
  }
  if (op::rope_magnitude(own) != 1)
    out.push_back(
        {"rope.magnitude",
         fmt::format("rotated numbers are not multiplied by {:g}", op::rope_magnitude(own)),
         "Look at the factor of the rotated numbers (the attention factor of YaRN).",
         {{"value", 1.0}},
         rope([](op::Rope& rope) {
           rope.magnitude /= op::rope_magnitude(rope);
           return true;
         })});
  out.push_back({"rope.factors",
                 "it does not divide the frequencies by the file's factors",
                 "Look at the rope factors of the file (rope_freqs, or the long and short ones).",
                 {},
                 without_factors()});
  for (const char* name :
       {"rope_factors_long.weight", "rope_factors_short.weight", "rope_freqs.weight"}) {
    const gguf::Tensor* tensor = findings.model.file().tensor(name);
    if (tensor == nullptr || tensor->dims.empty() || tensor->dims[0] != half) continue;
    std::vector<float> factors(static_cast<size_t>(half));
    quant::decode(tensor->format->format(), tensor->data.data(), half, factors.data());
    out.push_back({"rope.factors",
                   fmt::format("it divides the frequencies by {}", name),
                   "Look at which of the file's rope factors the context asks for.",
                   {{"value", std::string(name)}},
                   rope([factors](op::Rope& rope) {
                     const bool other = rope.factors != factors;
                     rope.factors = factors;
                     return other;
                   })});
    out.push_back({"rope.factors",
                   fmt::format("it multiplies the frequencies with {}", name),
                   "Look at whether the factors divide or multiply.",
                   {{"value", std::string(name)}},
                   rope([factors](op::Rope& rope) {
                     rope.factors = factors;
                     for (float& factor : rope.factors) factor = 1 / factor;
                     return true;
                   })});
  }
  std::set<int64_t> dims;
  for (const int64_t count : {own.head_size, own.head_size / 2, own.head_size / 4, own.dims / 2,
                              own.dims - 2, own.dims + 2, own.head_size * 3 / 4})
    if (dims.insert(count).second) {
      out.push_back({"rope.dims",
                     fmt::format("it rotates {} numbers of each head, not {}", count, own.dims),
                     "Look at how many numbers of a head are rotated.",
                     {{"value", count}},
                     rope_dims(count)});
      out.push_back(
          {"rope.dims",
           fmt::format("it rotates the first {} pairs of each head, not {}", count / 2, half),
           "Look at how many numbers of a head are rotated.",
           {{"value", count}},
           turns_pairs(count / 2)});
    }
  position_hypotheses(findings, out);
  out.push_back({"rope.precision",
                 "frequencies are rounded to bfloat16",
                 "Look at the type in which frequencies and angles are computed.",
                 {{"type", std::string("bf16")}},
                 rounded_frequencies([](float x) { return bfloat_to_float(float_to_bfloat(x)); })});
  out.push_back({"rope.precision",
                 "frequencies are rounded to half precision",
                 "Look at the type in which frequencies and angles are computed.",
                 {{"type", std::string("f16")}},
                 rounded_frequencies([](float x) { return half_to_float(float_to_half(x)); })});
}

void attention_hypotheses(const Findings& findings, size_t index, std::vector<Hypothesis>& out) {
  const op::Op& op = findings.program().ops[index];
  const auto& own = std::get<op::Attention>(op.what);
  const std::string mask_fix = "Look at the mask, and at how it moves with the position.";
  const auto mask = [&](const char* what, const char* value, Alteration alter) {
    out.push_back(
        {"attention.mask", what, mask_fix, {{"sees", std::string(value)}}, std::move(alter)});
  };
  mask("a position sees all of its step, later tokens too", "future", no_mask());
  mask("a position sees the next one too", "future", sees_next());
  mask("a position does not see itself", "not itself", not_itself());
  mask("a position does not see itself, and the first sees nothing", "not itself",
       sees([](const op::Attention&, int64_t position, int64_t key) { return key < position; }));
  mask("a position sees only its own step, not what came before", "step",
       sees([&trace = findings.trace](const op::Attention&, int64_t position, int64_t key) {
         return key <= position && key >= step_begin(trace, position);
       }));
  mask("a position does not see position 0", "not the first",
       sees([](const op::Attention&, int64_t position, int64_t key) {
         return key <= position && (key > 0 || position == 0);
       }));
  const std::string scale_fix = "Look at the factor of q · k.";
  const auto head = static_cast<double>(own.head_size);
  std::set<double> scales = {own.scale};
  for (const double scale :
       {1.0, 1 / std::sqrt(head), 1 / head, own.scale * own.scale, std::sqrt(own.scale),
        1 / std::sqrt(head * static_cast<double>(own.heads))})
    if (scales.insert(scale).second)
      out.push_back({"attention.scale",
                     fmt::format("q · k is multiplied by {:.6g}, not {:.6g}", scale, own.scale),
                     scale_fix,
                     {{"value", scale}},
                     attention_scale(scale)});
  const std::string map_fix = "Look at which head of k and v a head of q reads.";
  const auto heads = [&](const char* what,
                         std::function<int64_t(const op::Attention&, int64_t)> map) {
    out.push_back({"attention.head_map",
                   what,
                   map_fix,
                   {{"value", std::string(what)}},
                   kv_head(std::move(map))});
  };
  heads("query head h reads key head h mod the number of key heads",
        [](const op::Attention& a, int64_t h) { return h % a.kv_heads; });
  heads("all query heads read key head 0", [](const op::Attention&, int64_t) { return 0; });
  heads("key heads are in reverse order", [](const op::Attention& a, int64_t h) {
    return a.kv_heads - 1 - h / (a.heads / a.kv_heads);
  });
  heads("query head h reads the key head after its own", [](const op::Attention& a, int64_t h) {
    return (h / (a.heads / a.kv_heads) + 1) % a.kv_heads;
  });
  // A window of w shows first at position w, the one of w + 1 at the position after.
  const std::string window_fix =
      "Look at the window of attention, and whether it counts the "
      "position itself.";
  std::set<int64_t> windows = {own.window};
  const auto add_window = [&](int64_t size) {
    if (size < 0 || !windows.insert(size).second) return;
    out.push_back(
        {"attention.window",
         size == 0 ? fmt::format("it has no window, where the model has one of {}", own.window)
         : own.window == 0 ? fmt::format("it has a window of {}, where the model has none", size)
                           : fmt::format("the window is {}, not {}", size, own.window),
         window_fix,
         {{"value", size}},
         window(size)});
  };
  add_window(0);
  for (const int64_t offset : {1, -1}) add_window(own.window > 0 ? own.window + offset : -1);
  if (!findings.wrong.empty()) add_window(findings.wrong.front());
  for (const double cap : {50.0, 30.0, 20.0, 10.0, 100.0})
    out.push_back({"attention.soft_cap",
                   fmt::format("scores are capped at {:g}", cap),
                   "Look for a soft cap that this model has not.",
                   {{"value", cap}},
                   soft_cap(cap)});
  if (own.soft_cap > 0)
    out.push_back({"attention.soft_cap",
                   "scores are not capped",
                   "Look for the soft cap of the model.",
                   {{"value", 0.0}},
                   soft_cap(0)});
  // A row of the cache that is not its position's shows from that position on, or later.
  if (findings.wrong.empty()) return;
  const int64_t first = findings.wrong.front();
  constexpr int64_t kMost = 48;
  for (int64_t position = first; position >= std::max<int64_t>(0, first - kMost); --position)
    for (const CacheRows which : {kKeys, kValues, kKeysAndValues}) {
      const char* rows = which == kKeys ? "key" : which == kValues ? "value" : "key and value";
      std::vector<int64_t> others = {position - 1, op::Deviation::kZeros, 0, position + 1};
      std::set<int64_t> tried;
      for (const int64_t other : others) {
        const bool zeros = other == op::Deviation::kZeros;
        if (other == position || other >= findings.trace.positions() || (!zeros && other < 0) ||
            !tried.insert(other).second)
          continue;
        out.push_back(
            {zeros ? "cache.missing" : "cache.stale",
             zeros ? fmt::format("the {} of position {} are zeros in the cache", rows, position)
                   : fmt::format("the cache has the {} of position {} in place of "
                                 "position {}'s",
                                 rows, other, position),
             "Look at where the cache is written, and whether the write comes before "
             "the read.",
             {{"positions", fmt::format("{}", position)}},
             cache_row(which, position, other)});
        out.back().rank = 1;
      }
    }
  for (const int64_t offset : {-1, 1})
    for (const CacheRows which : {kKeys, kValues, kKeysAndValues})
      out.push_back({"cache.position",
                     fmt::format("the cache holds {} one place too {}",
                                 which == kKeys     ? "keys"
                                 : which == kValues ? "values"
                                                    : "keys and values",
                                 offset < 0 ? "far" : "early"),
                     "Look at the place in the cache that a step writes to.",
                     {{"positions", std::string("all")}},
                     [=](Altered& altered, size_t at) {
                       altered.deviation(at).reads = [=](size_t input, int64_t position) {
                         const bool concerned = (input == 1 && (which & kKeys) != 0) ||
                                                (input == 2 && (which & kValues) != 0);
                         return concerned ? std::max<int64_t>(0, position + offset) : position;
                       };
                       return true;
                     }});
}

void row_hypotheses(const Findings& findings, size_t index, std::vector<Hypothesis>& out) {
  const op::Op& op = findings.program().ops[index];
  const std::string fix =
      "Look at the buffer of this result: what wrote it last, and which row a token has in it.";
  const std::set<int64_t> all(findings.wrong.begin(), findings.wrong.end());
  const int64_t end = findings.trace.positions();
  // Rows of the input, where that is not the same as rows of the result.
  const bool attends = std::holds_alternative<op::Attention>(op.what);
  const bool placed = attends || std::holds_alternative<op::Rope>(op.what);
  const auto add = [&](const std::set<int64_t>& wrong, int64_t offset) {
    const auto other = [wrong, offset, end](int64_t position) {
      const int64_t at = position + offset;
      return !wrong.contains(position) || at < 0 || at >= end ? position : at;
    };
    const std::string which =
        wrong.size() == all.size() ? "a wrong row" : fmt::format("row {}", *wrong.begin());
    const std::string where =
        fmt::format("{} {} it", std::abs(offset) == 1 ? "the position" : "two positions",
                    offset < 0 ? "before" : "after");
    Hypothesis made{"row.stale",
                    fmt::format("{} is the row of {}", which, where),
                    fix,
                    {{"position", fmt::format("{:+d}", offset)}},
                    result_of(other)};
    made.rank = 1;
    out.push_back(made);
    if (!placed) return;
    made.text = fmt::format("for {} it reads the row of {}", which, where);
    made.alter = [other, attends](Altered& altered, size_t at) {
      altered.deviation(at).reads = [=](size_t input, int64_t position) {
        return attends && input > 0 ? position : other(position);
      };
      return true;
    };
    out.push_back(std::move(made));
  };
  for (const int64_t offset : {-1, 1, -2, 2}) {
    add(all, offset);
    // Later rows may have inherited it through attention.
    if (all.size() > 1) add({*all.begin()}, offset);
  }
}

}  // namespace lockstep::doctor
