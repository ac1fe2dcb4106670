// Reading a folder of runs, and the page's data.
#include "suite/history.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "suite/check.h"
#include "suite/dashboard.h"

namespace lockstep::suite {
namespace {

namespace fs = std::filesystem;

Results run_at(int hour, int64_t count, Status status = Status::kPassed) {
  Results out;
  out.name = "suite";
  out.time = fmt::format("2026-01-{:02}T{:02}:00:00Z", 1 + hour / 24, hour % 24);
  out.suite = "s";
  out.jobs = count;
  for (int64_t i = 0; i < count; ++i) {
    CaseResult r;
    r.id = fmt::format("case/{}/x", i);
    r.index = i;
    r.case_name = "case";
    r.model = "m";
    r.reference = "reference";
    r.suspect = "x";
    r.status = status;
    r.parity = status == Status::kPassed;
    r.verdict = "v";
    r.output = "long";
    r.worst_ratio = 0.123456;
    out.results.push_back(r);
  }
  return out;
}

class HistoryTest : public testing::Test {
 protected:
  void write(const fs::path& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  std::string add(const Results& results) {
    const auto path = add_to_history(results, (root_ / "runs").string());
    EXPECT_TRUE(path.ok());
    return fs::path(*path).filename().string();
  }
  History read(HistoryLimits limits = {}) {
    auto history = HistoryReader((root_ / "runs").string(), limits).read();
    EXPECT_TRUE(history.ok());
    return std::move(*history);
  }

  TemporaryFolder holder_ = *TemporaryFolder::create();
  const fs::path root_ = holder_.path();
};

TEST_F(HistoryTest, RunsByTimeAndWhatCannotBeRead) {
  add(run_at(5, 2));
  add(run_at(3, 1));
  write("runs/zz.json", "{");
  write("runs/foreign.json", R"({"format": "other", "version": 1})");
  write("runs/empty.json", "");
  write("runs/notes.txt", "no run");
  write("runs/.hidden.json", "{");
  fs::create_directories(root_ / "runs/folder.json");
  const History history = read();
  ASSERT_EQ(history.runs.size(), 2u);
  EXPECT_EQ(history.runs[0].results->time, "2026-01-01T03:00:00Z");
  EXPECT_EQ(history.runs[1].results->results.size(), 2u);
  EXPECT_EQ(history.runs[1].results->results[0].output, "");
  std::vector<std::string> files;
  for (const UnreadableFile& file : history.unreadable) {
    files.push_back(file.file);
    EXPECT_NE(file.why, "");
  }
  std::ranges::sort(files);
  EXPECT_EQ(files,
            (std::vector<std::string>{"empty.json", "folder.json", "foreign.json", "zz.json"}));
  EXPECT_EQ(history.left_out, 0);
}

TEST_F(HistoryTest, LimitsLeaveTheOldestOut) {
  for (int hour = 0; hour < 9; ++hour) add(run_at(hour, 7));
  History few = read({.runs = 4});
  ASSERT_EQ(few.runs.size(), 4u);
  EXPECT_EQ(few.runs[0].results->time, "2026-01-01T05:00:00Z");
  EXPECT_EQ(few.left_out, 5);
  few = read({.results = 20});
  EXPECT_EQ(few.runs.size(), 2u);
  EXPECT_EQ(few.left_out, 7);
  // One run is there, however large.
  few = read({.results = 3});
  EXPECT_EQ(few.runs.size(), 1u);
  EXPECT_EQ(few.left_out, 8);
  few = read({.file_bytes = 10});
  EXPECT_EQ(few.runs.size(), 0u);
  EXPECT_EQ(few.unreadable.size(), 9u);
  few = read({.bytes = 10});
  EXPECT_EQ(few.left_out, 9);
}

TEST_F(HistoryTest, RunsOfTheSameSecondStayInOrder) {
  std::vector<std::string> files;
  for (int i = 0; i < 12; ++i) files.push_back(add(run_at(1, i)));
  const History history = read();
  for (size_t i = 0; i < files.size(); ++i) EXPECT_EQ(history.runs[i].file, files[i]);
  EXPECT_EQ(read({.runs = 2}).runs[0].file, files[10]);
}

TEST_F(HistoryTest, ReadsAgainOnlyWhatChanged) {
  const std::string first = add(run_at(1, 1)), second = add(run_at(2, 1));
  HistoryReader reader((root_ / "runs").string());
  const History before = *reader.read();
  fs::remove(root_ / "runs" / first);
  write("runs/" + second, to_json(run_at(2, 3)));
  add(run_at(3, 1));
  const History after = *reader.read();
  ASSERT_EQ(after.runs.size(), 2u);
  EXPECT_EQ(after.runs[0].results->results.size(), 3u);
  EXPECT_EQ(reader.read()->runs[0].results, after.runs[0].results);
  EXPECT_NE(before.runs[1].results, after.runs[0].results);
}

TEST_F(HistoryTest, FoldersThatAreNone) {
  EXPECT_FALSE(HistoryReader((root_ / "none").string()).read().ok());
  write("file", "x");
  const auto file = HistoryReader((root_ / "file").string()).read();
  ASSERT_FALSE(file.ok());
  EXPECT_NE(file.error().message.find("expected one that check --history wrote"),
            std::string::npos);
}

TEST_F(HistoryTest, ReportsThatAreThereAndStayBelowTheirFolder) {
  Results old = run_at(1, 5, Status::kFailed), now = run_at(2, 5, Status::kFailed);
  old.reports = now.reports = "../failed";
  const char* const paths[] = {"a/report.html", "b/report.html", "../secret/report.html",
                               "/etc/report.html", "a/output.txt"};
  for (int i = 0; i < 5; ++i) old.results[static_cast<size_t>(i)].report = paths[i];
  now.results[0].report = "a/report.html";
  now.results[1].report = "missing/report.html";
  add(old);
  add(now);
  for (const char* path : {"failed/a/report.html", "failed/b/report.html", "failed/a/output.txt",
                           "secret/report.html"})
    write(path, "x");
  const History history = read();
  const auto files = report_files(history);
  ASSERT_EQ(files.size(), 2u);
  const auto file_of = [&](size_t run, size_t result) {
    const auto at = files.find({&history.runs[run], &history.runs[run].results->results[result]});
    return at == files.end() ? "" : fs::relative(at->second, root_).string();
  };
  EXPECT_EQ(file_of(1, 0), "failed/a/report.html");
  EXPECT_EQ(file_of(0, 0), "") << "the later run wrote over it";
  EXPECT_EQ(file_of(0, 1), "failed/b/report.html");

  ASSERT_TRUE(write_dashboard(history, (root_ / "deep/public").string()).ok());
  std::ifstream in(root_ / "deep/public/index.html");
  const std::string page{std::istreambuf_iterator<char>(in), {}};
  EXPECT_NE(page.find("\"../../failed/a/report.html\""), std::string::npos);
  EXPECT_EQ(page.find("secret"), std::string::npos);
}

TEST_F(HistoryTest, DataOfThePage) {
  Results hostile = run_at(1, 2, Status::kKnown);
  hostile.name = "</script><script>";
  hostile.results[1].known = std::string(1000, 'x') + "\xff";
  hostile.results[0].worst_ratio.reset();
  add(hostile);
  for (int i = 0; i < 150; ++i) write(fmt::format("runs/bad{}.json", i), "{");
  const History history = read({.runs = 1000});
  const auto link = [](const suite::Run&, const CaseResult&, const std::string&) { return "x"; };
  const auto json = dashboard_json(history, link);
  EXPECT_EQ(json["runs"][0]["results"][0].size(), 11u);
  EXPECT_EQ(json["runs"][0]["results"][1][4], 2);
  EXPECT_EQ(json["runs"][0]["results"][1][7], 0.1235);
  EXPECT_TRUE(json["runs"][0]["results"][0][7].is_null());
  EXPECT_TRUE(json["runs"][0]["results"][0][10].is_null());
  EXPECT_LT(json["texts"][json["runs"][0]["results"][1][6].get<size_t>()].get<std::string>().size(),
            410u);
  EXPECT_EQ(json["unreadable"].size(), 100u);
  EXPECT_EQ(json["left_out"].size(), 1u);
  EXPECT_TRUE(json["home"].is_null());
  EXPECT_EQ(dashboard_json(history, link, "/")["home"], "/");
  const std::string page = dashboard_html(history, link);
  const size_t data = page.find("id=\"data\">");
  EXPECT_EQ(page.find("</script>", data), page.find("</script>\n<script type=\"module\">", data));
}

}  // namespace
}  // namespace lockstep::suite
