#include "trace/safetensors.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include <gtest/gtest.h>

#include "base/random.h"
#include "base/temporary_folder.h"
#include "base/test_effort.h"

namespace lockstep::trace {
namespace {

std::string file_of(const std::string& header, const std::string& data = "") {
  const uint64_t size = header.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &size, 8);
  return out + header + data;
}

Result<Safetensors> parse(const std::string& bytes) {
  return Safetensors::parse(std::as_bytes(std::span(bytes)), "x.safetensors");
}

std::string message_of(const std::string& bytes) {
  const auto file = parse(bytes);
  return file.ok() ? "no error" : file.error().message;
}

TEST(Safetensors, NoByteBelongsToTwo) {
  const auto two = [](const char* a, const char* b) {
    return file_of(
        fmt::format(R"({{"a":{{"dtype":"U8","shape":[{}}},"b":{{"dtype":"U8","shape":[{}}}}})", a,
                    b),
        "12345678");
  };
  EXPECT_EQ(message_of(two(R"(4],"data_offsets":[0,4])", R"(4],"data_offsets":[4,8])")),
            "no error");
  EXPECT_EQ(message_of(two(R"(4],"data_offsets":[0,4])", R"(0],"data_offsets":[2,2])")),
            "no error");
  EXPECT_EQ(message_of(two(R"(5],"data_offsets":[0,5])", R"(4],"data_offsets":[4,8])")),
            "x.safetensors: tensors 'a' and 'b' overlap");
  EXPECT_EQ(message_of(two(R"(4],"data_offsets":[1,5])", R"(4],"data_offsets":[1,5])")),
            "x.safetensors: tensors 'a' and 'b' overlap");
}

TEST(Safetensors, RoundTrip) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  Random random(seed);
  std::vector<StoredPlan> plans;
  std::string data;
  const DType dtypes[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};
  for (int i = 0; i < 40; ++i) {
    StoredPlan plan{fmt::format("{}/blk.{}.\"odd\\name\" é", i, i), dtypes[i % 4], {}};
    const int64_t extents[] = {0, 1, 3, 7, 17};
    for (int64_t d = 0; d < random.below(4); ++d) plan.shape.push_back(extents[random.below(5)]);
    for (int64_t b = 0; b < plan.size_bytes(); ++b) data += static_cast<char>(random.next());
    plans.push_back(std::move(plan));
  }
  const std::string header = safetensors_header(plans);
  EXPECT_EQ(header.size() % 8, 0u);
  const std::string bytes = header + data;
  const auto file = parse(bytes);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->tensors().size(), plans.size());
  size_t offset = header.size();
  for (const StoredPlan& plan : plans) {
    const StoredTensor* tensor = file->find(plan.name);
    ASSERT_NE(tensor, nullptr) << plan.name;
    EXPECT_EQ(tensor->type->name, stored_name(plan.dtype));
    EXPECT_EQ(tensor->shape, plan.shape);
    ASSERT_EQ(static_cast<int64_t>(tensor->data.size()), plan.size_bytes());
    EXPECT_EQ(reinterpret_cast<const char*>(tensor->data.data()), bytes.data() + offset);
    offset += tensor->data.size();
  }
  EXPECT_EQ(offset, bytes.size());
  EXPECT_EQ(file->find("nothing"), nullptr);
}

TEST(Safetensors, MetadataIsNoTensor) {
  const std::string bytes = file_of(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}})",
      "xy");
  const auto file = parse(bytes);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->tensors().size(), 1u);
  EXPECT_EQ(file->find("a")->data.size(), 2u);
}

TEST(Safetensors, RefusesWhatIsWrong) {
  EXPECT_EQ(message_of("1234567"), "x.safetensors: 7 bytes; a safetensors file has at least 8");
  EXPECT_EQ(
      message_of(file_of("{}").substr(0, 9)),
      "x.safetensors: offset 0: the header has 2 bytes by its length, 1 are left in the file");
  EXPECT_EQ(message_of(std::string(8, '\xff') + "{}"),
            "x.safetensors: offset 0: the header has 18446744073709551615 bytes by its length, 2 "
            "are left in the file");
  EXPECT_EQ(message_of(file_of("[]")), "x.safetensors: the header is no JSON object");
  EXPECT_TRUE(message_of(file_of("{\"a\":")).starts_with("x.safetensors: header: no valid JSON"))
      << message_of(file_of("{\"a\":"));
  EXPECT_TRUE(message_of(file_of("{\"a\":" + std::string(1000, '[')))
                  .starts_with("x.safetensors: header: "));

  struct Bad {
    const char* entry;
    const char* message;
  };
  const Bad bad[] = {
      {"7", "expected an object"},
      {R"({"shape":[1],"data_offsets":[0,4]})", "dtype: expected a string"},
      {R"({"dtype":1,"shape":[1],"data_offsets":[0,4]})", "dtype: expected a string"},
      {R"({"dtype":"F33","shape":[1],"data_offsets":[0,4]})", "dtype 'F33' is not known"},
      {R"({"dtype":"F32","data_offsets":[0,4]})", "shape: expected an array"},
      {R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})",
       "shape: expected numbers that are not negative"},
      {R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})",
       "shape: expected numbers that are not negative"},
      {R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]})",
       "shape: the product of its sizes is too large"},
      {R"({"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,4]})",
       "shape: the product of its sizes is too large"},
      {R"({"dtype":"F32","shape":[1]})", "data_offsets: expected two numbers"},
      {R"({"dtype":"F32","shape":[1],"data_offsets":[0]})", "data_offsets: expected two numbers"},
      {R"({"dtype":"F32","shape":[1],"data_offsets":[-1,3]})",
       "data_offsets: expected two numbers"},
      {R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})",
       "data_offsets [4, 0] do not lie in the 4 bytes of data"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})",
       "data_offsets [0, 8] do not lie in the 4 bytes of data"},
      {R"({"dtype":"F32","shape":[1],"data_offsets":[18446744073709551612,18446744073709551615]})",
       "data_offsets [18446744073709551612, 18446744073709551615] do not lie in the 4 bytes of "
       "data"},
      {R"({"dtype":"F16","shape":[1],"data_offsets":[0,4]})",
       "data_offsets hold 4 bytes; dtype and shape need 2"},
  };
  for (const Bad& item : bad)
    EXPECT_EQ(message_of(file_of(fmt::format("{{\"t\":{}}}", item.entry), "1234")),
              fmt::format("x.safetensors: tensor 't': {}", item.message))
        << item.entry;
}

// Any file cut off anywhere is refused or, where only padding is gone, read the same.
TEST(Safetensors, CutFilesAreRefused) {
  const std::vector<StoredPlan> plans = {{"a", DType::kF32, {3, 5}}, {"b", DType::kF16, {7}}};
  const std::string bytes = safetensors_header(plans) + std::string(74, 'x');
  ASSERT_TRUE(parse(bytes).ok());
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(parse(bytes.substr(0, length)).ok()) << length;
}

TEST(Safetensors, OpensAFile) {
  const TemporaryFolder folder = TemporaryFolder::create().value();
  const std::string path = (folder.path() / "x.safetensors").string();
  EXPECT_EQ(Safetensors::open(path).error().message,
            path + ": cannot open: No such file or directory");
  const std::vector<StoredPlan> plans = {{"a", DType::kF32, {1}}};
  std::ofstream(path, std::ios::binary) << safetensors_header(plans) << "abcd";
  const auto file = Safetensors::open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(std::memcmp(file->find("a")->data.data(), "abcd", 4), 0);
}

// A parser that looks at all members again at the end of each would need hours.
TEST(Safetensors, AHeaderOfManyTensorsIsReadOnce) {
  const int64_t tensors = rounds(50'000);
  std::string header = "{";
  for (int64_t i = 0; i < tensors; ++i)
    header += fmt::format("{}\"{}/x\":{{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}",
                          i > 0 ? "," : "", i);
  const std::string bytes = file_of(header + "}");
  const auto file = parse(bytes);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->tensors().size(), static_cast<size_t>(tensors));
}

TEST(Safetensors, ANameThatStandsTwiceIsRefused) {
  const auto entry = [](const char* name, int begin, int end) {
    return fmt::format(R"("{}":{{"dtype":"F32","shape":[1],"data_offsets":[{},{}]}})", name, begin,
                       end);
  };
  for (const char* again : {"0/x", "0\\/x", "\\u0030/x"})
    EXPECT_EQ(message_of(file_of(fmt::format("{{{},{},{}}}", entry("0/x", 0, 4), entry("1/x", 4, 8),
                                             entry(again, 8, 12)),
                                 std::string(12, 'x'))),
              "x.safetensors: header: the name '0/x' stands twice in an object");
  EXPECT_EQ(
      message_of(file_of(R"({"a":{"dtype":"F32","shape":[0],"shape":[1],"data_offsets":[0,0]}})")),
      "x.safetensors: header: the name 'shape' stands twice in an object");
  // In objects of their own the same names stand many times.
  EXPECT_EQ(message_of(file_of("{" + entry("a", 0, 4) + "," + entry("A", 4, 8) + "}", "xxxxyyyy")),
            "no error");
}

TEST(Safetensors, DepthIsLimitedAndBracketsInNamesAreNoDepth) {
  std::string deep(100'000, '[');
  EXPECT_EQ(message_of(file_of(deep)), "x.safetensors: header: nested more than 64 deep");
  const std::string name = std::string(100, '[') + "\\\"" + std::string(100, '{') + "\\\\";
  const std::string bytes =
      file_of("{\"" + name + "\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}");
  EXPECT_EQ(message_of(bytes), "no error");
}

}  // namespace
}  // namespace lockstep::trace
