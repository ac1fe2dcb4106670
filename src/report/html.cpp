#include "base/shown_text.h"
#include "report/json.h"
#include "report/summary.h"
#include "report/web_page.h"

namespace lockstep::report {
namespace {

// No text within the data can end their block, or begin a comment in it.
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

}  // namespace

std::string html_report(const parity::Comparison& c, const Subject& subject, int64_t limit) {
  std::string summary = headline(c) + ". ";
  for (const std::string& cause : causes(subject)) summary += cause + " ";
  summary += evidence(c, subject);
  const std::pair<std::string_view, std::string> parts[] = {
      {"<!-- title -->", markup(headline(c))},
      {"<!-- summary -->", markup(summary)},
      {"<!-- data -->", data_block(page_json(c, subject, limit))}};
  std::string out;
  std::string_view rest = kWebPage;
  for (const auto& [mark, text] : parts) {
    const size_t at = rest.find(mark);
    LS_CHECK(at != std::string_view::npos);
    out += rest.substr(0, at);
    out += text;
    rest.remove_prefix(at + mark.size());
  }
  return out + std::string(rest);
}

}  // namespace lockstep::report
