#include "base/notice.h"

#include <cstdio>
#include <string>

#include "base/text.h"

namespace lockstep {

void notice_text(std::string_view text) {
  const std::string shown = printable_lines(text);
  static_cast<void>(std::fwrite(shown.data(), 1, shown.size(), stderr));
}

}  // namespace lockstep
