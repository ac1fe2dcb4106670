// The report for people: the costs of the file, then its tensors with a bar each.
#include <algorithm>
#include <cmath>
#include <map>

#include "base/table.h"
#include "base/text.h"
#include "quality/quality.h"

namespace lockstep::quality {
namespace {

constexpr size_t kMostTensors = 20;
constexpr int64_t kBarCells = 24;

std::string number(double value) {
  return value == 0 ? "0" : fmt::format("{:.3g}", value);
}

std::string range(const Interval& interval, std::string (*show)(double)) {
  if (std::isnan(interval.low)) return "-";
  return fmt::format("{} to {}", show(interval.low), show(interval.high));
}

std::string percent(double share) {
  return fmt::format("{:.2f}%", 100 * share);
}

std::string three_digits(double value) {
  return fmt::format("{:.4f}", value);
}

double bits(int64_t bytes, int64_t values) {
  return values > 0 ? 8 * static_cast<double>(bytes) / static_cast<double>(values) : 0;
}

// Eighths of a cell, so that small differences show.
std::string bar(double value, double most) {
  static constexpr const char* kParts[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  if (!(value > 0) || !(most > 0)) return "";
  const auto eighths =
      std::max<int64_t>(1, std::llround(value / most * static_cast<double>(8 * kBarCells)));
  std::string out;
  for (int64_t i = 0; i < eighths / 8; ++i) out += "█";
  return out + kParts[eighths % 8];
}

std::string costs(const Report& report, int64_t width, const Paint& paint) {
  const Cost& cost = report.cost;
  Table table({{"what"}, {"value", true}, {"95% interval"}});
  const auto add = [&](const char* what, const Interval& interval, std::string (*show)(double)) {
    table.add({what, show(interval.value), range(interval, show)});
  };
  add("perplexity of the reference", cost.perplexity_reference, three_digits);
  add("perplexity of the suspect", cost.perplexity_suspect, three_digits);
  add("suspect over reference", cost.perplexity_ratio, three_digits);
  add("KL of the next token, mean", cost.kl_mean, number);
  add("KL, median", cost.kl_median, number);
  add("KL, 99% are below", cost.kl_p99, number);
  add("the same choice", cost.same, percent);
  return table.render(width, paint);
}

std::string tensors(const Report& report, int64_t width, const Paint& paint, bool all) {
  const Ranking& ranking = report.ranking;
  Table table({{"tensor", false, 0, true},
               {"format", false, 3},
               {"size", true, 2},
               {"KL alone", true},
               {"95% interval", false, 4},
               {"saved if put back", true},
               {"95% interval", false, 5},
               {"KL alone", false, 1}});
  double most = 0, sum = 0;
  size_t measured = 0;
  for (const TensorCost& tensor : ranking.tensors) {
    most = std::max(most, tensor.alone.value);
    sum += tensor.alone.value;
    measured += tensor.equal ? 0 : 1;
  }
  size_t shown = 0;
  for (const TensorCost& tensor : ranking.tensors) {
    if (tensor.equal || (!all && shown == kMostTensors)) break;
    ++shown;
    table.add({printable(tensor.name), std::string(tensor.format_suspect->name),
               human(tensor.bytes_suspect) + "B", number(tensor.alone.value),
               range(tensor.alone, number), number(tensor.saved.value), range(tensor.saved, number),
               bar(tensor.alone.value, most)});
  }
  std::string out = fmt::format(
      "\nBy tensor. Measured, not estimated, on a sample: {} tokens in {} windows, each token "
      "with at least {} before it.\n"
      "KL alone: the reference with this tensor of the suspect. Saved: what the suspect's KL "
      "loses with this tensor of the reference.\n"
      "The suspect's KL on the sample is {}; the tensors alone add up to {}.\n\n",
      ranking.tokens, ranking.windows, ranking.context, number(ranking.kl.value), number(sum));
  out += table.render(width, paint);
  if (shown < measured)
    out += fmt::format("and {} more (--all or --json lists all)\n", measured - shown);
  if (const size_t equal = ranking.tensors.size() - measured; equal > 0)
    out +=
        fmt::format("{} tensor{} the same in both files.\n", equal, equal == 1 ? " is" : "s are");
  return out;
}

std::string recipe(const Report& report, int64_t width, const Paint& paint) {
  const Proposal& proposal = *report.proposal;
  struct Share {
    int64_t tensors = 0;
    double kl = 0;
  };
  std::map<std::string_view, Share> shares;
  for (const Proposal::Line& line : proposal.lines) {
    shares[line.format->name].tensors += 1;
    shares[line.format->name].kl += line.kl;
  }
  Table table({{"format"}, {"matrices", true}, {"KL by estimate", true}});
  for (const auto& [name, share] : shares)
    table.add({std::string(name), fmt::format("{}", share.tensors), number(share.kl)});
  std::string out = fmt::format(
      "\nRecipe {}: {}B of tensors, {:.2f} bits a weight. Its KL is estimated as {}: each tensor's "
      "measured cost, times\n"
      "the square of the error in the new format over that in the measured one, all added up.\n",
      printable(report.recipe_path), human(proposal.bytes), bits(proposal.bytes, proposal.values),
      number(proposal.kl));
  if (proposal.probed > 0)
    out +=
        fmt::format("{} that the suspect does not quantize {} measured in a 4-bit format.\n",
                    proposal.probed == 1 ? "A matrix" : fmt::format("{} matrices", proposal.probed),
                    proposal.probed == 1 ? "was" : "were");
  out += fmt::format("\n{}", table.render(width, paint));
  return out + fmt::format("Write the model: lockstep quantize {} OUT.gguf --recipe {}\n",
                           printable(report.reference), printable(report.recipe_path));
}

}  // namespace

std::string to_text(const Report& report, int64_t width, const Paint& paint, bool all) {
  std::string out = fmt::format(
      "Reference: {}, {}B of tensors, {:.2f} bits a weight\n"
      "Suspect:   {}, {}B of tensors, {:.2f} bits a weight\n"
      "{} tokens of the text, of which {} were predicted, each from {} to {} tokens before it, on "
      "{}.\n\n",
      printable(report.reference), human(report.bytes_reference),
      bits(report.bytes_reference, report.values), printable(report.suspect),
      human(report.bytes_suspect), bits(report.bytes_suspect, report.values), report.text_tokens,
      report.cost.tokens, report.context, report.window - 1, report.device);
  out += costs(report, width, paint);
  out += fmt::format(
      "KL: sum of p log(p / q), p the reference's probabilities, q the suspect's; natural "
      "logarithm.\n"
      "Intervals: bootstrap over {} blocks of about {} tokens, since near tokens are not "
      "independent.\n",
      report.cost.blocks, kBlockTokens);
  if (report.ranked) out += tensors(report, width, paint, all);
  if (report.proposal) out += recipe(report, width, paint);
  return out;
}

}  // namespace lockstep::quality
