#include "audit/find_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include <fmt/format.h>

#include "audit/points.h"
#include "audit/rounding.h"
#include "base/parallel.h"

namespace lockstep::audit {
namespace {

constexpr int64_t kKeyLength = 64;  // numbers of a row that it is found by
constexpr int64_t kLookedFor = 128;
// Of rows that were rounded much, so many numbers at least tell one from another.
constexpr int64_t kShortestKey = 16;

// Rows, or columns as if they were rows: numbers `step` apart.
struct Lines {
  int64_t count;
  int64_t length;
  int64_t stride;  // from one line to the next
  int64_t step;    // from one number to the next
  const char* word;

  int64_t index(int64_t line, int64_t i) const { return line * stride + i * step; }
};

class LineFinder {
 public:
  LineFinder(const Values& a, const Values& b, const Lines& lines, double limit)
      : a_(a), b_(b), lines_(lines), limit_(limit) {
    key_length_ = std::min(lines.length, kKeyLength);
    // Neighbours lie in one block of a row. Of columns, each number costs a block anyway.
    first_ = lines.step == 1 ? (lines.length - key_length_) / 2 : 0;
    gap_ = lines.step == 1 ? 1 : std::max<int64_t>(1, lines.length / key_length_);
  }

  // `all`: no other lines are wrong.
  std::optional<std::string> run(const std::vector<int64_t>& wrong, bool all) {
    if (lines_.count < 2 || wrong.empty()) return std::nullopt;
    if (key_length_ < kShortestKey && limit_ > 1e-2) return std::nullopt;
    const std::vector<int64_t> some = spread(wrong);
    const std::vector<float> keys_a = keys(a_);
    std::vector<int64_t> found(some.size());
    parallel_for(static_cast<int64_t>(some.size()), 1, [&](int64_t begin, int64_t end) {
      const Values b = b_;
      for (int64_t i = begin; i < end; ++i) {
        const auto at = static_cast<size_t>(i);
        found[at] = nearest(keys_a, key_of(b, some[at]), some[at]);
      }
    });
    return judged(some, found, all && some.size() == wrong.size());
  }

  // Whether the line of B is another than A's.
  bool differs(int64_t line) const {
    return squared_distance(line, line) > limit_ * limit_ * squares(line);
  }

 private:
  static std::vector<int64_t> spread(const std::vector<int64_t>& lines) {
    const auto count = static_cast<int64_t>(lines.size());
    if (count <= kLookedFor) return lines;
    std::vector<int64_t> some;
    for (int64_t i = 0; i < kLookedFor; ++i)
      some.push_back(lines[static_cast<size_t>(i * count / kLookedFor)]);
    return some;
  }

  std::vector<float> key_of(const Values& values, int64_t line) const {
    std::vector<float> key;
    for (int64_t i = 0; i < key_length_; ++i)
      key.push_back(values.at(lines_.index(line, first_ + i * gap_)));
    return key;
  }

  // Of all lines, one after another. Numbers of one row are read together where lines are columns.
  std::vector<float> keys(const Values& values) const {
    std::vector<float> out(static_cast<size_t>(lines_.count * key_length_));
    const auto fill = [&](const Values& source, int64_t line, int64_t i) {
      out[static_cast<size_t>(line * key_length_ + i)] =
          source.at(lines_.index(line, first_ + i * gap_));
    };
    if (lines_.step == 1) {
      parallel_for(lines_.count, 256, [&](int64_t begin, int64_t end) {
        const Values source = values;
        for (int64_t line = begin; line < end; ++line)
          for (int64_t i = 0; i < key_length_; ++i) fill(source, line, i);
      });
    } else {
      for (int64_t i = 0; i < key_length_; ++i)
        for (int64_t line = 0; line < lines_.count; ++line) fill(values, line, i);
    }
    return out;
  }

  // The line of A whose key is nearest, another than its own; -1 where none is near enough.
  int64_t nearest(const std::vector<float>& keys_a, const std::vector<float>& key,
                  int64_t own) const {
    double best = std::numeric_limits<double>::infinity();
    int64_t at = -1;
    for (int64_t line = 0; line < lines_.count; ++line) {
      if (line == own) continue;
      const float* other = keys_a.data() + line * key_length_;
      double distance = 0;
      for (size_t i = 0; i < key.size() && distance < best; ++i) {
        const double difference = static_cast<double>(key[i]) - other[i];
        distance += difference * difference;
      }
      if (distance < best) {
        best = distance;
        at = line;
      }
    }
    return at;
  }

  double squared_distance(int64_t line_a, int64_t line_b) const {
    double total = 0;
    for (int64_t i = 0; i < lines_.length; ++i) {
      const float x = a_.at(lines_.index(line_a, i)), y = b_.at(lines_.index(line_b, i));
      if (x == y || (std::isnan(x) && std::isnan(y))) continue;
      const double difference = static_cast<double>(x) - y;
      total += difference * difference;
    }
    return total;
  }
  double squares(int64_t line_b) const {
    double total = 0;
    for (int64_t i = 0; i < lines_.length; ++i) {
      const double y = b_.at(lines_.index(line_b, i));
      if (std::isfinite(y)) total += y * y;
    }
    return total;
  }

  std::optional<std::string> judged(const std::vector<int64_t>& some,
                                    const std::vector<int64_t>& found, bool all) const {
    std::vector<std::pair<int64_t, int64_t>> moved;  // in B, in A
    for (size_t i = 0; i < some.size(); ++i) {
      if (found[i] < 0) continue;
      // Not greater, so that what is no number is none.
      if (!(squared_distance(found[i], some[i]) <= limit_ * limit_ * squares(some[i]))) continue;
      moved.emplace_back(some[i], found[i]);
    }
    if (moved.size() * 20 < some.size() * 19 || moved.empty()) return std::nullopt;
    if (all ? !same_lines(moved) : !mostly_once(moved)) return std::nullopt;
    const std::string how_many = all ? fmt::format("{} of {} ", some.size(), lines_.count) : "";
    return fmt::format("{}{}s lie elsewhere: {} {} of B is {} {} of A", how_many, lines_.word,
                       lines_.word, moved[0].first, lines_.word, moved[0].second);
  }

  // Where all wrong lines were looked for: whether A's under these numbers are the same lines,
  // equal ones aside.
  bool same_lines(const std::vector<std::pair<int64_t, int64_t>>& moved) const {
    std::set<int64_t> in_b, in_a;
    for (const auto& [b, a] : moved) {
      in_b.insert(b);
      in_a.insert(a);
    }
    if (in_a == in_b) return true;
    // A line that was found under a number that is right in B must have an equal one that is wrong.
    return std::ranges::all_of(in_b, [&](int64_t line) {
      return std::ranges::any_of(moved, [&](const auto& pair) {
        const double limit = limit_ * limit_ * squares(pair.first);
        return squared_distance(line, pair.first) <= limit;
      });
    });
  }

  static bool mostly_once(const std::vector<std::pair<int64_t, int64_t>>& moved) {
    std::set<int64_t> in_a;
    for (const auto& [b, a] : moved) in_a.insert(a);
    return in_a.size() * 10 >= moved.size() * 9;
  }

  const Values& a_;
  const Values& b_;
  const Lines& lines_;
  double limit_;
  int64_t key_length_ = 0, first_ = 0, gap_ = 1;
};

}  // namespace

std::optional<std::string> find_rows(const Values& a, const Values& b, int64_t width,
                                     const Measured& measured) {
  const Lines rows = {a.count() / width, width, width, 1, "row"};
  LineFinder finder(a, b, rows, limit_of(measured));
  std::vector<int64_t> wrong;
  int64_t last = -1;
  for (size_t piece = 0; piece < measured.bad.size(); ++piece) {
    if (measured.bad[piece] == 0) continue;
    const int64_t begin = static_cast<int64_t>(piece) * kPiece;
    const int64_t end = std::min(begin + kPiece, a.count());
    for (int64_t row = std::max(begin / width, last + 1); row <= (end - 1) / width; ++row) {
      last = row;
      // Of many wrong rows nearly all are other ones; looking at each would take long.
      if (measured.bad_pieces > 4096 || finder.differs(row)) wrong.push_back(row);
    }
  }
  return finder.run(wrong, true);
}

std::optional<std::string> find_columns(const Values& a, const Values& b, int64_t width,
                                        const Measured& measured) {
  // Every number of a column costs a block: some thousand of them, and some columns, say enough.
  constexpr int64_t kMostRows = 2048;
  const int64_t rows = a.count() / width;
  const int64_t apart = std::max<int64_t>(1, rows / kMostRows);
  const Lines columns = {width, std::min(rows, kMostRows), 1, width * apart, "column"};
  LineFinder finder(a, b, columns, limit_of(measured));
  std::vector<int64_t> wrong;
  const int64_t step = std::max<int64_t>(1, width / kLookedFor);
  for (int64_t column = 0; column < width; column += step)
    if (finder.differs(column)) wrong.push_back(column);
  return finder.run(wrong, step == 1);
}

std::optional<std::string> find_numbers(const Values& a, const Values& b,
                                        const Measured& measured) {
  // Sorted numbers of two distributions alike are near each other: only floats are exact enough.
  if (unit_of(a.format()) == 0 || unit_of(b.format()) == 0) return std::nullopt;
  std::vector<float> sorted_a, sorted_b;
  for (int64_t i = 0; i < a.count(); ++i) {
    sorted_a.push_back(a.at(i));
    sorted_b.push_back(b.at(i));
    if (!std::isfinite(sorted_a.back()) || !std::isfinite(sorted_b.back())) return std::nullopt;
  }
  std::ranges::sort(sorted_a);
  std::ranges::sort(sorted_b);
  double errors = 0, squares = 0;
  for (size_t i = 0; i < sorted_a.size(); ++i) {
    const double difference = static_cast<double>(sorted_a[i]) - sorted_b[i];
    errors += difference * difference;
    squares += static_cast<double>(sorted_b[i]) * sorted_b[i];
  }
  const double limit = limit_of(measured);
  if (errors > limit * limit * squares) return std::nullopt;
  return "the same numbers in another order";
}

}  // namespace lockstep::audit
