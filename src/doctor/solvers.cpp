#include "doctor/solvers.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "doctor/quantities.h"

namespace lockstep::doctor {
namespace {

// Sections of an interval, each 0.6 of the one before.
constexpr int kRoughly = 12;
constexpr int kExactly = 44;
// What a number may leave of the error of a row that it explains, at first and in the end.
constexpr double kRoughlyExplained = 0.3;
constexpr double kExplained = 0.02;
// A number that is found from the first wrong rows alone is another one if it leaves so much less
// there.
constexpr double kWithoutOthers = 0.05;

// Numbers of any sign and whole ones are listed instead.
void solve_quantity(Examination& examination, std::span<const size_t> ops, const Quantity& quantity,
                    std::vector<Hypothesis>& out) {
  if (examination.late()) return;
  // The first wrong row knows least of the number, and misleads least: angles turn over later. Rows
  // that lie further on make it exact.
  const auto at = [&](std::span<const int64_t> rows) {
    return [&, rows](double power) {
      return examination.error_of(quantity.alter(std::pow(10.0, power)), ops, rows);
    };
  };
  const auto add = [&](std::span<const int64_t> rows, double power) {
    const auto error = at(rows);
    out.push_back(quantity.hypothesis(shortest(
        [&](double number) { return number > 0 ? error(std::log10(number)) : error(-300); },
        std::pow(10.0, power))));
  };
  const auto rows = examination.spread();
  double width = (quantity.high - quantity.low) / quantity.steps;
  const double rough = width;
  double power = minimize(at(rows.first(1)), quantity.low, quantity.high, quantity.steps, kRoughly);
  const double first = power;
  for (size_t count = 2; count <= rows.size(); ++count) {
    if (examination.late()) return;
    power = minimize(at(rows.first(count)), power - 2 * width, power + 2 * width, 16,
                     count == rows.size() ? kExactly : kRoughly);
    width /= 8;
  }
  add(rows, power);
  // Another mistake may be in the way further on.
  const auto few = rows.first(1);
  if (examination.errors().empty()) return;
  const double before = examination.errors().front();
  if (at(few)(first) > kRoughlyExplained * before || at(few)(power) < kExplained * before) return;
  const double early = minimize(at(few), first - 2 * rough, first + 2 * rough, 16, kExactly);
  if (at(few)(early) < kWithoutOthers * at(few)(power)) add(few, early);
}

void scan(Examination& examination, std::span<const size_t> ops,
          const std::vector<int64_t>& numbers, const std::function<Hypothesis(int64_t)>& hypothesis,
          std::vector<Hypothesis>& out) {
  // In a stretch every try is a replay of all of it; the catalogue has the likeliest numbers.
  if (!examination.alone()) return;
  double least = examination.error() / 2;
  std::optional<Hypothesis> best;

  for (const int64_t number : numbers) {
    if (examination.late()) break;
    Hypothesis made = hypothesis(number);
    const double error = examination.error_of(made.alter, ops, examination.few());
    if (error >= least) continue;
    least = error;
    best = std::move(made);
  }
  if (!best) return;
  best->fitted = 1;
  out.push_back(std::move(*best));
}

// The number that the sum of squares is divided by, as the width of a padded row.
void solve_norm(Examination& examination, std::span<const size_t> ops, const op::Norm& own,
                std::vector<Hypothesis>& out) {
  const bool layer = own.kind == op::Norm::Kind::kLayer;
  const auto mean_over = [layer](double count) {
    return norm_formula(
        [=](const NormGroup& group, double x, double weight, double bias) {
          const double squares = group.count * (layer ? group.variance : group.squares);
          return (layer ? x - group.mean : x) / std::sqrt(squares / count + group.epsilon) *
                     weight +
                 bias;
        },
        fmt::format("x / sqrt(sum of squares / {:g} + epsilon) · weight", count));
  };
  solve_quantity(examination, ops,
                 {.cause = "norm.kind",
                  .text =
                      [count = own.group](double v) {
                        return fmt::format(
                            "the mean of squares is their sum over {:g}, not over {}", v, count);
                      },
                  .fix = "Look at the length that the norm runs over, and at padding.",
                  .alter = mean_over,
                  .rank = 3,
                  .low = 0,
                  .high = 6,
                  .steps = 60,
                  .own = static_cast<double>(own.group)},
                 out);
}

std::vector<int64_t> range(int64_t first, int64_t last) {
  std::vector<int64_t> out;
  for (int64_t i = first; i <= last; ++i) out.push_back(i);
  return out;
}

void solve_rope(Examination& examination, std::span<const size_t> ops, const op::Rope& own,
                std::vector<Hypothesis>& out) {
  const int64_t first = examination.few().front();
  scan(
      examination, ops, range(-std::min<int64_t>(first, 64), 64),
      [](int64_t offset) {
        return Hypothesis{
            "rope.position",
            fmt::format("it rotates by position {:+d}", offset),
            "Look at the position that is handed to the rotation, in the prompt and in later "
            "steps.",
            {{"offset", offset}},
            position_offset(offset)};
      },
      out);
  std::vector<int64_t> dims;
  for (int64_t count = 2; count <= own.head_size; count += 2)
    if (count != own.dims) dims.push_back(count);
  scan(
      examination, ops, dims,
      [&](int64_t count) {
        return Hypothesis{
            "rope.dims",
            fmt::format("it rotates {} numbers of each head, not {}", count, own.dims),
            "Look at how many numbers of a head are rotated.",
            {{"value", count}},
            rope_dims(count)};
      },
      out);
}

void solve_attention(Examination& examination, std::span<const size_t> ops,
                     const op::Attention& own, std::vector<Hypothesis>& out) {
  const int64_t last = examination.patient().wrong.back();
  scan(
      examination, ops, range(1, std::min<int64_t>(last + 1, 512)),
      [&](int64_t size) {
        return Hypothesis{
            "attention.window",
            own.window == 0 ? fmt::format("it has a window of {}, where the model has none", size)
                            : fmt::format("the window is {}, not {}", size, own.window),
            "Look at the window of attention, and whether it counts the position itself.",
            {{"value", size}},
            window(size)};
      },
      out);
}

}  // namespace

double minimize(const std::function<double(double)>& f, double low, double high, int steps,
                int sections) {
  double best = low;
  double least = std::numeric_limits<double>::infinity();
  const double step = (high - low) / steps;
  for (int i = 0; i <= steps; ++i) {
    const double x = low + i * step;
    if (const double value = f(x); value < least) {
      least = value;
      best = x;
    }
  }
  // The golden section around the best of the grid.
  constexpr double kGolden = 0.6180339887498949;
  double a = best - step;
  double b = best + step;
  double x1 = b - kGolden * (b - a);
  double x2 = a + kGolden * (b - a);
  double f1 = f(x1);
  double f2 = f(x2);
  for (int i = 0; i < sections; ++i) {
    if (f1 <= f2) {
      b = x2;
      x2 = x1;
      f2 = f1;
      x1 = b - kGolden * (b - a);
      f1 = f(x1);
    } else {
      a = x1;
      x1 = x2;
      f1 = f2;
      x2 = a + kGolden * (b - a);
      f2 = f(x2);
    }
  }
  const double found = f1 <= f2 ? x1 : x2;
  return std::min(f1, f2) <= least ? found : best;
}

double shortest(const std::function<double(double)>& f, double found) {
  const double allowed = 1.02 * f(found);
  for (int digits = 1; digits <= 8; ++digits) {
    const double rounded = std::stod(fmt::format("{:.{}g}", found, digits));
    if (f(rounded) <= allowed) return rounded;
  }
  return found;
}

std::vector<Hypothesis> solve(Examination& examination, std::span<const size_t> ops) {
  const op::Op& op = examination.base().program().ops[ops.front()];
  std::vector<Hypothesis> out;
  for (const Quantity& quantity : quantities_of(op, ops.size() > 1))
    if (examination.alone() || !quantity.rare) solve_quantity(examination, ops, quantity, out);
  if (const auto* norm = std::get_if<op::Norm>(&op.what); norm != nullptr && examination.alone())
    solve_norm(examination, ops, *norm, out);
  if (const auto* rope = std::get_if<op::Rope>(&op.what)) solve_rope(examination, ops, *rope, out);
  if (const auto* attention = std::get_if<op::Attention>(&op.what))
    solve_attention(examination, ops, *attention, out);
  if (const auto* embed = std::get_if<op::Embed>(&op.what);
      embed != nullptr && embed->index == op::Embed::Index::kPosition)
    scan(
        examination, ops, range(-64, 64),
        [&](int64_t offset) {
          return Hypothesis{
              "embedding.position",
              fmt::format("it looks up position {:+d} in {}", offset, embed->table.name),
              "Look at the index into the table of positions.",
              {{"offset", offset}},
              position_offset(offset)};
        },
        out);
  return out;
}

}  // namespace lockstep::doctor
