#include "base/temporary_folder.h"

#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class TemporaryFolderTest : public testing::Test {
 protected:
  // Of this test alone: others may run beside it.
  const std::string kind_ = fmt::format("lockstep-test-{}-", ::getpid());
  const fs::path place_ = fs::temp_directory_path();
};

TEST_F(TemporaryFolderTest, GoesWithTheObject) {
  fs::path path;
  {
    auto first = TemporaryFolder::create();
    ASSERT_TRUE(first.ok());
    path = first->path();
    const TemporaryFolder moved = std::move(*first);
    EXPECT_TRUE(fs::is_directory(path));
    std::ofstream(path / "file") << "x";
    EXPECT_EQ(fs::status(path).permissions() & fs::perms::others_all, fs::perms::none);
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(TemporaryFolderTest, FoldersThatNobodyHoldsGoFirst) {
  auto held = TemporaryFolder::create_of_kind(kind_);
  ASSERT_TRUE(held.ok());
  EXPECT_TRUE(held->path().filename().string().starts_with(kind_));
  // As a program leaves it that was killed.
  const fs::path left = place_ / (kind_ + "left");
  fs::create_directories(left / "deep");
  std::ofstream(left / "lock") << "";
  std::ofstream(left / "deep/file") << "x";
  // One that is just being made, one that only looks like it, and a link to what is not ours to
  // remove.
  const fs::path bare = place_ / (kind_ + "bare"), other = place_ / ("not-" + kind_);
  const fs::path link = place_ / (kind_ + "link");
  fs::create_directory(bare);
  fs::create_directory(other);
  std::ofstream(other / "lock") << "";
  fs::create_directory_symlink(other, link);
  {
    const auto next = TemporaryFolder::create_of_kind(kind_);
    ASSERT_TRUE(next.ok());
    EXPECT_NE(next->path(), held->path());
    EXPECT_FALSE(fs::exists(left));
    for (const fs::path& stays : {held->path(), bare, other / "lock", link, next->path()})
      EXPECT_TRUE(fs::exists(stays)) << stays;
  }
  const fs::path path = held->path();
  {
    const TemporaryFolder moved = std::move(*held);
    EXPECT_TRUE(TemporaryFolder::create_of_kind(kind_).ok());
    EXPECT_TRUE(fs::exists(path));
  }
  EXPECT_FALSE(fs::exists(path));
  for (const fs::path& one : {bare, link, other}) fs::remove_all(one);
}

}  // namespace
}  // namespace lockstep
