#include "quality/text_windows.h"

#include <algorithm>

namespace lockstep::quality {

Result<std::vector<Window>> cut_text(std::span<const exec::TokenId> text, WindowShape shape) {
  const auto tokens = static_cast<int64_t>(text.size());
  const int64_t begins = shape.begin ? 1 : 0;
  const int64_t room = shape.length - begins;
  LS_CHECK(room >= 2 && shape.context >= 1 && shape.context < room);
  if (tokens < 2)
    return error(
        "the text has {} token{}; at least 2 are needed, one to predict from and one to "
        "predict",
        tokens, tokens == 1 ? "" : "s");
  int64_t length = room, context = shape.context;
  if (tokens < room) {
    length = tokens;
    context = std::max<int64_t>(1, context * tokens / room);
  }
  std::vector<Window> out;
  for (int64_t scored = context; scored < tokens;) {
    const int64_t end = std::min(scored - context + length, tokens);
    const int64_t start = end - length;
    Window window;
    if (shape.begin) window.tokens.push_back(*shape.begin);
    window.tokens.insert(window.tokens.end(), text.begin() + start, text.begin() + end);
    window.first_scored = scored - start + begins;
    out.push_back(std::move(window));
    scored = end;
  }
  return out;
}

std::vector<Window> chunk_text(std::span<const exec::TokenId> text, int64_t length,
                               std::optional<exec::TokenId> begin) {
  const int64_t room = length - (begin ? 1 : 0);
  LS_CHECK(room >= 1);
  std::vector<Window> out;
  for (size_t at = 0; at < text.size();) {
    const size_t count = std::min(text.size() - at, static_cast<size_t>(room));
    Window window;
    if (begin) window.tokens.push_back(*begin);
    const auto part = text.subspan(at, count);
    window.tokens.insert(window.tokens.end(), part.begin(), part.end());
    out.push_back(std::move(window));
    at += count;
  }
  return out;
}

std::vector<Window> spread(const std::vector<Window>& windows, int64_t count) {
  const auto all = static_cast<int64_t>(windows.size());
  if (count >= all) return windows;
  std::vector<Window> out;
  for (int64_t i = 0; i < count; ++i)
    out.push_back(windows[static_cast<size_t>((2 * i + 1) * all / (2 * count))]);
  return out;
}

}  // namespace lockstep::quality
