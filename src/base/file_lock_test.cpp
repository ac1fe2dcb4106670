#include "base/file_lock.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "base/temporary_folder.h"

namespace lockstep {
namespace {

TEST(FileLock, OneHolderAtATime) {
  const auto folder = TemporaryFolder::create();
  ASSERT_TRUE(folder.ok());
  const std::string path = (folder->path() / "x.lock").string();
  {
    auto first = FileLock::take(path, "the making of x");
    ASSERT_TRUE(first.ok()) << first.error().message;
    const auto second = FileLock::take(path, "the making of x");
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().message, path + ": the making of x is under way already");
    EXPECT_TRUE(FileLock::take(path + "2", "another").ok());

    const FileLock moved =
        std::move(*first);  // what is moved away holds no longer, and frees nothing
    first = error("gone");
    EXPECT_TRUE(std::filesystem::exists(path));
    EXPECT_FALSE(FileLock::take(path, "x").ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder->path()));
  EXPECT_TRUE(FileLock::take(path, "x").ok());
}

TEST(FileLock, TakesWhatAProcessLeftBehindButNoLink) {
  const auto folder = TemporaryFolder::create();
  ASSERT_TRUE(folder.ok());
  const auto path = folder->path() / "x.lock";
  std::ofstream(path) << "left";
  EXPECT_TRUE(FileLock::take(path.string(), "x").ok());
  std::filesystem::create_symlink(folder->path() / "elsewhere", path);
  const auto through_link = FileLock::take(path.string(), "x");
  ASSERT_FALSE(through_link.ok());
  EXPECT_TRUE(
      through_link.error().message.starts_with(path.string() + ": cannot make the lock file: "))
      << through_link.error().message;
  EXPECT_FALSE(FileLock::take((folder->path() / "none" / "x.lock").string(), "x").ok());
}

}  // namespace
}  // namespace lockstep
