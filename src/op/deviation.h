// How an engine computes one op otherwise than it is meant, where no other op says it: another
// mask, the row of another token, another position. A forward pass that is right has none.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace lockstep::op {

struct Deviation {
  static constexpr int64_t kZeros = -1;  // in place of a position or a column

  // A position's result is that of another one.
  std::function<int64_t(int64_t position)> result_of;
  // The position whose row of an input is read in place of the position's own, or kZeros. Of
  // Attention's k and v: which row the cache has there. Of Embed: whose token is looked up.
  std::function<int64_t(size_t input, int64_t position)> reads;
  // What Rope and tables of positions take for the position.
  std::function<int64_t(int64_t position)> position;
  int32_t token_offset = 0;  // added to the ids that Embed looks up

  // Attention: the head of k and v that a query head reads; which keys a position sees, in place of
  // mask and window, of those that exist at the end of its step; what the scores of the others are.
  std::function<int64_t(int64_t head)> kv_head;
  std::function<bool(int64_t position, int64_t key)> sees;
  double hidden = -std::numeric_limits<double>::infinity();

  // A row of the result, by another formula: from the rows of the inputs and the position that the
  // op takes it for. Not of Attention.
  using InputRows = std::span<const std::span<const double>>;
  std::function<void(InputRows inputs, int64_t position, std::span<double> result)> row;
  std::string formula;  // the same in words
  // What becomes of a row of an input before the op computes with it, and of a row of the result.
  std::function<void(size_t input, std::span<double> row)> takes;
  std::function<void(std::span<double> row)> gives;
  // Column i of the first input is read from column input_columns[i], or is kZeros; the same of the
  // result. Empty: its own.
  std::vector<int64_t> input_columns;
  std::vector<int64_t> columns;
  // Choose: so many of the best experts are passed over; numbers of experts are off by so much.
  int64_t skipped_experts = 0;
  int64_t expert_offset = 0;
  double factor = 1;  // of the result
  double limit = 0;   // results are cut to [-limit, limit]; 0: they are not
};

using Deviations = std::map<size_t, Deviation>;  // by index into Program::ops

}  // namespace lockstep::op
