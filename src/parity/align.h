// What two traces have in common: tokens, positions, checkpoints.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "parity/metrics.h"
#include "trace/trace.h"

namespace lockstep::parity {

struct TokenAgreement {
  bool same_prompt = true;
  bool agree = true;                        // all tokens that both have are equal
  std::optional<int64_t> first_difference;  // index of the first token that differs
  int64_t shared = 0;                       // positions computed from equal tokens on both sides
  bool known = true;                        // both sides say their tokens
  // Different prompts, but one side's tokens are the other's from here on: it counts its positions
  // from another start. Positive: the suspect starts so many tokens later; negative: earlier.
  std::optional<int64_t> offset;
};

TokenAgreement compare_tokens(const trace::Manifest& reference, const trace::Manifest& suspect);

// The numbers of a row that mean something, as doubles: up to `width` of a line, and of attention
// scores only what the position may see.
std::vector<double> row_values(const trace::Trace::Row& row, int64_t width);

// Metrics of one checkpoint at one position; nothing where a side lacks it. Rows of different
// widths (a vocabulary with and without padding) are compared as far as both go.
// `slots`: the parts of the suspect's row in the order of the reference's; empty: as they are.
std::optional<Metrics> compare_rows(const trace::Trace& reference, const trace::Trace& suspect,
                                    const std::string& checkpoint, int64_t position,
                                    std::span<const int64_t> slots = {});

}  // namespace lockstep::parity
