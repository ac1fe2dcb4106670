#include "gguf/split.h"

#include "gguf/test_support.h"

namespace lockstep::gguf {
namespace {

using namespace test;

// Three parts; each tensor holds its own letter.
class SplitModel : public testing::Test {
 protected:
  std::string part_path(int part) const {
    return folder_.file(fmt::format("m-{:05}-of-00003.gguf", part + 1));
  }

  void write_part(int part, uint16_t number, uint16_t count, int32_t total,
                  const std::vector<std::string>& names, uint32_t alignment = 32) {
    Model model;
    if (part == 0) model.metadata.push_back({"general.architecture", {std::string("test")}});
    if (alignment != 32) model.metadata.push_back({"general.alignment", {alignment}});
    model.metadata.push_back({"split.no", {number}});
    model.metadata.push_back({"split.count", {count}});
    model.metadata.push_back({"split.tensors.count", {total}});
    for (const std::string& name : names) {
      model.tensors.push_back({name, &quant::info(quant::Format::kF32), {3}});
      model.data.push_back(std::string(12, name[0]));
    }
    write_model(part_path(part), model, random_);
  }

  void write_all() {
    write_part(0, 0, 3, 4, {"a", "b"});
    write_part(1, 1, 3, 4, {"c"}, 64);
    write_part(2, 2, 3, 4, {"d"});
  }

  std::string open_error(const std::string& path) {
    const auto file = File::open(path);
    if (!file.ok()) return file.error().message;
    ADD_FAILURE() << "opened without an error";
    return "";
  }

  TempFolder folder_;
  Random random_{7};
};

TEST_F(SplitModel, TheFirstPartOpensAll) {
  write_all();
  const auto file = File::open(part_path(0));
  ASSERT_TRUE(file.ok()) << file.error().message;
  ASSERT_EQ(file->parts().size(), 3u);
  int64_t size = 0;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(file->parts()[static_cast<size_t>(i)].path, part_path(i));
    size += static_cast<int64_t>(std::filesystem::file_size(part_path(i)));
  }
  EXPECT_EQ(file->size_bytes(), size);
  ASSERT_EQ(file->tensors().size(), 4u);
  for (const std::string name : {"a", "b", "c", "d"}) {
    ASSERT_NE(file->tensor(name), nullptr) << name;
    EXPECT_EQ(as_text(file->tensor(name)->data), std::string(12, name[0]));
  }
  EXPECT_EQ(*file->text("general.architecture"), "test");
}

TEST_F(SplitModel, AnotherPartNamesTheFirst) {
  write_all();
  EXPECT_EQ(open_error(part_path(1)), part_path(1) +
                                          ": this is part 2 of 3 of a split model: open the first "
                                          "one, " +
                                          part_path(0));
}

TEST_F(SplitModel, RenamedFirstPart) {
  write_all();
  std::filesystem::copy(part_path(0), folder_.file("other.gguf"));
  EXPECT_EQ(open_error(folder_.file("other.gguf")),
            folder_.file("other.gguf") +
                ": this is part 1 of 3 of a split model: found a name that does not end in "
                "'-00001-of-00003.gguf', so the other parts cannot be found");
}

TEST_F(SplitModel, MissingAndBrokenParts) {
  write_all();
  const std::string third = read_file(part_path(2));
  std::filesystem::remove(part_path(2));
  EXPECT_EQ(open_error(part_path(0)), part_path(2) + ": cannot open: No such file or directory");
  write_file(part_path(2), third.substr(0, third.size() - 32));
  const std::string message = open_error(part_path(0));
  EXPECT_EQ(message.rfind(part_path(2) + ": byte ", 0), 0u) << message;
  EXPECT_NE(message.find("12 more are missing"), std::string::npos) << message;
}

TEST_F(SplitModel, PartsThatDoNotBelongTogether) {
  write_all();
  write_part(2, 1, 3, 4, {"d"});
  EXPECT_EQ(open_error(part_path(0)),
            part_path(2) + ": found part 2 of 3 (split.no, split.count), expected part 3 of 3");
  write_part(2, 2, 4, 4, {"d"});
  EXPECT_EQ(open_error(part_path(0)),
            part_path(2) + ": found part 3 of 4 (split.no, split.count), expected part 3 of 3");
  write_part(2, 2, 3, 4, {"a"});
  EXPECT_EQ(open_error(part_path(0)),
            part_path(2) + ": found tensor 'a', expected names that no earlier part has");
  write_part(2, 2, 3, 4, {"d", "e"});
  EXPECT_EQ(open_error(part_path(0)), part_path(0) +
                                          ": found 5 tensors in 3 parts, expected 4 "
                                          "(split.tensors.count)");
}

TEST_F(SplitModel, OnePartAndMergedFilesAreWhole) {
  for (const uint16_t count : {uint16_t{0}, uint16_t{1}}) {
    write_part(0, 0, count, 2, {"a", "b"});
    std::filesystem::rename(part_path(0), folder_.file("any.gguf"));
    const auto file = File::open(folder_.file("any.gguf"));
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file->tensors().size(), 2u);
  }
}

TEST_F(SplitModel, MistypedKeys) {
  Raw raw;
  raw.header(0, 1).entry("split.count", {std::string("three")});
  write_file(part_path(0), raw.bytes);
  EXPECT_EQ(open_error(part_path(0)), part_path(0) +
                                          ": metadata 'split.count': found string \"three\", "
                                          "expected an integer below 2^63");
  raw = Raw().header(0, 1).entry("split.count", {int64_t{1} << 40});
  write_file(part_path(0), raw.bytes);
  EXPECT_EQ(open_error(part_path(0)),
            part_path(0) + ": metadata 'split.count': found 1099511627776, expected at most 65535");
  raw = Raw().header(0, 1).entry("split.count", {3});
  write_file(part_path(0), raw.bytes);
  EXPECT_NE(open_error(part_path(0)).find("metadata 'split.no': found no such key"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::gguf
