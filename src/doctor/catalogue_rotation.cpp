// Hypotheses on the rotation of one pair, and on which pairs are rotated.
#include <set>

#include "doctor/hypothesis.h"

namespace lockstep::doctor {

// The rotation itself, computed otherwise.
void rotation_hypotheses(const Findings& findings, size_t index, std::vector<Hypothesis>& out) {
  const op::Op& op = findings.program().ops[index];
  const auto& own = std::get<op::Rope>(op.what);
  const auto add = [&](const char* value, const std::string& text, const std::string& words,
                       PairFormula formula) {
    out.push_back({"rope.formula",
                   text,
                   "Look at the two lines that rotate a pair: x cos - y sin and x sin + y cos.",
                   {{"value", std::string(value)}},
                   rope_formula(std::move(formula), words)});
  };
  using Two = std::pair<double, double>;
  add("overwritten",
      "the second number of a pair is made of the first one as it is after its rotation",
      "x' = x cos - y sin, y' = x' sin + y cos", [](double x, double y, double c, double s) {
        const double turned = x * c - y * s;
        return Two{turned, turned * s + y * c};
      });
  add("first only", "only the first number of each pair is rotated", "x cos - y sin, y",
      [](double x, double y, double c, double s) {
        return Two{x * c - y * s, y};
      });
  add("second only", "only the second number of each pair is rotated", "x, x sin + y cos",
      [](double x, double y, double c, double s) {
        return Two{x, x * s + y * c};
      });
  add("swapped", "sine and cosine are swapped", "x sin - y cos, x cos + y sin",
      [](double x, double y, double c, double s) {
        return Two{x * s - y * c, x * c + y * s};
      });
  add("no minus", "both numbers of a pair are sums: the minus is missing",
      "x cos + y sin, x sin + y cos", [](double x, double y, double c, double s) {
        return Two{x * c + y * s, x * s + y * c};
      });
  add("cosine only", "it multiplies with the cosine and leaves the sine out", "x cos, y cos",
      [](double x, double y, double c, double) {
        return Two{x * c, y * c};
      });
  const bool adjacent = own.pairing == op::Rope::Pairing::kAdjacent;
  out.push_back(
      {"rope.pairing",
       fmt::format("it pairs {}, but takes the angles as if it paired {}",
                   adjacent ? "neighbours" : "halves", adjacent ? "halves" : "neighbours"),
       "Look at how cosines and sines are laid out: each pair has one angle for both "
       "numbers.",
       {{"value", std::string(adjacent ? "angles of halves" : "angles of neighbours")}},
       other_frequencies()});
  out.push_back(
      {"rope.dims",
       fmt::format("it rotates the last {} numbers of each head, not the first", own.dims),
       "Look at which numbers of a head are rotated.",
       {{"value", std::string("last")}},
       rotates_last()});
  out.push_back({"rope.scaling",
                 "it rotates twice: angles are twice what they should be",
                 "Look for a second place that rotates.",
                 {{"value", 2 * own.position_scale}},
                 rope([](op::Rope& rope) {
                   rope.position_scale *= 2;
                   return !rope.yarn;
                 })});
  out.back().rank = 1;
  // A loop over the heads of another value.
  const int64_t heads = findings.program().value(op.outputs[0]).width / own.head_size;
  std::set<int64_t> counts = {1, heads / 2, heads - 1};
  for (const op::Op& other : findings.program().ops)
    if (const auto* attention = std::get_if<op::Attention>(&other.what))
      counts.insert(attention->kv_heads);
  for (const int64_t count : counts) {
    out.push_back({"rope.missing",
                   fmt::format("it rotates the first {} of {} heads alone", count, heads),
                   "Look at the number of heads that the rotation goes through.",
                   {{"heads", count}},
                   rotates_heads(count)});
    out.back().rank = 1;
  }
}

}  // namespace lockstep::doctor
