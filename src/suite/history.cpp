#include "suite/history.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include <sys/stat.h>

#include "base/no_throw.h"
#include "base/text.h"

namespace lockstep::suite {
namespace {

namespace fs = std::filesystem;

// "...Z-0001.json" is later than "...Z.json": another run of the same second.
std::string_view order_of(const std::string& name) {
  return std::string_view(name).substr(0, name.rfind('.'));
}

Result<std::vector<std::string>> names_of_runs(const std::string& folder) {
  std::error_code failed;
  if (!fs::is_directory(folder, failed))
    return error("{}: found no folder, expected one that check --history wrote", printable(folder));
  std::vector<std::string> names;
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed))
    if (at->path().extension() == ".json" && !at->path().filename().string().starts_with("."))
      names.push_back(at->path().filename().string());
  if (failed) return error("{}: cannot be read: {}", printable(folder), failed.message());
  std::ranges::sort(names, std::greater<>(), order_of);
  return names;
}

// What no page of many runs shows, and most of the memory.
void drop_details(Results& results) {
  for (CaseResult& r : results.results) {
    r.output = {};
    r.prompt = {};
    r.key = {};
    r.diagnoses = nullptr;
    r.first_defect = nullptr;
    r.defects = {};
  }
}

Result<std::shared_ptr<const Results>> read_run(const std::string& path, int64_t bytes,
                                                int64_t most) {
  if (bytes > most)
    return error("{}: found {} bytes, expected at most {}", printable(path), bytes, most);
  return no_throw([&]() -> Result<std::shared_ptr<const Results>> {
    LS_TRY(Results results, read_results(path));
    drop_details(results);
    return std::make_shared<const Results>(std::move(results));
  });
}

}  // namespace

HistoryReader::Known& HistoryReader::take(const std::string& name, int64_t bytes,
                                          int64_t modified_ns) {
  const auto known = known_.find(name);
  if (known != known_.end() && known->second.bytes == bytes &&
      known->second.modified_ns == modified_ns)
    return known->second;
  const std::string path = (fs::path(folder_) / name).string();
  return known_
      .insert_or_assign(name, Known{bytes, modified_ns, read_run(path, bytes, limits_.file_bytes)})
      .first->second;
}

Result<History> HistoryReader::read() {
  LS_TRY(const std::vector<std::string> names, names_of_runs(folder_));
  for (auto& [name, known] : known_) known.used = false;
  History out;
  out.folder = folder_;
  int64_t results = 0, bytes = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string path = (fs::path(folder_) / names[i]).string();
    struct stat about {};
    if (::stat(path.c_str(), &about) != 0 || !S_ISREG(about.st_mode)) {
      out.unreadable.push_back({names[i], "not a file that can be read"});
      continue;
    }
    if (about.st_size <= limits_.file_bytes) bytes += about.st_size;
    const int64_t modified_ns = about.st_mtim.tv_sec * 1'000'000'000 + about.st_mtim.tv_nsec;
    const bool room =
        std::ssize(out.runs) < limits_.runs && results < limits_.results && bytes <= limits_.bytes;
    if (!room) {
      out.left_out = std::ssize(names) - static_cast<int64_t>(i);
      break;
    }
    Known& known = take(names[i], about.st_size, modified_ns);
    known.used = true;
    if (!known.results.ok()) {
      out.unreadable.push_back({names[i], known.results.error().message});
      continue;
    }
    const auto count = std::ssize((*known.results)->results);
    if (!out.runs.empty() && results + count > limits_.results) {
      out.left_out = std::ssize(names) - static_cast<int64_t>(i);
      break;
    }
    results += count;
    Run run{names[i], *known.results, ""};
    if (!run.results->reports.empty())
      run.reports_folder = (fs::path(folder_) / run.results->reports).lexically_normal().string();
    out.runs.push_back(std::move(run));
  }
  std::ranges::sort(out.runs, [](const Run& a, const Run& b) {
    return std::pair<std::string_view, std::string_view>(a.results->time, order_of(a.file)) <
           std::pair<std::string_view, std::string_view>(b.results->time, order_of(b.file));
  });
  std::erase_if(known_, [](const auto& entry) { return !entry.second.used; });
  return out;
}

std::map<std::pair<const Run*, const CaseResult*>, std::string> report_files(
    const History& history) {
  std::map<std::pair<const Run*, const CaseResult*>, std::string> out;
  std::set<std::string> seen;
  for (auto run = history.runs.rbegin(); run != history.runs.rend(); ++run) {
    if (run->reports_folder.empty()) continue;
    for (const CaseResult& r : run->results->results) {
      const fs::path below = fs::path(r.report).lexically_normal();
      if (r.report.empty() || below.is_absolute() || *below.begin() == ".." ||
          below.filename() != "report.html")
        continue;
      const std::string path = (fs::path(run->reports_folder) / below).string();
      std::error_code failed;
      if (seen.insert(path).second && fs::is_regular_file(path, failed)) out[{&*run, &r}] = path;
    }
  }
  return out;
}

}  // namespace lockstep::suite
