#include "report/json.h"
#include "report/summary.h"
#include "report/web.h"
#include "report/web_page.h"

namespace lockstep::report {

std::string html_report(const parity::Comparison& c, const Subject& subject, int64_t limit) {
  std::string summary = headline(c) + ". ";
  for (const std::string& cause : causes(subject)) summary += cause + " ";
  summary += evidence(c, subject);
  return filled_page(kWebPage, {{"<!-- title -->", markup(headline(c))},
                                {"<!-- summary -->", markup(summary)},
                                {"<!-- data -->", data_block(page_json(c, subject, limit))}});
}

}  // namespace lockstep::report
