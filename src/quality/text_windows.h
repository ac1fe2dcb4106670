// A text in windows: what the models read at once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "exec/executor.h"

namespace lockstep::quality {

// The tokens from `first_scored` on are predicted, each from all before it in the window.
struct Window {
  std::vector<exec::TokenId> tokens;
  int64_t first_scored = 0;

  int64_t scored() const { return static_cast<int64_t>(tokens.size()) - first_scored; }
};

struct WindowShape {
  int64_t length = 0;   // tokens of a window, `begin` included
  int64_t context = 0;  // tokens of the text, at least, before each that is scored
  std::optional<exec::TokenId> begin = std::nullopt;  // stands before every window
};

// Windows overlap by their context, so that every token after the first `context` ones is scored
// once. A short text is one window of its own length, with the same share of context. Error where
// there is nothing to score.
Result<std::vector<Window>> cut_text(std::span<const exec::TokenId> text, WindowShape shape);

// The whole text in windows of this length that do not overlap; the last may be shorter.
std::vector<Window> chunk_text(std::span<const exec::TokenId> text, int64_t length,
                               std::optional<exec::TokenId> begin);

// `count` of them, spread over the text.
std::vector<Window> spread(const std::vector<Window>& windows, int64_t count);

}  // namespace lockstep::quality
