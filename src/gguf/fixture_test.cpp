// Files that the official Python package wrote (tests/fixtures/make_gguf.py), against what it says
// they hold.
#include <nlohmann/json.hpp>

#include "gguf/test_support.h"

namespace lockstep::gguf {
namespace {

using namespace test;
using nlohmann::json;

const std::string kFolder = LOCKSTEP_FIXTURES "/gguf/";

template <class T>
void expect_item(const T& item, const json& expected) {
  if constexpr (std::is_same_v<T, Array>) {
    ASSERT_EQ(static_cast<size_t>(item.size()), expected.size());
    std::visit(
        [&](const auto& items) {
          using Item = typename std::decay_t<decltype(items)>::value_type;
          for (size_t i = 0; i < items.size(); ++i) expect_item<Item>(items[i], expected[i]);
        },
        item.items);
  } else if constexpr (std::is_floating_point_v<T>) {
    // All decimals in the file are exact; comparing bits tells -0.0 from 0.0.
    const auto wanted = static_cast<T>(expected.get<double>());
    EXPECT_EQ(std::memcmp(&item, &wanted, sizeof wanted), 0) << item << " is not " << wanted;
  } else {
    EXPECT_EQ(item, expected.get<T>());
  }
}

std::string from_hex(const std::string& hex) {
  std::string out;
  for (size_t i = 0; i < hex.size(); i += 2)
    out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return out;
}

void expect_file(const File& file, const json& expected) {
  EXPECT_EQ(file.alignment(), expected["alignment"].get<int64_t>());
  for (const json& row : expected["metadata"]) {
    const auto key = row[0].get<std::string>();
    SCOPED_TRACE(key);
    const Value* value = file.find(key);
    ASSERT_NE(value, nullptr);
    EXPECT_EQ(name(value->type()), row[1].get<std::string>());
    if (const auto* array = std::get_if<Array>(&value->value)) {
      EXPECT_EQ(name(array->type()), row[2].get<std::string>());
    }
    std::visit([&](const auto& item) { expect_item(item, row[3]); }, value->value);
  }
  const json& tensors = expected["tensors"];
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = file.tensors()[i];
    SCOPED_TRACE(tensor.name);
    EXPECT_EQ(tensor.name, tensors[i]["name"].get<std::string>());
    EXPECT_EQ(tensor.format->name, tensors[i]["type"].get<std::string>());
    EXPECT_EQ(tensor.dims, tensors[i]["dims"].get<std::vector<int64_t>>());
    EXPECT_EQ(as_text(tensor.data), from_hex(tensors[i]["data"].get<std::string>()));
    EXPECT_EQ(file.tensor(tensor.name), &tensor);
  }
}

TEST(Fixture, FilesOfThePythonPackageReadAsItSays) {
  const json all = json::parse(read_file(kFolder + "expected.json"));
  ASSERT_EQ(all.size(), 4u);
  for (const auto& [file_name, expected] : all.items()) {
    SCOPED_TRACE(file_name);
    const auto file = File::open(kFolder + file_name);
    ASSERT_TRUE(file.ok()) << file.error().message;
    const bool split = file_name.starts_with("split");
    EXPECT_EQ(file->parts().size(), split ? 4u : 1u);
    EXPECT_EQ(file->metadata().size(), expected["metadata"].size() + (split ? 3 : 0));
    EXPECT_EQ(file->version(), file_name == "version2.gguf" ? 2u : 3u);
    expect_file(*file, expected);
  }
}

TEST(Fixture, BigEndianIsSaidToBeSo) {
  const auto file = File::open(kFolder + "big_endian.gguf");
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().message,
            kFolder +
                "big_endian.gguf: byte 4: version: found 50331648, expected 2 or 3: the file "
                "is big-endian, which is not supported");
}

}  // namespace
}  // namespace lockstep::gguf
