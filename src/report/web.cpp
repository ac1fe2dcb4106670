#include "report/web.h"

#include "base/check.h"
#include "base/shown_text.h"

namespace lockstep::report {

std::string data_block(const nlohmann::ordered_json& data) {
  std::string out;
  for (const char c : json_text(data)) {
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  }
  return out;
}

std::string filled_page(std::string_view page,
                        std::initializer_list<std::pair<std::string_view, std::string>> parts) {
  std::string out;
  for (const auto& [mark, text] : parts) {
    const size_t at = page.find(mark);
    LS_CHECK(at != std::string_view::npos);
    out += page.substr(0, at);
    out += text;
    page.remove_prefix(at + mark.size());
  }
  return out += page;
}

}  // namespace lockstep::report
