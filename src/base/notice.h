// Lines for people on standard error. Nobody may be there to read them: a closed or full standard
// error costs the notice, never the work. Names from files drive no terminal.
#pragma once

#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace lockstep {

void notice_text(std::string_view text);

template <class... Args>
void notice(fmt::format_string<Args...> format, Args&&... args) {
  notice_text(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace lockstep
