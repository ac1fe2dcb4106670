// Probes look at the numbers of a wrong checkpoint without knowing what its op does.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "doctor/solvers.h"

namespace lockstep::doctor {
namespace {

// Beyond so many times the expected rounding two numbers are not the same.
constexpr double kApart = 12;
constexpr size_t kMostRows = 256;

double row_rms(const Matrix& matrix, int64_t row) {
  double squares = 0;
  for (int64_t c = 0; c < matrix.columns; ++c) squares += matrix.row(row)[c] * matrix.row(row)[c];
  return std::sqrt(squares / static_cast<double>(std::max<int64_t>(1, matrix.columns)));
}

// Root mean square difference of two rows.
double apart(const double* a, const double* b, int64_t count) {
  double squares = 0;
  for (int64_t c = 0; c < count; ++c) squares += (a[c] - b[c]) * (a[c] - b[c]);
  return std::sqrt(squares / static_cast<double>(std::max<int64_t>(1, count)));
}

std::string list_text(const std::vector<int64_t>& numbers) {
  std::string out;
  for (size_t i = 0; i < std::min<size_t>(numbers.size(), 6); ++i)
    out += fmt::format("{}{}", i > 0 ? ", " : "", numbers[i]);
  if (numbers.size() > 6) out += fmt::format(" and {} more", numbers.size() - 6);
  return out;
}

// Wrong rows that are the rows of other positions.
void match_rows(Examination& examination, std::vector<Hypothesis>& out) {
  const Case& patient = examination.patient();
  if (patient.wrong.size() > kMostRows || patient.judged.size() > 4 * kMostRows) return;
  const auto truth = examination.truth_at(patient.judged);
  const auto actual = examination.recorded_at(patient.wrong);
  if (!truth || !actual || truth->columns < actual->columns) return;
  const double limit = kApart * examination.expected();
  std::map<int64_t, int64_t> source;
  for (size_t i = 0; i < patient.wrong.size(); ++i) {
    const double* row = actual->row(static_cast<int64_t>(i));
    double least = limit;
    for (size_t j = 0; j < patient.judged.size(); ++j) {
      if (patient.judged[j] == patient.wrong[i]) continue;
      const double distance = apart(row, truth->row(static_cast<int64_t>(j)), actual->columns);
      if (distance >= least) continue;
      least = distance;
      source[patient.wrong[i]] = patient.judged[j];
    }
    if (!source.contains(patient.wrong[i])) return;
  }
  std::vector<int64_t> sources;
  bool swapped = true;
  for (const auto& [row, other] : source) {
    sources.push_back(other);
    swapped = swapped && source.contains(other) && source[other] == row;
  }
  Hypothesis made{swapped ? "row.swapped" : "row.stale",
                  swapped
                      ? fmt::format("rows {} have changed places", list_text(patient.wrong))
                      : fmt::format("row{} {} {} of position{} {}",
                                    patient.wrong.size() > 1 ? "s" : "", list_text(patient.wrong),
                                    patient.wrong.size() > 1 ? "are those" : "is that",
                                    sources.size() > 1 ? "s" : "", list_text(sources)),
                  "Look at the buffer of this result: what wrote it last, and which row a token "
                  "has in it.",
                  {{"position", sources.front()}},
                  result_of([source](int64_t position) {
                    const auto found = source.find(position);
                    return found != source.end() ? found->second : position;
                  })};
  made.of_one_op = true;
  made.rank = 1;
  out.push_back(std::move(made));
}

std::string rows_cause(const op::What& what) {
  if (std::holds_alternative<op::Linear>(what) || std::holds_alternative<op::Embed>(what))
    return "weight.rows";
  if (std::holds_alternative<op::Attention>(what)) return "attention.heads_permuted";
  if (std::holds_alternative<op::Slice>(what) || std::holds_alternative<op::HeadParts>(what))
    return "slices.swapped";
  return kUnknown;
}

// Columns that are other columns, or zeros.
void match_columns(Examination& examination, std::vector<Hypothesis>& out) {
  const Matrix& actual = examination.recorded();
  const Matrix& truth = examination.truth();
  if (actual.rows < 2 || actual.columns != truth.columns) return;
  const double limit = kApart * examination.expected();
  std::vector<int64_t> sorted(static_cast<size_t>(truth.columns));
  std::iota(sorted.begin(), sorted.end(), int64_t{0});
  std::ranges::sort(sorted, {}, [&](int64_t c) { return truth.row(0)[c]; });
  // Squares of the differences; infinite where they are not the same.
  const auto difference = [&](int64_t c, int64_t other) {
    double squares = 0;
    for (int64_t r = 0; r < actual.rows; ++r) {
      const double each = std::fabs(actual.row(r)[c] - truth.row(r)[other]);
      if (!(each <= limit)) return std::numeric_limits<double>::infinity();
      squares += each * each;
    }
    return squares;
  };
  std::vector<int64_t> columns(static_cast<size_t>(actual.columns));
  std::vector<int64_t> wrong;
  bool all_zeros = true;
  for (int64_t c = 0; c < actual.columns; ++c) {
    int64_t& source = columns[static_cast<size_t>(c)];
    source = c;
    if (std::isfinite(difference(c, c))) continue;
    wrong.push_back(c);
    bool zeros = true;
    for (int64_t r = 0; r < actual.rows; ++r) zeros = zeros && actual.row(r)[c] == 0;
    if (zeros) {
      source = op::Deviation::kZeros;
      continue;
    }
    all_zeros = false;
    auto at = std::ranges::lower_bound(sorted, actual.row(0)[c] - limit, {},
                                       [&](int64_t i) { return truth.row(0)[i]; });
    double least = std::numeric_limits<double>::infinity();
    for (; at != sorted.end() && truth.row(0)[*at] <= actual.row(0)[c] + limit; ++at)
      if (const double each = difference(c, *at); each < least) {
        least = each;
        source = *at;
      }
    if (!std::isfinite(least)) return;
  }
  if (wrong.empty()) return;
  const op::Op& op = examination.base().program().ops[examination.stretch().back()];
  const op::Weight* weight = weight_of(op);
  std::string cause = rows_cause(op.what);
  const bool together = wrong.back() - wrong.front() + 1 == std::ssize(wrong);
  if (all_zeros && together && weight != nullptr && std::ssize(wrong) * 8 >= actual.columns)
    cause = "weight.shard";
  const std::string where =
      together ? fmt::format("{} to {}", wrong.front(), wrong.back()) : list_text(wrong);
  Hypothesis made{
      cause,
      all_zeros ? fmt::format("columns {} are zeros", where)
                : fmt::format("columns {} are other columns of the right result: "
                              "column {} is column {}",
                              where, wrong.front(), columns[static_cast<size_t>(wrong.front())]),
      weight != nullptr ? "Look at the rows of this matrix: their order, and whether "
                          "all of them are loaded and multiplied."
                        : "Look at the order in which this result is written.",
      {},
      output_columns([columns](int64_t count) {
        return count == std::ssize(columns) ? columns : std::vector<int64_t>{};
      })};
  if (weight != nullptr) made.parameters.push_back({"tensor", weight->name});
  if (cause == "weight.rows") made.parameters.push_back({"rows", where});
  if (cause == "weight.shard") made.parameters.push_back({"part", fmt::format("rows {}", where)});
  if (cause == "slices.swapped") made.parameters.push_back({"order", std::string("columns")});
  made.of_one_op = true;
  made.rank = 2;
  if (cause == kUnknown) made.by_itself = "columns.permuted";
  out.push_back(std::move(made));
}

double best_factor(const Matrix& actual, const Matrix& truth) {
  double product = 0;
  double squares = 0;
  for (int64_t r = 0; r < actual.rows; ++r)
    for (int64_t c = 0; c < actual.columns; ++c) {
      const double t = truth.row(r)[c];
      const double a = actual.row(r)[c];
      if (!std::isfinite(t) || !std::isfinite(a)) continue;
      product += a * t;
      squares += t * t;
    }
  return squares > 0 ? product / squares : 0;
}

void match_factor(Examination& examination, std::vector<Hypothesis>& out) {
  const double fitted = best_factor(examination.recorded(), examination.truth());
  if (!(std::fabs(fitted) > 0)) return;
  const size_t own[] = {examination.stretch().back()};
  const double factor = shortest(
      [&](double f) { return examination.error_of(times(f), own, examination.few()); }, fitted);
  // No engine multiplies by that; something else comes to nearly the same.
  constexpr double kNearlyNothing = 1e-4;
  if (std::fabs(factor - 1) < kNearlyNothing) return;
  Hypothesis made{"scale.value",
                  fmt::format("the result is multiplied by {:g}", factor),
                  "Look for a factor that this model does not have here.",
                  {{"expected", 1.0}, {"found", factor}},
                  times(factor)};
  made.fitted = 1;
  made.rank = 2;
  out.push_back(std::move(made));
}

// Numbers that stop at a limit which the right ones exceed.
void match_limit(Examination& examination, std::vector<Hypothesis>& out) {
  const Matrix& actual = examination.recorded();
  double largest = 0;
  for (const double value : actual.values)
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
  const auto at_limit = std::ranges::count_if(
      actual.values, [&](double value) { return std::fabs(value) >= largest * (1 - 1e-6); });
  // Where nearly all numbers are the same, no limit has made them so.
  const int64_t below = std::ssize(actual.values) - at_limit;
  if (largest == 0 || at_limit < 2 || 10 * below < std::ssize(actual.values)) return;
  Hypothesis made{"activation.clamp",
                  fmt::format("numbers are cut off at {:g}", largest),
                  "Look for a limit of this result, or for a type that saturates there.",
                  {{"value", largest}},
                  limited(largest)};
  made.fitted = 1;
  out.push_back(std::move(made));
}

// Keys of the cache that are those of other positions, or zeros: every head of the last row that is
// looked at must say so.
void match_keys(Examination& examination, std::vector<Hypothesis>& out) {
  constexpr int64_t kMostProbedKeys = 1024;
  const op::Op& op = examination.base().program().ops[examination.stretch().back()];
  const auto* attention = std::get_if<op::Attention>(&op.what);
  const Matrix& actual = examination.recorded();
  const Matrix& truth = examination.truth();
  if (attention == nullptr || op.outputs[1] != examination.patient().value ||
      actual.columns != truth.columns)
    return;
  const int64_t last = actual.rows - 1;
  const int64_t width = actual.columns / attention->heads;
  const int64_t keys = std::min(width, examination.few().back() + 1);
  const double limit = kApart * examination.expected();
  const auto is_key = [&](int64_t key, int64_t other) {
    for (int64_t head = 0; head < attention->heads; ++head) {
      const double* row = truth.row(last) + head * width;
      const double right = other == op::Deviation::kZeros ? 0 : row[other];
      const double score = actual.row(last)[head * width + key];
      // Keys out of the window have no score.
      if (score != right && !(std::fabs(score - right) <= limit)) return false;
    }
    return true;
  };
  if (keys > kMostProbedKeys) return;
  std::map<int64_t, int64_t> source;
  for (int64_t key = 0; key < keys; ++key) {
    if (is_key(key, key)) continue;
    int64_t other = is_key(key, op::Deviation::kZeros) ? op::Deviation::kZeros : keys;
    for (int64_t each = 0; other == keys && each < keys; ++each)
      if (is_key(key, each)) other = each;
    if (other == keys) return;
    source[key] = other;
  }
  if (source.empty()) return;
  std::vector<int64_t> wrong;
  std::set<int64_t> others;
  std::set<int64_t> offsets;
  for (const auto& [key, other] : source) {
    wrong.push_back(key);
    others.insert(other);
    offsets.insert(other - key);
  }
  const bool zeros = others == std::set<int64_t>{op::Deviation::kZeros};
  const std::string positions = list_text(wrong);
  Hypothesis made{zeros                                     ? "cache.missing"
                  : offsets.size() == 1 && wrong.size() > 1 ? "cache.position"
                                                            : "cache.stale",
                  zeros ? fmt::format("keys of positions {} are zeros in the cache", positions)
                        : fmt::format("in the cache, keys of positions {} are those of other "
                                      "positions: that of {} is the key of {}",
                                      positions, wrong.front(), source.at(wrong.front())),
                  "Look at the place in the cache that a step writes to and reads from.",
                  {{"positions", positions}},
                  [source](Altered& altered, size_t at) {
                    altered.deviation(at).reads = [source](size_t input, int64_t position) {
                      const auto found = source.find(position);
                      return input == 0 || found == source.end() ? position : found->second;
                    };
                    return true;
                  }};
  made.fitted = 1;
  made.rank = 1;
  out.push_back(std::move(made));
}

}  // namespace

std::vector<Hypothesis> match(Examination& examination) {
  std::vector<Hypothesis> out;
  const op::Program& program = examination.base().program();
  if (program.value(examination.patient().value).shape == op::Value::Shape::kScores) {
    match_keys(examination, out);
    return out;
  }
  match_rows(examination, out);
  match_columns(examination, out);
  match_factor(examination, out);
  match_limit(examination, out);
  return out;
}

std::string describe_error(Examination& examination) {
  const Matrix& actual = examination.recorded();
  const Matrix& truth = examination.truth();
  if (actual.columns > truth.columns) return {};
  const double limit = kApart * examination.expected();
  int64_t wrong = 0;
  int64_t counted = 0;
  double product = 0;
  double squares_a = 0;
  double squares_t = 0;
  bool same_difference = actual.rows > 1;
  for (int64_t r = 0; r < actual.rows; ++r)
    for (int64_t c = 0; c < actual.columns; ++c) {
      const double a = actual.row(r)[c];
      const double t = truth.row(r)[c];
      if (!std::isfinite(a) || !std::isfinite(t)) continue;
      ++counted;
      wrong += std::fabs(a - t) > limit ? 1 : 0;
      product += a * t;
      squares_a += a * a;
      squares_t += t * t;
      const double first = actual.row(0)[c] - truth.row(0)[c];
      if (std::fabs((a - t) - first) > 2 * limit) same_difference = false;
    }
  if (counted == 0) return {};
  const double share = static_cast<double>(wrong) / static_cast<double>(counted);
  const double cosine =
      squares_a > 0 && squares_t > 0 ? product / std::sqrt(squares_a * squares_t) : 0;
  std::string out = fmt::format(
      "{:.0f}% of the numbers are wrong, by {:.2g} of the size of a row; the rows are {:.4g} times "
      "as "
      "large as they should be, and their direction agrees to {:.6f}",
      100 * share,
      squares_t > 0 ? examination.error() / std::sqrt(squares_t / static_cast<double>(counted)) : 0,
      squares_t > 0 ? std::sqrt(squares_a / squares_t) : 0, cosine);
  if (same_difference && share > 0.5) out += "; every row is off by the same numbers, as by a bias";
  if (row_rms(actual, 0) == 0) out += "; the rows are zeros";
  return out;
}

}  // namespace lockstep::doctor
