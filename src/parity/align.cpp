#include "parity/align.h"

#include <algorithm>

namespace lockstep::parity {

TokenAgreement compare_tokens(const trace::Manifest& reference, const trace::Manifest& suspect) {
  TokenAgreement out;
  const auto& a = reference.tokens;
  const auto& b = suspect.tokens;
  const auto shorter = static_cast<int64_t>(std::min(a.size(), b.size()));
  int64_t same = 0;
  while (same < shorter && a[static_cast<size_t>(same)] == b[static_cast<size_t>(same)]) ++same;
  const int64_t prompt = std::max(reference.prompt_tokens, suspect.prompt_tokens);
  out.same_prompt = reference.prompt_tokens == suspect.prompt_tokens && same >= prompt;
  out.agree = same == shorter;
  if (!out.agree || !out.same_prompt) out.first_difference = same;
  out.shared = same;
  out.tokens.assign(a.begin(), a.begin() + same);
  return out;
}

std::vector<double> row_values(const trace::Trace::Row& row, int64_t width) {
  const int64_t kept = std::min(width, row.width);
  std::vector<double> out;
  out.reserve(static_cast<size_t>(row.lines * kept));
  for (int64_t line = 0; line < row.lines; ++line)
    for (int64_t i = 0; i < kept; ++i) out.push_back(row.at(line, i));
  return out;
}

std::optional<Metrics> compare_rows(const trace::Trace& reference, const trace::Trace& suspect,
                                    const std::string& checkpoint, int64_t position) {
  const auto a = reference.row(checkpoint, position);
  const auto b = suspect.row(checkpoint, position);
  if (!a || !b || a->lines != b->lines) return std::nullopt;
  int64_t width = std::min(a->width, b->width);
  // Engines pad the positions of attention scores as they like; beyond the token's own is nothing.
  if (a->lines > 1 || checkpoint.ends_with("attn_scores") || checkpoint.ends_with("attn_probs"))
    width = std::min(width, position + 1);
  const std::vector<double> x = row_values(*a, width);
  const std::vector<double> y = row_values(*b, width);
  Metrics metrics;
  for (size_t i = 0; i < x.size(); ++i) metrics.add(x[i], y[i], static_cast<int64_t>(i));
  return metrics;
}

}  // namespace lockstep::parity
