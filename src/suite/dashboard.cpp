#include "suite/dashboard.h"

#include <filesystem>
#include <unordered_map>

#include "base/output_file.h"
#include "base/text.h"
#include "report/json.h"
#include "report/web.h"
#include "suite/web_page.h"
#include "suite/writers.h"

namespace lockstep::suite {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using report::number;

constexpr size_t kMostUnreadable = 100;  // that are listed
constexpr size_t kLongestText = 400;     // bytes

std::string cut_text(const std::string& text) {
  if (text.size() <= kLongestText) return text;
  size_t end = kLongestText;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "…";
}

// Texts that results have in common stand in the page once.
class TextTable {
 public:
  size_t operator()(const std::string& text) {
    const auto [at, is_new] = places_.emplace(cut_text(text), texts_.size());
    if (is_new) texts_.push_back(at->first);
    return at->second;
  }
  ordered_json take() { return std::move(texts_); }

 private:
  ordered_json texts_ = ordered_json::array();
  std::unordered_map<std::string, size_t> places_;
};

ordered_json short_or_null(const std::optional<double>& value) {
  if (!value) return nullptr;
  return number(std::strtod(fmt::format("{:.4g}", *value).c_str(), nullptr));
}

ordered_json run_json(const Run& run) {
  const Results& all = *run.results;
  return {
      {"file", cut_text(run.file)},
      {"name", cut_text(all.name)},
      {"time", cut_text(all.time)},
      {"commit", all.commit.empty() ? ordered_json(nullptr) : ordered_json(cut_text(all.commit))},
      {"program", cut_text(all.program)},
      {"part", all.part ? ordered_json{all.part->index, all.part->of} : ordered_json(nullptr)},
      {"complete", all.complete},
      {"seconds", short_or_null(all.seconds)}};
}

std::string sentence(const CaseResult& r) {
  if (r.status == Status::kKnown) return "known: " + r.known;
  return r.reason.empty() && r.status != Status::kPassed ? r.headline : r.reason;
}

}  // namespace

ordered_json dashboard_json(const History& history, const ReportLink& link,
                            const std::string& home) {
  ordered_json out = {{"format", "lockstep-dashboard"},
                      {"version", 1},
                      {"program", "lockstep " LOCKSTEP_VERSION},
                      {"home", home.empty() ? ordered_json(nullptr) : ordered_json(home)}};
  const auto files = report_files(history);
  TextTable text;
  ordered_json runs = ordered_json::array();
  for (const Run& run : history.runs) {
    ordered_json one = run_json(run);
    ordered_json results = ordered_json::array();
    for (const CaseResult& r : run.results->results) {
      const auto file = files.find({&run, &r});
      const std::string to = file == files.end() ? "" : link(run, r, file->second);
      results.push_back({text(r.id), text(r.model), text(r.suspect), text(r.reference),
                         static_cast<int>(r.status), text(r.verdict), text(sentence(r)),
                         short_or_null(r.worst_ratio), short_or_null(r.kl_mean),
                         short_or_null(r.seconds),
                         to.empty() ? ordered_json(nullptr) : ordered_json(to)});
    }
    one["results"] = std::move(results);
    runs.push_back(std::move(one));
  }
  out["texts"] = text.take();
  out["runs"] = std::move(runs);
  ordered_json unreadable = ordered_json::array();
  for (const UnreadableFile& file : history.unreadable) {
    if (unreadable.size() == kMostUnreadable) break;
    unreadable.push_back({{"file", cut_text(file.file)}, {"why", cut_text(file.why)}});
  }
  out["unreadable"] = std::move(unreadable);
  ordered_json left_out = ordered_json::array();
  if (history.left_out > 0)
    left_out.push_back(
        fmt::format("{} older {} not on this page: it shows the newest, by the names of the files.",
                    history.left_out, history.left_out == 1 ? "file is" : "files are"));
  if (history.unreadable.size() > kMostUnreadable)
    left_out.push_back(
        fmt::format("{} more files cannot be read.", history.unreadable.size() - kMostUnreadable));
  out["left_out"] = std::move(left_out);
  return out;
}

std::string dashboard_html(const History& history, const ReportLink& link,
                           const std::string& home) {
  return report::filled_page(
      kWebPage, {{"<!-- data -->", report::data_block(dashboard_json(history, link, home))}});
}

Result<void> write_dashboard(const History& history, const std::string& folder) {
  std::vector<std::string> made;
  LS_TRY_VOID(make_folders(folder, false, made));
  std::error_code failed;
  const fs::path here = fs::canonical(folder, failed);
  if (failed) return error("{}: {}", printable(folder), failed.message());
  const std::string page =
      dashboard_html(history, [&](const Run&, const CaseResult&, const std::string& file) {
        std::error_code lost;
        const fs::path place = fs::canonical(file, lost);
        return lost ? "" : link_to(place.lexically_relative(here).string());
      });
  LS_TRY(OutputFile file, OutputFile::create((fs::path(folder) / "index.html").string()));
  LS_TRY_VOID(file.write(std::as_bytes(std::span(page))));
  return file.publish();
}

}  // namespace lockstep::suite
