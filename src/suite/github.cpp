#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/text.h"
#include "suite/writers.h"

namespace lockstep::suite {
namespace {

// As GitHub's own toolkit does: a message is one line, and a property ends at a comma or colon.
std::string github_escaped(std::string_view text, bool property) {
  std::string out;
  for (const char c : text) {
    const bool special = c == '%' || c == '\r' || c == '\n' || (property && (c == ':' || c == ','));
    out += special ? fmt::format("%{:02X}", static_cast<unsigned char>(c)) : std::string(1, c);
  }
  return out;
}

}  // namespace

std::string annotations(const Results& all) {
  std::string out;
  for (const CaseResult& r : all.results) {
    if (r.status == Status::kPassed) continue;
    const bool known = r.status == Status::kKnown;
    out += fmt::format(
        "::{} title={}::{}\n", known ? "notice" : "error", github_escaped(printable(r.id), true),
        github_escaped(printable(known ? "known: " + r.known : r.reason, 2000), false));
  }
  for (const KnownUse* use : all.stale())
    out += fmt::format("::warning title=stale known defect::{}\n",
                       github_escaped(printable(use->entry.reason, 500), false));
  return out;
}

Result<void> tell_github(const Results& all) {
  const char* there = std::getenv("GITHUB_ACTIONS");
  if (there == nullptr || std::string_view(there) != "true") return {};
  const std::string lines = annotations(all);
  static_cast<void>(std::fwrite(lines.data(), 1, lines.size(), stdout));
  std::fflush(stdout);
  const char* path = std::getenv("GITHUB_STEP_SUMMARY");
  if (path == nullptr || *path == 0) return {};
  std::FILE* file = std::fopen(path, "ae");  // other steps write there too
  if (file == nullptr)
    return error("{}: cannot write the job's summary: {}", printable(path), std::strerror(errno));
  const std::string text = markdown_text(all);
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !written)
    return error("{}: cannot write the job's summary", printable(path));
  return {};
}

}  // namespace lockstep::suite
