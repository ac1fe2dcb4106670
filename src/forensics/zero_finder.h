// How find_zeros works: checkpoint by checkpoint, rows that are zero as a whole (zeros.cpp), and
// columns that are zero in some rows (zero_columns.cpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "forensics/scan.h"
#include "forensics/zero_origins.h"

namespace lockstep::forensics {

inline constexpr int64_t kLeastZeroRun = 4;  // columns; fewer can be zero for many reasons
inline constexpr double kZeroProof = 30;   // bits: what is likelier by 2^30 if nothing was written
inline constexpr double kManyZeros = 0.3;  // share of zeros from which they belong to the values

// Whether the name says that zeros are in order.
bool says_zero(std::string_view checkpoint);

class ZeroFinder {
 public:
  ZeroFinder(const Source& source, const std::vector<RowStats>& stats)
      : source_(source), stats_(stats), spans_(spans_of(source)), origins_(source, stats) {}

  std::vector<Finding> run();

 private:
  // Zeros at one checkpoint, the same columns in some of its rows.
  struct Group {
    Range range;
    std::vector<size_t> rows;
  };

  int64_t rows_of(size_t checkpoint) const {
    return static_cast<int64_t>(spans_[checkpoint].end - spans_[checkpoint].begin);
  }
  bool is_zero(size_t row) const { return stats_[row].zeros == stats_[row].count; }
  int64_t run_of(size_t row) const;

  // How many zeros the checkpoint has where it is not zero in a row.
  void measure_density(size_t checkpoint);
  void add(Kind kind, double score, const std::vector<Range>& ranges, size_t row,
           const std::string& evidence, bool from_before = false);
  // Zeros that come from zeros are told as such; those that are left are returned.
  std::vector<size_t> without_inherited(const std::vector<size_t>& rows,
                                        std::optional<Range> columns);

  void whole_rows(size_t checkpoint);
  // How sure it is that zero embeddings are none of the model's; 0: they may be.
  double judge_embedding(const std::vector<size_t>& rows, std::string& evidence) const;
  // Probabilities of a head add up to 1.
  void probabilities(size_t checkpoint);

  // Rows with the same columns zero, and numbers beside them.
  void parts_of_rows(size_t checkpoint);
  void judge(size_t checkpoint, const Group& group);
  bool is_regular(size_t row, int64_t length) const;
  int digits_of(size_t index) const;
  // The runs of a row that are about as long: a part of every head, say.
  std::vector<Range> ranges_like(size_t index, int64_t length) const;

  const Source& source_;
  const std::vector<RowStats>& stats_;
  const std::vector<Span> spans_;
  const ZeroOrigins origins_;
  double density_ = 0;  // share of zeros among a checkpoint's numbers
  std::vector<Finding> findings_;
};

}  // namespace lockstep::forensics
