// For the tests of this folder: random models, raw bytes, temporary folders.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "base/temporary_folder.h"
#include "gguf/file.h"
#include "gguf/value.h"
#include "gguf/writer.h"

namespace lockstep::gguf::test {

class TempFolder {
 public:
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  size_t entries() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
  }

 private:
  const TemporaryFolder folder_ = TemporaryFolder::create().value();
  const std::filesystem::path path_ = folder_.path();
};

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

inline Result<File> parse(const std::string& bytes) {
  return File::parse(as_bytes(bytes), "test.gguf");
}

// The message of the error that the bytes must give.
inline std::string parse_error(const std::string& bytes) {
  const auto file = parse(bytes);
  if (!file.ok()) return file.error().message;
  ADD_FAILURE() << "parsed without an error";
  return "";
}

// Bytes of a file, put together by hand.
struct Raw {
  std::string bytes;

  template <class T>
  Raw& number(T value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Raw& u32(uint32_t value) { return number(value); }
  Raw& u64(uint64_t value) { return number(value); }
  Raw& text(std::string_view value) {
    append_text(bytes, value);
    return *this;
  }
  Raw& header(uint64_t tensors, uint64_t entries, uint32_t version = 3) {
    bytes += "GGUF";
    return u32(version).u64(tensors).u64(entries);
  }
  Raw& entry(std::string_view key, const Value& value) {
    text(key);
    append_value(bytes, value);
    return *this;
  }
  Raw& tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type,
              uint64_t offset) {
    text(name).u32(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) u64(dim);
    return u32(type).u64(offset);
  }
  Raw& data(size_t count, size_t alignment = 32) {
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment);
    bytes.append(count, 'x');
    return *this;
  }
};

inline std::string random_text(Random& random, int64_t longest) {
  static const std::vector<std::string> kPieces = {"a", "Z", "7", ".", "_", "é", "世", "🌍", " "};
  std::string out;
  for (int64_t i = random.below(longest + 1); i > 0; --i)
    out += kPieces[static_cast<size_t>(random.below(static_cast<int64_t>(kPieces.size())))];
  return out;
}

template <class T>
T random_item(Random& random, int depth);

template <size_t... I>
Array random_array(Random& random, int depth, std::index_sequence<I...>) {
  Array array;
  constexpr int64_t kSizes[] = {0, 1, 2, 7, 255, 257};
  const int64_t count = depth > 1 ? random.below(4) : kSizes[random.below(6)];
  auto index = static_cast<size_t>(random.below(kTypes));
  if (depth >= 4 && index == static_cast<size_t>(Type::kArray)) index = 0;
  const auto fill = [&]<size_t K>(std::integral_constant<size_t, K>) {
    using Items = std::variant_alternative_t<K, decltype(array.items)>;
    Items items;
    for (int64_t i = 0; i < count; ++i)
      items.push_back(random_item<typename Items::value_type>(random, depth));
    array.items.emplace<K>(std::move(items));
  };
  ((I == index ? fill(std::integral_constant<size_t, I>{}) : void()), ...);
  return array;
}

// Any bit pattern for numbers: NaNs, infinities and denormals among them.
template <class T>
T random_item(Random& random, int depth) {
  if constexpr (std::is_same_v<T, std::string>) {
    return random_text(random, 40);
  } else if constexpr (std::is_same_v<T, Array>) {
    return random_array(random, depth + 1, std::make_index_sequence<kTypes>{});
  } else if constexpr (std::is_same_v<T, bool>) {
    return random.below(2) == 1;
  } else {
    const uint64_t bits = random.below(4) == 0 ? 0 : random.next();
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
}

template <size_t... I>
Value random_value(Random& random, Type type, std::index_sequence<I...>) {
  Value value;
  ((I == static_cast<size_t>(type)
        ? void(value.value.emplace<I>(
              random_item<std::variant_alternative_t<I, decltype(value.value)>>(random, 0)))
        : void()),
   ...);
  return value;
}

struct Model {
  std::vector<Entry> metadata;
  std::vector<TensorPlan> tensors;
  std::vector<std::string> data;  // of each tensor
};

// Every metadata type several times, every tensor format once.
inline Model random_model(Random& random) {
  Model model;
  for (uint32_t type = 0; type < kTypes; ++type)
    for (int i = 0; i < 4; ++i)
      model.metadata.push_back(
          {fmt::format("{}.{}.{}", name(static_cast<Type>(type)), i, random_text(random, 9)),
           random_value(random, static_cast<Type>(type), std::make_index_sequence<kTypes>{})});
  for (const quant::FormatInfo& format : quant::all_formats()) {
    std::vector<int64_t> dims = {format.block_values * (1 + random.below(3))};
    for (int64_t d = random.below(4); d > 0; --d) dims.push_back(1 + random.below(7));
    int64_t values = 1;
    for (const int64_t dim : dims) values *= dim;
    std::string data(static_cast<size_t>(quant::size_bytes(format, values)), '\0');
    for (char& c : data) c = static_cast<char>(random.below(256));
    model.tensors.push_back(
        {fmt::format("{}.{}", format.name, random_text(random, 9)), &format, std::move(dims)});
    model.data.push_back(std::move(data));
  }
  return model;
}

// Writes it in pieces of random sizes.
inline void write_model(const std::string& path, const Model& model, Random& random) {
  auto writer = Writer::create(path, model.metadata, model.tensors);
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  for (const std::string& data : model.data) {
    auto rest = as_bytes(data);
    while (!rest.empty()) {
      const auto piece =
          rest.first(static_cast<size_t>(1 + random.below(static_cast<int64_t>(rest.size()))));
      const auto done = writer->write(piece);
      ASSERT_TRUE(done.ok()) << done.error().message;
      rest = rest.subspan(piece.size());
    }
  }
  const auto done = writer->finish();
  ASSERT_TRUE(done.ok()) << done.error().message;
}

// Bit for bit, NaNs included: as they stand in a file.
inline std::string serialized(const Value& value) {
  std::string out;
  append_value(out, value);
  return out;
}

inline std::string as_text(std::span<const std::byte> bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

inline void expect_holds(const File& file, const Model& model) {
  ASSERT_EQ(file.metadata().size(), model.metadata.size());
  for (size_t i = 0; i < model.metadata.size(); ++i) {
    EXPECT_EQ(file.metadata()[i].key, model.metadata[i].key);
    EXPECT_EQ(serialized(file.metadata()[i].value), serialized(model.metadata[i].value))
        << model.metadata[i].key;
    EXPECT_EQ(file.find(model.metadata[i].key), &file.metadata()[i].value);
  }
  ASSERT_EQ(file.tensors().size(), model.tensors.size());
  for (size_t i = 0; i < model.tensors.size(); ++i) {
    const Tensor& tensor = file.tensors()[i];
    EXPECT_EQ(tensor.name, model.tensors[i].name);
    EXPECT_EQ(tensor.format, model.tensors[i].format);
    EXPECT_EQ(tensor.dims, model.tensors[i].dims);
    EXPECT_EQ(as_text(tensor.data), model.data[i]) << tensor.name;
    EXPECT_EQ(tensor.file_offset % file.alignment(), 0);
    EXPECT_EQ(file.tensor(tensor.name), &tensor);
  }
}

inline uint64_t fresh_seed() {
  return std::random_device{}();
}

}  // namespace lockstep::gguf::test
