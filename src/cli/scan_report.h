// How a scan is shown: on a terminal, as JSON, and for numpy.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "base/terminal.h"
#include "forensics/scan.h"

namespace lockstep::cli {

struct Screen {
  Paint paint;
  int64_t width = 80;
};

void print_report(const forensics::Report& report, const Screen& screen);

// A line a file: model, garbage rate, positions, magnitude.
void print_summary(const std::vector<const forensics::Report*>& reports, const Screen& screen);

void print_side_by_side(const forensics::Report& a, const forensics::Report& b,
                        const Screen& screen);

// Every checkpoint and position.
void print_rows(const forensics::Source& source, const forensics::Report& report,
                const Screen& screen);

nlohmann::ordered_json to_json(const forensics::Source& source, const forensics::Report& report,
                               bool rows);

// Arrays with one number for each row: checkpoint (text), position, min, max, mean, std, ...
Result<void> write_numpy(const forensics::Source& source, const forensics::Report& report,
                         const std::string& path);

}  // namespace lockstep::cli
