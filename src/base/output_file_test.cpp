#include "base/output_file.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/temporary_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string contents(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  return names;
}

Result<void> write_text(OutputFile& file, const std::string& text) {
  return file.write(std::as_bytes(std::span(text)));
}

TEST(OutputFile, TakesItsNameWhenItIsWhole) {
  const auto folder = TemporaryFolder::create();
  ASSERT_TRUE(folder.ok());
  const fs::path target = folder->path() / "out";
  for (const size_t size : {size_t{0}, size_t{1}, size_t{255}, size_t{300'001}}) {
    const std::string text(size, static_cast<char>('a' + size % 7));
    const std::string before = fs::exists(target) ? contents(target) : "";
    {
      auto file = OutputFile::create(target.string());
      ASSERT_TRUE(file.ok());
      ASSERT_TRUE(write_text(*file, text).ok());
      EXPECT_EQ(fs::exists(target) ? contents(target) : "", before);
      ASSERT_TRUE(file->finish().ok());
    }
    EXPECT_EQ(contents(target), text);
    EXPECT_EQ(names_in(folder->path()), std::vector<std::string>{"out"});
  }
}

TEST(OutputFile, LeavesNothingWhenItIsNotFinished) {
  const auto folder = TemporaryFolder::create();
  ASSERT_TRUE(folder.ok());
  {
    auto file = OutputFile::create((folder->path() / "out").string());
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(write_text(*file, std::string(200'000, 'x')).ok());
  }
  EXPECT_EQ(names_in(folder->path()), std::vector<std::string>{});
}

TEST(OutputFile, ReplacesALinkAndNotWhatItPointsTo) {
  const auto folder = TemporaryFolder::create();
  ASSERT_TRUE(folder.ok());
  const fs::path other = folder->path() / "other", target = folder->path() / "out";
  std::ofstream(other) << "kept";
  fs::create_symlink(other, target);
  auto file = OutputFile::create(target.string());
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(write_text(*file, "new").ok());
  ASSERT_TRUE(file->publish().ok());
  EXPECT_FALSE(fs::is_symlink(target));
  EXPECT_EQ(contents(target), "new");
  EXPECT_EQ(contents(other), "kept");
}

// Ends a child that makes two part files and moves one of the names about.
int end_child(const fs::path& folder, int signal) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(signal, SIG_DFL);  // nohup has it ignored, and so do shells in the background
    remove_parts_on_signals();
    const std::string first = folder / "first", second = folder / "second", let = folder / "let";
    for (const std::string& path : {first, second, let}) std::ofstream(path) << "x";
    PartName held(first), moved;
    moved = PartName(second);
    { const PartName gone(let); }
    ::raise(signal);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : -1;
}

TEST(PartName, IsRemovedByASignalThatEndsTheProgram) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const auto folder = TemporaryFolder::create();
    ASSERT_TRUE(folder.ok());
    EXPECT_EQ(end_child(folder->path(), signal), signal);
    EXPECT_EQ(names_in(folder->path()), std::vector<std::string>{"let"});
  }
}

TEST(PartName, MoreThanTheTableHoldsDoNoHarm) {
  std::vector<PartName> names;
  for (int i = 0; i < 100; ++i) names.emplace_back("/nowhere/part");
  names.clear();
  EXPECT_EQ(end_child("/nowhere", SIGTERM), SIGTERM);
}

}  // namespace
}  // namespace lockstep
