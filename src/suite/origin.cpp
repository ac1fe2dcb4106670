// When and of what a suite ran.
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "base/output_file.h"
#include "base/process.h"
#include "base/text.h"
#include "suite/check.h"

namespace lockstep::suite {
namespace {

bool is_commit(const std::string& text) {
  if (text.size() < 7 || text.size() > 64) return false;
  return text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

std::string utc_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string current_commit() {
  for (const char* variable : {"GITHUB_SHA", "CI_COMMIT_SHA"})
    if (const char* value = std::getenv(variable); value != nullptr && is_commit(value))
      return value;
  const auto outcome = run_process({"git", "rev-parse", "HEAD"}, ProcessOutput::kCapture);
  if (!outcome.ok() || outcome->status != 0) return "";
  std::string text = outcome->output;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return is_commit(text) ? text : "";
}

Result<std::string> add_to_history(const Results& results, const std::string& folder) {
  std::vector<std::string> made;
  LS_TRY_VOID(make_folders(folder, false, made));
  std::string stamp;  // without the colons, which some file systems refuse
  for (const char c : results.time)
    if (c != ':' && c != '-') stamp += c;
  const std::string text = to_json(results);
  for (int number = 0; number < 10000; ++number) {
    const std::string name =
        number == 0 ? stamp + ".json" : fmt::format("{}-{:04}.json", stamp, number);
    const std::string path = (std::filesystem::path(folder) / name).string();
    std::error_code failed;
    if (std::filesystem::exists(path, failed)) continue;
    LS_TRY(OutputFile file, OutputFile::create(path));
    LS_TRY_VOID(file.write(std::as_bytes(std::span(text))));
    if (file.publish_new().ok()) return path;
    // Another run took the name in the same moment, or nothing can be written: the last try tells.
    if (number > 100) return error("{}: cannot be written", printable(path));
  }
  return error("{}: no name is free for a run at {}", printable(folder), results.time);
}

}  // namespace lockstep::suite
