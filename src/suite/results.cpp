#include "suite/results.h"

#include <algorithm>

#include "trace/checkpoints.h"

namespace lockstep::suite {
namespace {

bool fits(const std::string& pattern, const std::string& text) {
  return pattern.empty() || trace::glob_matches(pattern, text);
}

bool is_about(const Known& known, const CaseResult& result) {
  return fits(known.suspect, result.suspect) && fits(known.model, result.model) &&
         fits(known.case_name, result.case_name);
}

}  // namespace

std::string_view name(Status status) {
  switch (status) {
    case Status::kPassed:
      return "passed";
    case Status::kFailed:
      return "failed";
    case Status::kKnown:
      return "known";
    case Status::kError:
      break;
  }
  return "error";
}

int64_t Results::count(Status status) const {
  return std::ranges::count(results, status, &CaseResult::status);
}

bool Results::good() const {
  return complete && count(Status::kFailed) == 0 && count(Status::kError) == 0;
}

std::vector<const KnownUse*> Results::stale() const {
  std::vector<const KnownUse*> out;
  const bool whole = complete && !part;
  for (const KnownUse& use : known)
    if (whole && use.matched == 0) out.push_back(&use);
  return out;
}

void apply_known(const std::vector<Known>& known, Results& results) {
  results.known.clear();
  for (const Known& entry : known) results.known.push_back({entry});
  for (CaseResult& result : results.results) {
    // Every defect needs an entry: a new one beside a known one is not hidden by it.
    std::vector<KnownUse*> used;
    std::vector<bool> covered(result.defects.size(), false);
    bool all = false;  // by an entry that names no checkpoint
    for (KnownUse& use : results.known) {
      if (!is_about(use.entry, result)) continue;
      ++use.possible;
      if (result.status != Status::kFailed || result.parity) continue;
      bool matches = use.entry.checkpoint.empty();
      all = all || matches;
      for (size_t i = 0; i < covered.size(); ++i)
        if (fits(use.entry.checkpoint, result.defects[i])) covered[i] = matches = true;
      if (matches) used.push_back(&use);
    }
    const bool each = !covered.empty() && std::ranges::all_of(covered, std::identity());
    if (used.empty() || result.reference_wrong || !(all || each)) continue;
    result.status = Status::kKnown;
    result.known = used.front()->entry.reason;
    for (KnownUse* use : used) ++use->matched;
  }
}

}  // namespace lockstep::suite
