// Looks through a trace or a log for numbers that no model computed, and says what they are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "forensics/detectors.h"
#include "forensics/row_stats.h"
#include "forensics/source.h"

namespace lockstep::forensics {

// What one detector found in one row.
struct Finding {
  size_t row = 0;  // index into Source::rows
  Match match;
  int64_t numbers = 0;               // how many it is about
  double smallest = 0, largest = 0;  // magnitudes of the finite ones that are not 0
};

// Findings of one kind at one checkpoint, or at several that tell the same story.
struct Cluster {
  Kind kind = Kind::kUnknown;
  std::vector<std::string> checkpoints;  // in order of execution; the evidence is of the first
  std::vector<int64_t> positions;
  std::vector<Range> values;  // places in the rows, joined over all rows
  bool whole_rows = false;    // all numbers of the rows
  bool inherited = false;     // checkpoints before have it already
  int64_t numbers = 0;        // in all rows together
  double smallest = 0, largest = 0;
  double score = 0;
  std::string evidence;
};

// All rows of a checkpoint taken together.
struct CheckpointStats {
  std::string checkpoint;
  int64_t rows = 0;
  RowStats total;  // median: that of the rows' medians
  int64_t garbage = 0;
};

struct Report {
  std::string path, engine, model;
  std::vector<CheckpointStats> checkpoints;
  std::vector<RowStats> rows;     // as Source::rows
  std::vector<int64_t> garbage;   // numbers, by row
  std::vector<Cluster> clusters;  // garbage first, by order of checkpoints
  int64_t numbers = 0;
  int64_t garbage_numbers = 0;
  std::vector<trace::JsonlProblem> problems;
  std::vector<std::string> notes;  // of the source
  bool broken_off = false;

  // Of nothing, and of what is not there, nobody can say that it is clean.
  bool clean() const { return garbage_numbers == 0 && numbers > 0 && !broken_off; }
  double garbage_rate() const {
    return numbers > 0 ? static_cast<double>(garbage_numbers) / static_cast<double>(numbers) : 0;
  }
};

Report scan(const Source& source);

// Makes clusters of findings, which are sorted by row; `stats` are those of all rows.
std::vector<Cluster> gather(const Source& source, const std::vector<RowStats>& stats,
                            const std::vector<Finding>& findings);

// Sorted, without overlaps.
std::vector<Range> joined(std::vector<Range> ranges);

// "0-3, 7, 9-12": at most `most` parts, then how many more.
std::string range_text(const std::vector<int64_t>& sorted, size_t most = 6);
std::string range_text(const std::vector<Range>& ranges, size_t most = 6);

}  // namespace lockstep::forensics
