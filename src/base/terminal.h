// What the terminal behind a stream can do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

// Columns of the terminal behind `fd`, 80 where it does not say; `otherwise` where it is none.
int64_t terminal_width(int fd, int64_t otherwise);

// Whether to colour: a terminal that is not dumb, and NO_COLOR (no-color.org) unset or empty.
bool terminal_colours(int fd);

// Escape sequences, or nothing at all where colours are off.
class Paint {
 public:
  explicit Paint(bool on) : on_(on) {}
  std::string bold(std::string_view text) const { return wrap("1", text); }
  std::string dim(std::string_view text) const { return wrap("2", text); }
  std::string green(std::string_view text) const { return wrap("32", text); }
  std::string red(std::string_view text) const { return wrap("31", text); }

 private:
  std::string wrap(std::string_view code, std::string_view text) const;
  bool on_;
};

}  // namespace lockstep
