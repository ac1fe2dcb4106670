#include "doctor/precision_guesses.h"

#include <algorithm>
#include <cmath>

namespace lockstep::doctor {
namespace {

constexpr double kTableExact = 0.95;  // of a table's numbers
constexpr double kShareLeft = 0.3;    // of the error, in every row

std::vector<const Grid*> all_grids() {
  std::vector<const Grid*> out;
  for (const Grid& grid : common_grids()) out.push_back(&grid);
  for (const Grid& grid : plain_grids())
    if (grid.largest > 0) out.push_back(&grid);
  for (const Grid& grid : scaled_grids()) out.push_back(&grid);
  return out;
}

// What a manifest calls 8-bit whole numbers before products with quantized weights.
std::string operand_name(const Grid& grid, bool quantized) {
  if (!quantized || grid.levels == 0 || grid.scale != detail::Scale::kBlock) return grid.name;
  return grid.block == 256 ? "q8_k" : grid.block == 32 ? "q8_0" : grid.name;
}

std::string cache_name(const Grid& grid) {
  return grid.name == "q8_0" ? "int8:block32" : grid.name;
}

constexpr const char* kTableOfFunction = "the table of a function";

bool is_table_type(const Grid& grid) {
  return grid.name == "f16" || grid.name == "bf16";
}

std::vector<Guess> linear_guesses(const PrecisionSample& sample) {
  std::vector<Guess> out;
  const bool floats = sample.has_float_weights();
  for (const Grid* grid : all_grids()) {
    const std::string name = operand_name(*grid, !floats);
    out.push_back({"precision.operands", name, "inputs of products", {.inputs = grid}});
    // Quantized weights become plain numbers at most.
    if (grid->scale == detail::Scale::kTensor || grid->half_scale) continue;
    if (!floats && (!grid->plain() || grid->largest > 0)) continue;
    out.push_back({"precision.operands",
                   name,
                   "both factors of products",
                   {.inputs = grid, .weights = grid}});
    out.push_back({"precision.operands", name, "weights", {.weights = grid}});
    if (!grid->plain()) continue;
    out.push_back({"precision.operands", name, "weights", {.weights = grid, .vectors = grid}});
    out.push_back({"precision.operands",
                   name,
                   "both factors of products",
                   {.inputs = grid, .weights = grid, .vectors = grid}});
  }
  return out;
}

std::vector<Guess> attention_guesses() {
  std::vector<Guess> out;
  for (const Grid* grid : all_grids()) {
    const bool tf32 = grid->name == "tf32";
    const char* cause = tf32 ? "precision.operands" : "precision.cache";
    const std::string name = cache_name(*grid);
    out.push_back({cause, name, "keys and values", {.keys = grid, .values = grid}});
    if (grid->plain())
      out.push_back({cause,
                     name,
                     tf32 ? "both factors of products" : "all factors of attention",
                     {.inputs = grid, .keys = grid, .values = grid}});
    out.push_back({cause, name, "keys", {.keys = grid}});
    out.push_back({cause, name, "values", {.values = grid}});
    if (is_table_type(*grid))
      out.push_back({"precision.table", grid->name, kTableOfFunction, {.table = grid}});
  }
  return out;
}

std::vector<Guess> other_guesses(const PrecisionSample& sample) {
  std::vector<Guess> out;
  const bool activate = std::holds_alternative<op::Activate>(sample.op().what);
  for (const Grid* grid : all_grids()) {
    if (!grid->plain()) continue;
    if (activate && is_table_type(*grid))
      out.push_back({"precision.table", grid->name, kTableOfFunction, {.table = grid}});
    out.push_back({"precision.operands", grid->name, "inputs", {.inputs = grid}});
    if (std::holds_alternative<op::Norm>(sample.op().what))
      out.push_back({"precision.operands", grid->name, "weights", {.vectors = grid}});
  }
  return out;
}

}  // namespace

std::vector<Guess> guesses_of(const PrecisionSample& sample) {
  if (std::holds_alternative<op::Linear>(sample.op().what)) return linear_guesses(sample);
  if (std::holds_alternative<op::Attention>(sample.op().what)) return attention_guesses();
  return other_guesses(sample);
}

GuessFit hold_to(const Guess& guess, const PrecisionSample& sample,
                 const std::vector<parity::OwnError>& errors) {
  GuessFit out{.guess = &guess};
  const Matrix altered = sample.evaluate(guess.coarse);
  double all = 0;
  out.holds = true;
  for (int64_t r = 0; r < altered.rows; ++r) {
    const parity::OwnError& own = errors[static_cast<size_t>(r)];
    double before = 0;
    double after = 0;
    int64_t numbers = 0;
    int64_t near = 0;
    for (int64_t i = 0; i < altered.columns; ++i) {
      const double recorded = sample.recorded().row(r)[i];
      const double truth = sample.truth().row(r)[i];
      const double x = altered.row(r)[i];
      if (!std::isfinite(truth) || !std::isfinite(recorded)) continue;
      if (!std::isfinite(x)) {
        out.holds = false;
        return out;
      }
      ++numbers;
      before += (recorded - truth) * (recorded - truth);
      after += (recorded - x) * (recorded - x);
      if (std::fabs(recorded - x) <= 4 * own.expected + 0x1p-20 * std::fabs(x)) ++near;
    }
    const auto n = static_cast<double>(std::max<int64_t>(1, numbers));
    const double bound = parity::kRowLimit * own.expected;
    const double ratio = std::sqrt(after / n) / bound;
    out.ratio = std::max(out.ratio, ratio);
    all += ratio * ratio;
    // Where the argument or the result of a table lies between two numbers, a last digit decides.
    const bool table = guess.coarse.table != nullptr;
    const bool explained = ratio <= 1 || (table && static_cast<double>(near) >= kTableExact * n);
    if (explained) ++out.explained;
    if (after > kShareLeft * kShareLeft * before || numbers == 0) out.holds = false;
  }
  out.error = std::sqrt(all / static_cast<double>(altered.rows));
  // A number on the edge between two levels may fall to either side, and a row with it.
  out.holds = out.holds && 5 * out.explained >= 3 * altered.rows;
  return out;
}

}  // namespace lockstep::doctor
