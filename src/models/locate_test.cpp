#include "models/locate.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "models/http_headers.h"
#include "models/model_folder.h"

namespace lockstep::models {
namespace {

namespace fs = std::filesystem;

class LocateTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(root_ / "shipped");
    fs::create_directories(root_ / "cache");
    folders_ = {{(root_ / "shipped").string(), true},
                {(root_ / "missing").string(), true},
                {(root_ / "cache").string(), false}};
  }

  std::string put(const std::string& name) {
    std::ofstream(root_ / name) << "seven b";
    return (root_ / name).string();
  }

  const TemporaryFolder temporary_ = TemporaryFolder::create().value();
  const fs::path root_ = temporary_.path();
  std::vector<Folder> folders_;
};

TEST_F(LocateTest, ListsModelFilesOnly) {
  put("shipped/b.gguf");
  put("shipped/a.gguf");
  put("shipped/a.gguf.part");
  put("cache/b.gguf");
  put("cache/c.gguf");
  fs::create_directories(root_ / "cache/d.gguf");
  const auto found = local_models(folders_);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].name, "a");
  EXPECT_EQ(found[1].path, (root_ / "shipped/b.gguf").string());  // before the cache's
  EXPECT_EQ(found[1].size_bytes, 7);
  EXPECT_TRUE(found[1].shipped);
  EXPECT_EQ(found[2].name, "c");
  EXPECT_FALSE(found[2].shipped);
}

TEST_F(LocateTest, FindsPathsAndNames) {
  const std::string llama = put("shipped/haiku-llama-q4_k_m.gguf");
  const std::string qwen = put("cache/qwen2.5-0.5b-instruct-fp16.gguf");
  const std::string odd = put("odd");
  EXPECT_EQ(*find_model(odd, folders_), odd);
  EXPECT_EQ(*find_model("haiku", folders_), llama);
  EXPECT_EQ(*find_model("haiku-llama-q4_k_m.gguf", folders_), llama);
  // Downloaded in another precision than the first choice: that one it is.
  EXPECT_EQ(*find_model("Qwen2.5-0.5B-Instruct", folders_), qwen);
}

TEST_F(LocateTest, ErrorsSayWhatToDo) {
  put("shipped/haiku-llama-q4_k_m.gguf");
  const auto message = [&](const std::string& name) {
    const auto found = find_model(name, folders_);
    return found.ok() ? "found " + *found : found.error().message;
  };
  EXPECT_EQ(message("gpt2"), "model 'gpt2' is not downloaded yet: lockstep models pull gpt2-f16");
  EXPECT_EQ(message("haikku"),
            fmt::format("no model 'haikku': no such file, and no model of that name in {}, {}, {}; "
                        "did you mean haiku?",
                        folders_[0].path, folders_[1].path, folders_[2].path));
  EXPECT_EQ(message("no/such.gguf"), "no/such.gguf: no such file");
  EXPECT_EQ(message(root_.string()), folder_text(root_.string()));
  EXPECT_EQ(message(""), "the name of the model is empty");
}

TEST(CacheFolder, FollowsTheXdgRules) {
  const char* home = std::getenv("HOME");
  const std::string saved_home = home != nullptr ? home : "";
  const char* xdg = std::getenv("XDG_CACHE_HOME");
  const std::string saved_xdg = xdg != nullptr ? xdg : "";
  ::setenv("HOME", "/home/x", 1);
  ::setenv("XDG_CACHE_HOME", "/elsewhere", 1);
  EXPECT_EQ(*cache_folder(), "/elsewhere/lockstep/models");
  ::setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(*cache_folder(), "/home/x/.cache/lockstep/models");
  ::unsetenv("XDG_CACHE_HOME");
  ::unsetenv("HOME");
  EXPECT_FALSE(cache_folder().ok());
  ::setenv("HOME", saved_home.c_str(), 1);
  if (!saved_xdg.empty()) ::setenv("XDG_CACHE_HOME", saved_xdg.c_str(), 1);
}

TEST(HttpHeaders, ContentRange) {
  EXPECT_EQ(parse_content_range("bytes 7-99/100")->first, 7);
  EXPECT_EQ(parse_content_range("bytes 7-99/100")->total, 100);
  EXPECT_EQ(parse_content_range("BYTES */255")->total, 255);
  for (const char* text :
       {"", "bytes", "bytes ", "bytes /", "bytes 7-99/*", "bytes 7-/100", "bytes -99/100",
        "bytes 9-7/100", "bytes 7-100/100", "items 7-99/100", "bytes 7-99/100x", "bytes 7+99/100",
        "bytes 7-99/99999999999999999999", "bytes 7-99/-100"}) {
    SCOPED_TRACE(text);
    EXPECT_FALSE(parse_content_range(text).has_value());
  }
}

TEST(HttpHeaders, ConditionsOfRanges) {
  EXPECT_TRUE(may_condition_range("\"x\""));
  EXPECT_FALSE(may_condition_range("W/\"x\""));
  EXPECT_FALSE(may_condition_range("\"x\"\r\nEvil: 1"));
  EXPECT_FALSE(may_condition_range(""));
}

}  // namespace
}  // namespace lockstep::models
