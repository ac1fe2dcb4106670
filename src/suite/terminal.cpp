#include "base/text.h"
#include "report/summary.h"
#include "suite/writers.h"

namespace lockstep::suite {
namespace {

std::string status_word(Status status, const Paint& paint) {
  switch (status) {
    case Status::kPassed:
      return paint.green("passed");
    case Status::kKnown:
      return "known ";
    case Status::kFailed:
      return paint.red("FAILED");
    case Status::kError:
      break;
  }
  return paint.red("ERROR ");
}

}  // namespace

std::string terminal_line(const CaseResult& result, const Paint& paint) {
  std::string text =
      fmt::format("{}  {}  ", status_word(result.status, paint), printable(result.id));
  if (result.status == Status::kPassed) {
    text += result.verdict;
    if (result.worst_ratio)
      text += fmt::format(", error over bound {}", report::short_number(*result.worst_ratio));
    if (result.kl_mean) text += fmt::format(", KL {}", report::short_number(*result.kl_mean));
  } else {
    text += printable(result.reason, 500);
  }
  return text + paint.dim(fmt::format("  {:.2f} s", result.seconds)) + "\n";
}

std::string terminal_summary(const Results& results, const Paint& paint) {
  const auto count = [&](Status status) { return results.count(status); };
  const int64_t failed = count(Status::kFailed) + count(Status::kError);
  std::string out = fmt::format("{} result{}: {} passed", results.results.size(),
                                results.results.size() == 1 ? "" : "s", count(Status::kPassed));
  if (count(Status::kKnown) > 0) out += fmt::format(", {} known", count(Status::kKnown));
  if (failed > 0) out += fmt::format(", {}", paint.red(fmt::format("{} failed", failed)));
  if (count(Status::kError) > 0)
    out += fmt::format(" ({} of them could not be judged)", count(Status::kError));
  out += fmt::format(", in {:.1f} s\n", results.seconds);
  if (!results.complete) out += "Not all cases have run.\n";
  for (const KnownUse* use : results.stale())
    out += fmt::format("stale: the known defect of line {} ({}) was not met: {}\n", use->entry.line,
                       printable(use->entry.suspect, 60), printable(use->entry.reason, 200));
  return out;
}

}  // namespace lockstep::suite
