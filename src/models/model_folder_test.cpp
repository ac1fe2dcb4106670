#include "models/model_folder.h"

#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "models/locate.h"

namespace lockstep::models {
namespace {

namespace fs = std::filesystem;

class ModelFolder : public testing::Test {
 protected:
  void put(const std::string& name) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << "x";
  }
  std::string told() const { return folder_text(root_.string()); }

  const TemporaryFolder temporary_ = TemporaryFolder::create().value();
  const fs::path root_ = temporary_.path();
};

TEST_F(ModelFolder, WithNothing) {
  const std::string expected =
      root_.string() +
      " is a folder with no GGUF file in it, and no config.json; a GGUF file, or a folder from the "
      "Hugging Face hub, is needed";
  EXPECT_EQ(told(), expected);
  put("notes.txt");
  EXPECT_EQ(told(), expected);
}

TEST_F(ModelFolder, WithOneFileNamesIt) {
  put("a.GGUF");
  EXPECT_EQ(told(),
            fmt::format("{0} is a folder; give the GGUF file in it: {0}/a.GGUF", root_.string()));
}

TEST_F(ModelFolder, WithManyFilesNamesTheFirstFew) {
  for (int i = 0; i < 7; ++i) put(fmt::format("m{}.gguf", i));
  const std::string text = told();
  EXPECT_NE(text.find("7 GGUF files; give one of them: "), text.npos) << text;
  EXPECT_NE(text.find("/m0.gguf, "), text.npos);
  EXPECT_NE(text.find("/m4.gguf and 2 more"), text.npos) << text;
}

TEST_F(ModelFolder, OfASplitModelTheFirstPartIsGiven) {
  for (int i = 1; i <= 3; ++i) put(fmt::format("big-0000{}-of-00003.gguf", i));
  EXPECT_EQ(told(), fmt::format("{0} is a folder; give the GGUF file in it: "
                                "{0}/big-00001-of-00003.gguf",
                                root_.string()));
}

TEST_F(ModelFolder, WithACheckpointOfTheHub) {
  put("model-00001-of-00002.safetensors");
  put("model-00002-of-00002.safetensors");
  const std::string text = told();
  EXPECT_NE(text.find("Hugging Face checkpoint (model-00001-of-00002.safetensors and 1 more)"),
            text.npos)
      << text;
  EXPECT_TRUE(text.ends_with("; its config.json is missing")) << text;
  EXPECT_FALSE(is_hub_folder(root_.string()));
}

TEST_F(ModelFolder, OfTheHubIsAModel) {
  put("config.json");
  put("model.safetensors");
  EXPECT_TRUE(is_hub_folder(root_.string()));
  EXPECT_FALSE(is_hub_folder((root_ / "config.json").string()));
  EXPECT_EQ(find_model(root_.string()).value(), root_.string());
}

TEST_F(ModelFolder, OfTheHubsCache) {
  put("blobs/0a1b");
  put("snapshots/0123/config.json");
  put("snapshots/0123/model.safetensors");
  EXPECT_TRUE(
      told().ends_with(fmt::format("Hugging Face checkpoint (model.safetensors); give the "
                                   "folder in it that has config.json: {}/snapshots/0123",
                                   root_.string())))
      << told();
}

TEST_F(ModelFolder, OfATrace) {
  put("manifest.json");
  put("shard-0.safetensors");
  EXPECT_EQ(told(), root_.string() + " is the folder of a trace; a GGUF file is needed");
}

TEST_F(ModelFolder, IsWhatFindModelSays) {
  const auto found = find_model(root_.string());
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().message, told());
}

}  // namespace
}  // namespace lockstep::models
