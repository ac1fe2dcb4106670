// Every truncation and every changed byte of a small file: never a crash, and what is cut off is
// always an error.
#include "gguf/test_support.h"

namespace lockstep::gguf {
namespace {

using namespace test;

// A file with every metadata type, nested arrays, and tensors whose data ends with the file.
std::string small_file(Random& random, const TempFolder& folder) {
  Model model = random_model(random);
  for (Entry& entry : model.metadata)
    if (auto* array = std::get_if<Array>(&entry.value.value))
      if (array->size() > 9) *array = Array{std::vector<std::string>{"a", "", "ccc"}};
  const auto& f32 = quant::info(quant::Format::kF32);
  model.tensors = {{"a", &quant::info(quant::Format::kQ4_0), {32, 3}}, {"b", &f32, {8, 2}}};
  model.data = {std::string(54, 'a'), std::string(64, 'b')};
  write_model(folder.file("m.gguf"), model, random);
  return read_file(folder.file("m.gguf"));
}

// Uses all there is of a file, so that a sanitizer sees every byte that it leads to.
uint64_t walk(const File& file) {
  uint64_t sum = 0;
  for (const Entry& entry : file.metadata()) sum += serialized(entry.value).size();
  for (const Tensor& tensor : file.tensors())
    for (const std::byte b : tensor.data) sum += static_cast<uint64_t>(b);
  return sum;
}

TEST(Corruption, EveryTruncationIsAnError) {
  const uint64_t seed = fresh_seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  Random random(seed);
  const TempFolder folder;
  const std::string whole = small_file(random, folder);
  ASSERT_TRUE(parse(whole).ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    // A copy of just that size, so that a sanitizer sees any reading past its end.
    const std::vector<char> cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
    const auto file = File::parse(std::as_bytes(std::span(cut)), "cut.gguf");
    ASSERT_FALSE(file.ok()) << size << " of " << whole.size();
    EXPECT_EQ(file.error().message.rfind("cut.gguf: byte ", 0), 0u) << file.error().message;
    EXPECT_NE(file.error().message.find(", expected "), std::string::npos) << file.error().message;
  }
}

TEST(Corruption, NoChangedByteCrashes) {
  const uint64_t seed = fresh_seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  Random random(seed);
  const TempFolder folder;
  const std::string whole = small_file(random, folder);
  const size_t header = whole.size() - 128;  // what follows is tensor data, which may be anything
  int64_t errors = 0;
  for (size_t at = 0; at < header; ++at) {
    for (const char value : {'\0', '\1', '\x7f', '\x80', '\xff', static_cast<char>(~whole[at])}) {
      std::string changed = whole;
      changed[at] = value;
      const auto file = parse(changed);
      if (file.ok())
        walk(*file);
      else
        ++errors;
    }
  }
  EXPECT_GT(errors, 0);
}

TEST(Corruption, NoRandomGarbageCrashes) {
  const uint64_t seed = fresh_seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  Random random(seed);
  const TempFolder folder;
  const std::string whole = small_file(random, folder);
  for (int round = 0; round < 2000; ++round) {
    std::string changed = whole;
    for (int64_t i = 1 + random.below(8); i > 0; --i)
      changed[static_cast<size_t>(random.below(static_cast<int64_t>(changed.size())))] =
          static_cast<char>(random.below(256));
    if (const auto file = parse(changed); file.ok()) walk(*file);
  }
}

}  // namespace
}  // namespace lockstep::gguf
