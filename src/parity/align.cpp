#include "parity/align.h"

#include <algorithm>
#include <array>
#include <span>

namespace lockstep::parity {
namespace {

// Where the one sequence starts within the other: positive in `a`, negative in `b`. A single token
// proves nothing.
std::optional<int64_t> offset_of(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  const auto find = [](const std::vector<int32_t>& all, const std::vector<int32_t>& part) {
    const auto at = std::search(all.begin(), all.end(), part.begin(), part.end());
    return part.size() > 1 && at != all.end() && at != all.begin() ? at - all.begin() : 0;
  };
  if (const int64_t at = find(a, b)) return at;
  if (const int64_t at = find(b, a)) return -at;
  return std::nullopt;
}

}  // namespace

TokenAgreement compare_tokens(const trace::Manifest& reference, const trace::Manifest& suspect) {
  TokenAgreement out;
  const auto& a = reference.tokens;
  const auto& b = suspect.tokens;
  if (a.empty() || b.empty()) {
    // A side that does not say is taken at its positions, with the other's tokens.
    out.known = false;
    out.shared = static_cast<int64_t>(std::max(a.size(), b.size()));
    return out;
  }
  const auto shorter = static_cast<int64_t>(std::min(a.size(), b.size()));
  int64_t same = 0;
  while (same < shorter && a[static_cast<size_t>(same)] == b[static_cast<size_t>(same)]) ++same;
  // 0: the side does not say where its prompt ends.
  const int64_t prompt = std::max(reference.prompt_tokens, suspect.prompt_tokens);
  const bool same_length = reference.prompt_tokens == suspect.prompt_tokens ||
                           reference.prompt_tokens == 0 || suspect.prompt_tokens == 0;
  // One may have been given as its prompt what the other generated: all that counts is that both
  // went through the longer prompt's tokens.
  out.same_prompt =
      same_length ? same >= std::max<int64_t>(1, std::min(prompt, shorter)) : same >= prompt;
  out.agree = same == shorter;
  if (!out.agree || !out.same_prompt) out.first_difference = same;
  if (!out.same_prompt) out.offset = offset_of(a, b);
  out.shared = same;
  return out;
}

std::vector<double> row_values(const trace::Trace::Row& row, int64_t width) {
  const int64_t kept = std::min(width, row.width);
  std::vector<double> out(static_cast<size_t>(row.lines * kept));
  for (int64_t line = 0; line < row.lines; ++line)
    row.read(line, 0, kept, out.data() + line * kept);
  return out;
}

std::optional<Metrics> compare_rows(const trace::Trace& reference, const trace::Trace& suspect,
                                    const std::string& checkpoint, int64_t position,
                                    std::span<const int64_t> slots) {
  const auto a = reference.row(checkpoint, position);
  const auto b = suspect.row(checkpoint, position);
  if (!a || !b || a->lines != b->lines) return std::nullopt;
  int64_t width = std::min(a->width, b->width);
  // Engines pad the positions of attention scores as they like; beyond the token's own is nothing.
  if (a->lines > 1 || checkpoint.ends_with("attn_scores") || checkpoint.ends_with("attn_probs"))
    width = std::min(width, position + 1);
  Metrics metrics;
  if (!slots.empty()) {
    const int64_t part = width / std::ssize(slots);
    std::vector<double> x(static_cast<size_t>(part)), y(x.size());
    for (int64_t slot = 0; slot < std::ssize(slots); ++slot) {
      a->read(0, slot * part, part, x.data());
      b->read(0, slots[static_cast<size_t>(slot)] * part, part, y.data());
      metrics.add(x, y, slot * part);
    }
    return metrics;
  }
  std::array<double, 1024> x;
  std::array<double, 1024> y;
  for (int64_t line = 0; line < a->lines; ++line)
    for (int64_t first = 0; first < width; first += static_cast<int64_t>(x.size())) {
      const auto count = std::min(width - first, static_cast<int64_t>(x.size()));
      a->read(line, first, count, x.data());
      b->read(line, first, count, y.data());
      const auto size = static_cast<size_t>(count);
      metrics.add(std::span(x).first(size), std::span(y).first(size), line * width + first);
    }
  return metrics;
}

}  // namespace lockstep::parity
