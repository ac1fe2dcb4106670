// What came of a suite: one result a job, for programs (JSON) and people.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/part.h"
#include "base/result.h"
#include "suite/suite.h"

namespace lockstep::suite {

enum class Status {
  kPassed,
  kFailed,  // judged, and not in parity; or worse than its baseline
  kKnown,   // the same, by defects that the suite knows
  kError,   // could not be judged: a crash, a hang, a trace that is missing or broken
};
std::string_view name(Status status);

struct CaseResult {
  std::string id;
  std::string key;
  int64_t index = 0;
  std::string case_name;
  std::string model;
  std::string prompt;  // its text, its ids or its file
  std::string reference;
  std::string suspect;
  Status status = Status::kError;
  std::string verdict = "error";
  bool parity = false;
  std::string headline;
  nlohmann::ordered_json first_defect;  // docs/compare-json.md; null: none
  nlohmann::ordered_json diagnoses = nlohmann::ordered_json::array();
  std::vector<std::string> defects;   // checkpoints where the suspect is wrong
  bool reference_wrong = false;       // has a defect itself
  std::optional<double> worst_ratio;  // own error over bound, of the suspect
  std::optional<double> kl_mean;
  std::optional<double> kl_worst;
  int64_t kl_positions = 0;
  std::optional<double> coverage;
  std::optional<double> judged;
  std::string known;   // the reason of the entry that knows it
  std::string reason;  // why it is not passed, a sentence
  std::string report;  // path of its page; empty: none
  std::string output;  // what the suspect's program said, where it failed
  double seconds = 0;
  double engine_seconds = 0;  // of those, in the engines
};

// A known defect, and whether it was met.
struct KnownUse {
  Known entry;
  int64_t matched = 0;   // results that it explains
  int64_t possible = 0;  // results that it is about
};

struct Results {
  std::string name;
  std::string program;
  std::string time;     // UTC, when it began
  std::string commit;   // empty: not known
  std::string suite;    // key of its jobs
  std::string reports;  // where reports lie, as seen from the folder of this file; empty: none
  int64_t jobs = 0;     // of the whole suite
  std::optional<Part> part;
  bool complete = true;  // all jobs of the part have a result
  double seconds = 0;
  std::vector<CaseResult> results;  // by index
  std::vector<KnownUse> known;

  int64_t count(Status status) const;
  // What the exit status tells: all that was to be run was, and is in parity or known.
  bool good() const;
  // Entries of the suite that nothing needs any more, once all jobs have run.
  std::vector<const KnownUse*> stale() const;
};

// docs/check.md
std::string to_json(const Results& results);
Result<Results> parse_results(std::string_view text, const std::string& source);
Result<Results> read_results(const std::string& path);

// Decides what is known, for all results anew.
void apply_known(const std::vector<Known>& known, Results& results);

// Results of parts become those of the whole. Parts that are missing, doubled or of another suite
// are an error. `sources` are for messages. `partial`: parts that are missing or unfinished make a
// result that is not complete.
Result<Results> merge(std::vector<Results> parts, const std::vector<std::string>& sources,
                      bool partial = false);

// What got worse since the baseline fails. Returns notes: results that the baseline does not have,
// and the reverse.
std::vector<std::string> hold_against(const Results& baseline, Results& results);

}  // namespace lockstep::suite
