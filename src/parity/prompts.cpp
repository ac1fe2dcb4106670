#include "parity/prompts.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

namespace lockstep::parity {
namespace {

using Tokens = std::span<const int32_t>;

// Tokens that are looked at for a text in common: prompts may be very long.
constexpr size_t kSearched = 4096;

std::vector<int32_t> prompt_of(const trace::Manifest& manifest) {
  const auto& all = manifest.tokens;
  const auto size = static_cast<size_t>(manifest.prompt_tokens);
  return {all.begin(),
          size > 0 && size <= all.size() ? all.begin() + manifest.prompt_tokens : all.end()};
}

struct Named {
  const char* name;
  Tokens prompt;
};

// One side has one token more at the start.
std::optional<PromptDifference> extra_first(const Named& longer, const Named& shorter,
                                            std::optional<int32_t> bos) {
  const Tokens more = longer.prompt;
  if (more.size() != shorter.prompt.size() + 1 ||
      !std::ranges::equal(more.subspan(1), shorter.prompt))
    return std::nullopt;
  const int32_t first = more.front();
  const std::string word =
      bos == first ? fmt::format("the BOS token {}", first) : fmt::format("the token {}", first);
  if (more.size() > 1 && more[1] == first)
    return PromptDifference{"bos_doubled",
                            fmt::format("the {} has {} twice at the start", longer.name, word)};
  if (bos && *bos != first) return std::nullopt;
  return PromptDifference{
      "bos_missing", fmt::format("the {} lacks {} that the {} starts with{}", shorter.name, word,
                                 longer.name, bos ? "" : ", a BOS token by its place")};
}

// One side counts its tokens from another start: the one's are the other's from some token on.
std::optional<PromptDifference> shifted(const Named& whole, const Named& part) {
  if (part.prompt.size() < 2) return std::nullopt;
  // Not std::ranges::search: clang 14 does not compile its result with GCC's library.
  const auto found =
      std::search(whole.prompt.begin(), whole.prompt.end(), part.prompt.begin(), part.prompt.end());
  if (found == whole.prompt.end() || found == whole.prompt.begin()) return std::nullopt;
  return PromptDifference{
      "shift", fmt::format("the {}'s tokens are the {}'s from token {} on", part.name, whole.name,
                           found - whole.prompt.begin())};
}

std::optional<PromptDifference> goes_on(const Named& longer, const Named& shorter) {
  if (longer.prompt.size() <= shorter.prompt.size() ||
      !std::ranges::equal(longer.prompt.first(shorter.prompt.size()), shorter.prompt))
    return std::nullopt;
  return PromptDifference{
      "longer", fmt::format("the {}'s prompt goes on where the {} has only {} tokens", longer.name,
                            shorter.name, shorter.prompt.size())};
}

struct Stretch {
  size_t in_a = 0;
  size_t in_b = 0;
  size_t length = 0;
};

// The longest run of tokens that both have.
Stretch longest_common(Tokens a, Tokens b) {
  Stretch best;
  std::vector<size_t> row(b.size() + 1);  // length of the run that ends at a[i], b[j]
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = b.size(); j-- > 0;) {
      row[j + 1] = a[i] == b[j] ? row[j] + 1 : 0;
      if (row[j + 1] > best.length) best = {i + 1 - row[j + 1], j + 1 - row[j + 1], row[j + 1]};
    }
  return best;
}

std::optional<PromptDifference> other_template(Tokens a, Tokens b) {
  const Tokens x = a.first(std::min(a.size(), kSearched));
  const Tokens y = b.first(std::min(b.size(), kSearched));
  const Stretch same = longest_common(x, y);
  if (same.length < 2 || 2 * same.length < std::min(x.size(), y.size())) return std::nullopt;
  return PromptDifference{
      "template",
      fmt::format("another template: {} tokens in a row are the same, with {} before and {} after "
                  "them in the reference, {} and {} in the suspect",
                  same.length, same.in_a, a.size() - same.in_a - same.length, same.in_b,
                  b.size() - same.in_b - same.length)};
}

}  // namespace

PromptDifference name_difference(const trace::Manifest& reference, const trace::Manifest& suspect,
                                 const TokenKnowledge& known) {
  const std::vector<int32_t> a = prompt_of(reference);
  const std::vector<int32_t> b = prompt_of(suspect);
  const Named x{"reference", a};
  const Named y{"suspect", b};
  for (const auto& [more, less] : {std::pair(x, y), std::pair(y, x)})
    if (const auto found = extra_first(more, less, known.bos)) return *found;
  // With what was generated: a side may count its positions from the generation on.
  const Named whole_x{"reference", reference.tokens};
  const Named whole_y{"suspect", suspect.tokens};
  for (const auto& [whole, part] : {std::pair(whole_x, whole_y), std::pair(whole_y, whole_x)})
    if (auto found = shifted(whole, part)) {
      found->text +=
          ": it counts positions from another start (from the generation, not from the prompt?). "
          "Write absolute positions, with the prompt's tokens first";
      return *found;
    }
  for (const auto& [whole, part] : {std::pair(x, y), std::pair(y, x)})
    if (const auto found = shifted(whole, part)) return *found;
  for (const auto& [longer, shorter] : {std::pair(x, y), std::pair(y, x)})
    if (const auto found = goes_on(longer, shorter)) return *found;
  const auto& p = reference.model;
  const auto& q = suspect.model;
  if (!p.fingerprint.empty() && !q.fingerprint.empty() && p.fingerprint != q.fingerprint)
    return {"model",
            fmt::format("the sides ran different model files ({} and {}), whose tokens may "
                        "mean different words",
                        p.file, q.file)};
  if (known.text && known.text(a) == known.text(b))
    return {"tokenization",
            "the text is the same, its tokens are not: one side cuts it differently"};
  if (const auto found = other_template(a, b)) return *found;
  return {"text", "the texts differ"};
}

}  // namespace lockstep::parity
