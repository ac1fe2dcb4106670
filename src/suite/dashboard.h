// Runs of suites as a page: what is in parity, how that changed, and trends (docs/dashboard.md).
#pragma once

#include <functional>
#include <string>

#include "suite/history.h"

namespace lockstep::suite {

// Where a report is to be found from the page; empty: nowhere.
using ReportLink =
    std::function<std::string(const Run& run, const CaseResult& result, const std::string& file)>;

// The data of the page: docs/dashboard.md. `home`: the page that this one belongs to; empty: none.
nlohmann::ordered_json dashboard_json(const History& history, const ReportLink& link,
                                      const std::string& home = "");

// One page with its data, which needs nothing else.
std::string dashboard_html(const History& history, const ReportLink& link,
                           const std::string& home = "");

// The page as FOLDER/index.html, with links to the reports where they lie.
Result<void> write_dashboard(const History& history, const std::string& folder);

}  // namespace lockstep::suite
