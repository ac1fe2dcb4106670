// Two traces, or one against its model file, as `compare` and `doctor` take them.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/options.h"
#include "parity/part.h"
#include "report/compared.h"

namespace lockstep::cli {

struct TracePaths {
  std::string reference;      // trace or log
  std::string suspect;        // empty: the reference is held against the model file alone
  std::string model;          // empty: the one that the traces name
  std::string suspect_model;  // empty: the same, or the one that the suspect names
  std::string names;          // name map; empty: none
};

using report::Compared;
using report::Diagnosing;

// `until_interrupted`: an interrupt ends the search for causes, and what was found is shown.
Result<Compared> compare_traces(const TracePaths& paths, parity::CompareOptions options,
                                Diagnosing diagnosing, bool until_interrupted = false);

// The work of one part, for a merge (parity/part.h).
Result<parity::Findings> compare_part_of_traces(const TracePaths& paths,
                                                parity::CompareOptions options, const Part& part);

// --suspect-model
void add_suspect_model(CLI::App& app, std::string& model);

// --device
void add_judging_device(CLI::App& app, std::string& device);

// The page of --html.
struct Page {
  std::string file;                                              // empty: none is wanted
  double limit = static_cast<double>(report::kHtmlLimit) / 1e6;  // megabytes
};
void add_page(CLI::App& app, Page& page);
// What the page shows must be kept while traces are compared.
void keep_rows(const Page& page, parity::CompareOptions& options);
Result<void> write_page(const Page& page, const Compared& compared);

// Nothing is written where there is no path.
Result<void> write_file(const std::string& path, const std::string& text);

}  // namespace lockstep::cli
