#include "tokenizer/charsmap.h"

#include <algorithm>

#include "base/text.h"

namespace lockstep::tokenizer {
namespace {

// A unit has in its bits: what lies below it begins at its place xor offset(); the byte that leads
// to it; whether an entry ends there. The unit that an end leads to holds the entry's value.
constexpr uint32_t offset(uint32_t unit) {
  return (unit >> 10U) << ((unit & (1U << 9U)) >> 6U);
}
constexpr uint32_t label(uint32_t unit) {
  return unit & ((1U << 31U) | 0xffU);
}
constexpr bool ends(uint32_t unit) {
  return ((unit >> 8U) & 1U) != 0;
}
constexpr uint32_t value(uint32_t unit) {
  return unit & ~(1U << 31U);
}

}  // namespace

Result<Charsmap> Charsmap::read(std::string_view bytes, const std::string& source) {
  const auto number = [&](size_t at) {
    uint32_t out = 0;
    for (size_t i = 0; i < 4; ++i)
      out |= static_cast<uint32_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
    return out;
  };
  if (bytes.size() < 4)
    return error("{}: found {} bytes, expected at least the 4 of the trie's length", source,
                 bytes.size());
  const size_t size = number(0);
  if (size % 4 != 0 || size > bytes.size() - 4)
    return error("{}: found a trie of {} bytes, expected a multiple of 4 of at most {}", source,
                 size, bytes.size() - 4);
  Charsmap out;
  out.units_.reserve(size / 4);
  for (size_t at = 4; at < 4 + size; at += 4) out.units_.push_back(number(at));
  out.texts_ = bytes.substr(4 + size);
  if (const size_t bad = find_invalid_utf8(out.texts_); bad != std::string::npos)
    return error("{}: found bytes that are no UTF-8 at {}, expected texts", source, 4 + size + bad);
  constexpr size_t kMostBytes = 1000;  // what a character becomes: SentencePiece's have 33 at most
  if (const size_t longest = out.longest_becomes(); longest > kMostBytes)
    return error("{}: found a text of {} bytes, expected at most {}", source, longest, kMostBytes);
  return out;
}

size_t Charsmap::longest_becomes() const {
  size_t longest = 0;
  for (size_t at = 0; at < texts_.size();) {
    const size_t end = std::min(texts_.find('\0', at), texts_.size());
    longest = std::max(longest, end - at);
    at = end + 1;
  }
  return longest;
}

std::optional<Charsmap::Entry> Charsmap::find(std::string_view text, bool longest) const {
  std::optional<Entry> found;
  if (units_.empty()) return found;
  uint64_t at = offset(units_[0]);
  for (size_t i = 0; i < text.size() && text[i] != 0; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    at ^= byte;
    if (at >= units_.size()) break;
    const uint32_t unit = units_[at];
    if (label(unit) != byte) break;
    at ^= offset(unit);
    if (!ends(unit)) continue;
    if (at >= units_.size()) break;
    const size_t begin = value(units_[at]);
    if (begin > texts_.size()) break;
    const size_t end = std::min(texts_.find('\0', begin), texts_.size());
    found = {i + 1, std::string_view(texts_).substr(begin, end - begin)};
    if (!longest) break;
  }
  return found;
}

}  // namespace lockstep::tokenizer
