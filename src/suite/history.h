// The runs that `check --history` wrote: a folder with a file of results for each.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "suite/results.h"

namespace lockstep::suite {

struct HistoryLimits {
  int64_t runs = 2000;
  int64_t results = kMostJobs;       // of all runs together
  int64_t file_bytes = 32ll << 20;   // a larger file counts as unreadable
  int64_t bytes = int64_t{1} << 30;  // of all files that are read
};

struct Run {
  std::string file;                        // its name within the folder
  std::shared_ptr<const Results> results;  // without prompts, outputs and diagnoses
  std::string reports_folder;              // empty: it does not say where its reports lie
};

struct UnreadableFile {
  std::string file;
  std::string why;
};

struct History {
  std::string folder;
  std::vector<Run> runs;  // the oldest first
  std::vector<UnreadableFile> unreadable;
  int64_t left_out = 0;  // files beyond the limits: the oldest, by their names
};

// Reads a folder again and again: a file that did not change is not read twice.
class HistoryReader {
 public:
  explicit HistoryReader(std::string folder, HistoryLimits limits = {})
      : folder_(std::move(folder)), limits_(limits) {}

  // Every *.json of the folder, the last by name first, until a limit is reached. What cannot be
  // read is told by file; only the folder itself can fail.
  Result<History> read();

 private:
  struct Known {
    int64_t bytes = 0, modified_ns = 0;
    Result<std::shared_ptr<const Results>> results;
    bool used = false;
  };
  Known& take(const std::string& name, int64_t bytes, int64_t modified_ns);

  const std::string folder_;
  const HistoryLimits limits_;
  std::map<std::string, Known> known_;
};

// The file of a result's report, where the run says where it is and no later run has written over
// it. Paths that leave the run's folder of reports, and files that are not there, are none.
std::map<std::pair<const Run*, const CaseResult*>, std::string> report_files(
    const History& history);

}  // namespace lockstep::suite
