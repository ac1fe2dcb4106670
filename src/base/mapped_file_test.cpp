#include "base/mapped_file.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "base/temporary_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class MappedFileTest : public testing::Test {
 protected:
  void SetUp() override { write(path_, std::string(kBytes, 'x')); }

  static void write(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }
  static int64_t count_of(const MappedFile& file, char c) {
    return std::ranges::count(file.bytes(), static_cast<std::byte>(c));
  }

  static constexpr int64_t kBytes = 5 * 4096 + 7;
  Result<TemporaryFolder> folder_ = TemporaryFolder::create();
  const std::string path_ = (folder_->path() / "file").string();
};

TEST_F(MappedFileTest, WhatIsCutOffReadsAsZerosAndIsTold) {
  const auto file = MappedFile::open(path_), other = MappedFile::open(path_);
  ASSERT_TRUE(file.ok() && other.ok());
  EXPECT_TRUE(file->check_unchanged().ok());
  EXPECT_EQ(count_of(*file, 'x'), kBytes);
  fs::resize_file(path_, 4096 + 1);
  EXPECT_FALSE(file->cut());
  EXPECT_EQ(count_of(*file, 'x'), 4096 + 1);
  EXPECT_EQ(count_of(*file, 0), kBytes - 4096 - 1);
  EXPECT_TRUE(file->cut());
  EXPECT_TRUE(any_map_was_cut());
  EXPECT_FALSE(other->cut());
  EXPECT_EQ(file->check_unchanged().error().message,
            path_ + ": the file got shorter while it was in use");
}

TEST_F(MappedFileTest, AnotherFileInItsPlaceIsTold) {
  const auto file = MappedFile::open(path_);
  ASSERT_TRUE(file.ok());
  write(path_ + "-new", std::string(kBytes, 'y'));
  fs::last_write_time(path_ + "-new", fs::last_write_time(path_));
  fs::rename(path_ + "-new", path_);
  EXPECT_FALSE(file->check_unchanged().ok());
  EXPECT_EQ(count_of(*file, 'x'), kBytes);
}

TEST_F(MappedFileTest, OneThatIsWrittenToOrGrowsIsTold) {
  for (const bool grow : {false, true}) {
    const auto file = MappedFile::open(path_);
    ASSERT_TRUE(file.ok());
    fs::last_write_time(path_, fs::last_write_time(path_) + std::chrono::seconds(grow ? 0 : 1));
    if (grow) fs::resize_file(path_, 2 * kBytes);
    EXPECT_FALSE(file->check_unchanged().ok());
    EXPECT_FALSE(file->cut());
  }
}

TEST_F(MappedFileTest, OneThatIsRemovedIsStillWhole) {
  const auto file = MappedFile::open(path_);
  ASSERT_TRUE(file.ok());
  fs::remove(path_);
  EXPECT_TRUE(file->check_unchanged().ok());
  EXPECT_EQ(count_of(*file, 'x'), kBytes);
}

TEST_F(MappedFileTest, OneThatIsReadDoesNotCareForTheDisk) {
  const auto file = MappedFile::read(path_);
  ASSERT_TRUE(file.ok());
  fs::resize_file(path_, 1);
  file->release_pages();
  EXPECT_EQ(count_of(*file, 'x'), kBytes);
  EXPECT_TRUE(file->check_unchanged().ok());
}

TEST_F(MappedFileTest, EmptyAndMissingFiles) {
  write(path_, "");
  for (const auto take : {MappedFile::open, MappedFile::read}) {
    const auto file = take(path_);
    ASSERT_TRUE(file.ok());
    EXPECT_TRUE(file->bytes().empty());
    EXPECT_FALSE(take(path_ + "-missing").ok());
    EXPECT_FALSE(take(folder_->path().string()).ok());
  }
}

}  // namespace
}  // namespace lockstep
