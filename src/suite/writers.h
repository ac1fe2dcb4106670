// Results for people and for CI systems.
#pragma once

#include <string>

#include "base/terminal.h"
#include "suite/results.h"

namespace lockstep::suite {

// One line a result, and what there is to say at the end.
std::string terminal_line(const CaseResult& result, const Paint& paint);
std::string terminal_summary(const Results& results, const Paint& paint);

// One <testcase> a result: known ones are skipped, those that could not be judged are errors.
std::string junit_text(const Results& results);
// For a pull request's comment or a job's summary.
std::string markdown_text(const Results& results);
// A page that lists the cases. `reports`: where the reports lie, as seen from the page; empty:
// there are none.
std::string html_text(const Results& results, const std::string& reports);
// A path within a link: what is no plain character becomes %XX.
std::string link_to(const std::string& path);
// One line of a workflow command for each result that fails (GitHub).
std::string annotations(const Results& results);

// Annotations and the job's summary, where GITHUB_ACTIONS says that this runs there.
Result<void> tell_github(const Results& results);

}  // namespace lockstep::suite
