#include "report/quality_page.h"

#include <filesystem>

#include <fmt/format.h>

#include "quality/web_page.h"
#include "report/summary.h"
#include "report/web.h"

namespace lockstep::report {

std::string quality_page(const quality::Report& report) {
  const std::string title = fmt::format("{} costs a mean KL of {:.3g}",
                                        std::filesystem::path(report.suspect).filename().string(),
                                        report.cost.kl_mean.value);
  const std::string summary =
      fmt::format("{} against {}: perplexity {:.6g} and {:.6g}. The ranking needs the script.",
                  title, report.reference, report.cost.perplexity_suspect.value,
                  report.cost.perplexity_reference.value);
  return filled_page(quality::kWebPage, {{"<!-- title -->", markup(title)},
                                         {"<!-- summary -->", markup(summary)},
                                         {"<!-- data -->", data_block(quality::to_json(report))}});
}

}  // namespace lockstep::report
