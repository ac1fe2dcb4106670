#include "report/summary.h"
#include "suite/writers.h"

namespace lockstep::suite {
namespace {

constexpr size_t kMostRows = 100;  // a comment has its limits
constexpr size_t kMostReason = 600;

std::string sign(Status status) {
  switch (status) {
    case Status::kPassed:
      return "✅";
    case Status::kKnown:
      return "☑️";
    case Status::kFailed:
      return "❌";
    case Status::kError:
      break;
  }
  return "💥";
}

std::string cell(const std::optional<double>& value) {
  return value ? report::short_number(*value) : "";
}

std::string shortened(const std::string& text) {
  if (text.size() <= kMostReason) return text;
  size_t end = kMostReason;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "…";
}

void add_rows(std::string& out, const Results& all, bool passed) {
  size_t rows = 0, left = 0;
  for (const CaseResult& r : all.results) {
    if ((r.status == Status::kPassed) != passed) continue;
    if (rows == kMostRows) {
      ++left;
      continue;
    }
    if (rows++ == 0)
      out += "| | case | verdict | own error / bound | KL | |\n|---|---|---|--:|--:|---|\n";
    const std::string why = r.status == Status::kKnown ? "known: " + r.known : r.reason;
    out += fmt::format("| {} | {} | {} | {} | {} | {} |\n", sign(r.status),
                       report::markdown_text(r.id), report::markdown_text(r.verdict),
                       cell(r.worst_ratio), cell(r.kl_mean), report::markdown_text(shortened(why)));
  }
  if (left > 0) out += fmt::format("\n… and {} more\n", left);
}

}  // namespace

std::string markdown_text(const Results& all) {
  const int64_t failed = all.count(Status::kFailed) + all.count(Status::kError);
  std::string out =
      fmt::format("### {} {}: {} of {} in parity", all.good() ? "✅" : "❌",
                  report::markdown_text(all.name), all.count(Status::kPassed), all.results.size());
  if (failed > 0) out += fmt::format(", {} failed", failed);
  if (all.count(Status::kKnown) > 0) out += fmt::format(", {} known", all.count(Status::kKnown));
  out += "\n\n";
  if (!all.complete) out += "Not all cases have run.\n\n";
  add_rows(out, all, false);
  for (const KnownUse* use : all.stale())
    out += fmt::format("\n- stale: the known defect of line {} was not met: {}\n", use->entry.line,
                       report::markdown_text(use->entry.reason));
  if (all.count(Status::kPassed) > 0) {
    out += fmt::format("\n<details><summary>{} passed</summary>\n\n", all.count(Status::kPassed));
    add_rows(out, all, true);
    out += "\n</details>\n";
  }
  return out;
}

}  // namespace lockstep::suite
