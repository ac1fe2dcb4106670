// Hypotheses on rotations.
#include <algorithm>
#include <cmath>
#include <set>

#include "base/float16.h"
#include "doctor/hypothesis.h"
#include "op/rope.h"
#include "quant/decode.h"

namespace lockstep::doctor {

int64_t step_begin(const trace::Trace& trace, int64_t position) {
  const auto& steps = trace.manifest().steps;
  const auto after =
      std::ranges::upper_bound(steps, position, {}, &trace::StepInfo::first_position);
  return after == steps.begin() ? 0 : std::prev(after)->first_position;
}

namespace {

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
  const auto exponent = [&](double base, const char* how) {
    if (base != own.base && base > 1)
      out.push_back({"rope.base",
                     fmt::format("the base is {:g}, not {:g}, as if {}", base, own.base, how),
                     "Look at the exponent of the frequencies, base^(-2i / d), and at the base.",
                     {{"value", base}},
                     rope_base(base)});
  };
  exponent(std::sqrt(own.base), "the exponent of frequency i were i / d, not 2i / d");
  const double part = static_cast<double>(own.dims) / static_cast<double>(own.head_size);
  exponent(std::pow(own.base, part), "d in the exponent were the whole head");
  rotation_hypotheses(findings, index, out);
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
    const bool whole = own.yarn->whole_pairs;
    out.push_back({"rope.scaling",
                   whole ? "the ramp of YaRN does not begin and end at whole pairs"
                         : "the ramp of YaRN is rounded to begin and end at whole pairs",
                   "Look at the range of pairs between YaRN's fast and slow ones, and at whether "
                   "it is rounded.",
                   {{"value", std::string(whole ? "not rounded" : "rounded")}},
                   rope([](op::Rope& rope) {
                     if (!rope.yarn) return false;
                     rope.yarn->whole_pairs = !rope.yarn->whole_pairs;
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
  for (const bool half_precision : {false, true}) {
    const auto rounded = [=](double x) {
      const auto number = static_cast<float>(x);
      return static_cast<double>(half_precision ? half_to_float(float_to_half(number))
                                                : bfloat_to_float(float_to_bfloat(number)));
    };
    const auto same = [](double x) { return x; };
    const auto add = [&](const char* what, Alteration alter) {
      out.push_back({"rope.precision",
                     fmt::format("{} are rounded to {}", what,
                                 half_precision ? "half precision" : "bfloat16"),
                     "Look at the type in which positions, frequencies, angles, cosines and sines "
                     "are computed and kept.",
                     {{"type", std::string(half_precision ? "f16" : "bf16")}},
                     std::move(alter)});
    };
    add("frequencies", rounded_frequencies([rounded](float x) {
          return static_cast<float>(rounded(static_cast<double>(x)));
        }));
    add("cosines and sines", changed_angles(same, rounded));
    add("angles", changed_angles(rounded, same));
  }
}

}  // namespace lockstep::doctor
