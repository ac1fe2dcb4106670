// What the difference of two model files comes from, in words.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/ranges.h>

#include "base/text.h"
#include "report/summary.h"

namespace lockstep::report {
namespace {

using parity::ExplainedValue;
using parity::Origin;

std::string share_text(double share) {
  const double percents = 100 * share;
  return std::fabs(percents) < 0.1 && percents != 0 ? "less than 0.1%"
                                                    : fmt::format("{:.3g}%", percents);
}

std::string next_token_sentence(const parity::ExplainedChoices& c) {
  const auto part = [&](Origin origin) {
    const double nats = c.parts[static_cast<size_t>(origin)];
    return c.divergence > 0
               ? fmt::format("{} ({})", short_number(nats), share_text(nats / c.divergence))
               : std::string("0");
  };
  return fmt::format(
      "The next token: a KL divergence of {} nats on average over {} positions. The suspect's "
      "weights make {} of it, the rounding of its activations, cache and arithmetic {}, the "
      "reference's rounding {}. In exact arithmetic the two files are {} nats apart and have the "
      "same largest logit at {} of {} positions; as recorded at {}.",
      short_number(c.divergence), c.positions, part(Origin::kWeights), part(Origin::kRounding),
      part(Origin::kReferenceRounding), short_number(c.weights_alone), c.same_by_weights,
      c.positions, c.same);
}

// Where the divergence is not known: the last thing that was computed.
std::string last_value_sentence(const ExplainedValue& value) {
  return fmt::format(
      "At {} the sides differ by {} of its size, of which {} come from the weights of this step, "
      "{} "
      "from the suspect's rounding in it, {} were inherited.",
      value.checkpoint, share_text(value.parts.relative()),
      share_text(value.parts.share(Origin::kWeights)),
      share_text(value.parts.share(Origin::kRounding)),
      share_text(value.parts.share(Origin::kInherited)));
}

// Which kind of op the suspect's own rounding lies in: squares of relative errors, added up.
std::string rounding_sentence(const std::vector<ExplainedValue>& values) {
  std::array<double, 3> squares{};
  double all = 0;
  for (const ExplainedValue& value : values) {
    if (value.work == parity::Work::kSeveral) continue;
    const double relative = value.parts.relative(Origin::kRounding);
    squares.at(static_cast<size_t>(value.work)) += relative * relative;
    all += relative * relative;
  }
  if (!(all > 0)) return {};
  return fmt::format(
      "Of the suspect's own rounding, {} lies in products with weights (activations and sums), {} "
      "in attention (the cache), {} in the other operations.",
      share_text(squares[0] / all), share_text(squares[1] / all), share_text(squares[2] / all));
}

}  // namespace

std::vector<const ExplainedValue*> explained_tensors(const parity::Comparison& c) {
  std::vector<const ExplainedValue*> out;
  if (!c.explanation) return out;
  for (const ExplainedValue& value : c.explanation->values)
    if (!value.tensors.empty() && value.work != parity::Work::kSeveral &&
        value.parts.relative(Origin::kWeights) > 0)
      out.push_back(&value);
  std::ranges::stable_sort(out, std::greater(), [](const ExplainedValue* value) {
    return value->parts.relative(Origin::kWeights);
  });
  return out;
}

std::string tensor_names(const ExplainedValue& value) {
  std::vector<std::string> names;
  for (const ExplainedValue::Tensor& tensor : value.tensors) names.push_back(tensor.name);
  return printable(fmt::format("{}", fmt::join(names, ", ")), 120);
}

std::string tensor_formats(const ExplainedValue& value) {
  if (value.tensors.empty()) return {};
  const ExplainedValue::Tensor& first = value.tensors.front();
  return first.reference_format == first.suspect_format
             ? first.reference_format
             : fmt::format("{} to {}", first.reference_format, first.suspect_format);
}

std::vector<std::string> explanation_sentences(const parity::Comparison& c) {
  std::vector<std::string> out;
  if (!c.explanation) return out;
  const parity::Explanation& e = *c.explanation;
  if (e.choices) {
    out.push_back(next_token_sentence(*e.choices));
  } else {
    if (!e.layers.empty()) out.push_back(last_value_sentence(e.layers.back()));
    out.push_back(
        fmt::format("What that does to the next token is not known: {}.", printable(e.no_choices)));
  }
  if (!e.weights_differ) out.push_back("The weights of the two files are the same numbers.");
  if (const auto tensors = explained_tensors(c); !tensors.empty())
    out.push_back(fmt::format("Most changed by its weights: {} ({}), by {} of its size.",
                              tensor_names(*tensors[0]), tensor_formats(*tensors[0]),
                              share_text(tensors[0]->parts.relative(Origin::kWeights))));
  else if (e.values.empty() && e.weights_differ)
    out.push_back("Which tensors it comes from is not known: record 'ops' on both sides.");
  if (const std::string rounding = rounding_sentence(e.values); !rounding.empty())
    out.push_back(rounding);
  return out;
}

}  // namespace lockstep::report
