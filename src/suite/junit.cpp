#include <algorithm>

#include "base/text.h"
#include "report/summary.h"
#include "suite/writers.h"

namespace lockstep::suite {
namespace {

// Text of several lines, whose ends stay.
std::string markup_lines(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    out += report::markup(text.substr(0, end));
    if (end < text.size()) out += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

}  // namespace

std::string junit_text(const Results& all) {
  using report::markup;
  std::string cases;
  for (const CaseResult& r : all.results) {
    cases += fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"{:.6f}\"",
                         markup(all.name + "." + r.case_name), markup(r.id), r.seconds);
    if (r.status == Status::kPassed) {
      cases += "/>\n";
      continue;
    }
    const char* element = r.status == Status::kKnown    ? "skipped"
                          : r.status == Status::kFailed ? "failure"
                                                        : "error";
    const std::string message =
        r.status == Status::kKnown ? fmt::format("known: {}", r.known) : r.reason;
    cases += fmt::format(
        ">\n      <{}{} message=\"{}\"/>\n", element,
        r.status == Status::kKnown ? std::string() : fmt::format(" type=\"{}\"", markup(r.verdict)),
        markup(message));
    if (!r.output.empty())
      cases += fmt::format("      <system-out>{}</system-out>\n", markup_lines(r.output));
    cases += "    </testcase>\n";
  }
  const std::string counts = fmt::format(
      "name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.6f}\"",
      markup(all.name), all.results.size(), all.count(Status::kFailed), all.count(Status::kError),
      all.count(Status::kKnown), all.seconds);
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<testsuites {0}>\n"
      "  <testsuite {0} timestamp=\"{1}\">\n"
      "{2}"
      "  </testsuite>\n"
      "</testsuites>\n",
      counts, markup(all.time.substr(0, 19)), cases);
}

}  // namespace lockstep::suite
