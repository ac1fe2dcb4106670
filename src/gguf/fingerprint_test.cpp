#include "gguf/fingerprint.h"

#include <algorithm>
#include <functional>

#include "gguf/fingerprint_cache.h"
#include "gguf/test_support.h"

namespace lockstep::gguf {
namespace {

using namespace test;
namespace fs = std::filesystem;

class Fingerprint : public testing::Test {
 protected:
  void SetUp() override {
    ::setenv("XDG_CACHE_HOME", cache_.file("").c_str(), 1);
    seed_ = fresh_seed();
    random_ = Random(seed_);
    model_ = random_model(random_);
  }
  void TearDown() override { ::unsetenv("XDG_CACHE_HOME"); }

  std::string path() const { return folder_.file("m.gguf"); }

  std::string computed(const Model& model) {
    write_model(path(), model, random_);
    return compute_fingerprint(open());
  }
  File open() const {
    auto file = File::open(path());
    LS_CHECK(file.ok(), "{}", file.error().message);
    return std::move(*file);
  }
  // As if the files had been opened long after their last change.
  std::vector<Part> settled_parts() const {
    const File file = open();
    std::vector<Part> parts(file.parts().begin(), file.parts().end());
    for (Part& part : parts) part.stamp.seen_ns += 60'000'000'000;
    return parts;
  }
  fs::path cache_entry() const {
    for (const auto& entry : fs::directory_iterator(cache_.file("lockstep"))) return entry.path();
    return {};
  }

  TempFolder folder_;
  TempFolder cache_;
  uint64_t seed_ = 0;
  Random random_{0};
  Model model_;
};

template <class T>
void shuffle(std::vector<T>& items, Random random) {
  for (size_t i = items.size(); i > 1; --i)
    std::swap(items[i - 1], items[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
}

TEST_F(Fingerprint, DoesNotDependOnStorage) {
  SCOPED_TRACE(fmt::format("seed {}", seed_));
  const std::string expected = computed(model_);
  EXPECT_EQ(expected.size(), 32u);
  EXPECT_EQ(expected.find_first_not_of("0123456789abcdef"), std::string::npos);

  Model other = model_;
  other.metadata.push_back({"general.alignment", {uint32_t{4096}}});
  other.metadata.push_back({"split.count", {uint16_t{1}}});
  shuffle(other.metadata, random_);
  const uint64_t order = random_.next();  // the same for plans and data
  shuffle(other.tensors, Random(order));
  shuffle(other.data, Random(order));
  EXPECT_EQ(computed(other), expected);
}

TEST_F(Fingerprint, SplitOrWholeIsTheSame) {
  const auto whole = File::open(LOCKSTEP_FIXTURES "/gguf/types.gguf");
  const auto split = File::open(LOCKSTEP_FIXTURES "/gguf/split-00001-of-00004.gguf");
  const auto aligned = File::open(LOCKSTEP_FIXTURES "/gguf/aligned.gguf");
  const auto version2 = File::open(LOCKSTEP_FIXTURES "/gguf/version2.gguf");
  ASSERT_TRUE(whole.ok() && split.ok() && aligned.ok() && version2.ok());
  EXPECT_EQ(compute_fingerprint(*split), compute_fingerprint(*whole));
  EXPECT_EQ(compute_fingerprint(*aligned), compute_fingerprint(*whole));
  EXPECT_EQ(compute_fingerprint(*version2), compute_fingerprint(*whole));
  // Written down so that no change of ours can alter the identity of models unnoticed.
  EXPECT_EQ(compute_fingerprint(*whole), "1a65bee07aba8016c3b1a5390b9aaa1d");
}

TEST_F(Fingerprint, AnyChangeShows) {
  SCOPED_TRACE(fmt::format("seed {}", seed_));
  const std::string expected = computed(model_);
  const auto pick = [&](size_t count) {
    return static_cast<size_t>(random_.below(static_cast<int64_t>(count)));
  };
  for (int round = 0; round < 8; ++round) {
    Model other = model_;
    std::string& data = other.data[pick(other.data.size())];
    char& byte = data[pick(data.size())];
    byte = static_cast<char>(byte ^ (1 << random_.below(8)));
    EXPECT_NE(computed(other), expected);
  }
  Model other = model_;
  other.metadata[pick(other.metadata.size())].key += "x";
  EXPECT_NE(computed(other), expected);
  other = model_;
  other.metadata[0].value = {uint8_t(std::get<uint8_t>(other.metadata[0].value.value) + 1)};
  EXPECT_NE(computed(other), expected);
  other = model_;  // the same number in another type
  other.metadata[0].value = {uint16_t{std::get<uint8_t>(other.metadata[0].value.value)}};
  EXPECT_NE(computed(other), expected);
  other = model_;
  other.tensors[pick(other.tensors.size())].name += "x";
  EXPECT_NE(computed(other), expected);
  other = model_;
  other.tensors[0].dims = {1, static_cast<int64_t>(other.data[0].size() / 4), 1};  // of F32
  if (other.tensors[0].dims == model_.tensors[0].dims) other.tensors[0].dims.pop_back();
  EXPECT_NE(computed(other), expected);
}

TEST_F(Fingerprint, IsRememberedUntilTheFileChanges) {
  const std::string expected = computed(model_);
  // Only the cache can give this answer.
  const std::string remembered(32, 'a');
  cache_fingerprint(settled_parts(), remembered);
  EXPECT_EQ(fingerprint(open()), remembered);
  // The same inode, size and modification time.
  const auto time = fs::last_write_time(path());
  Model other = model_;
  other.data[0][0] = static_cast<char>(~other.data[0][0]);
  const int64_t before = open().parts()[0].stamp.changed_ns;
  const std::string changed = computed(other);
  ASSERT_NE(changed, expected);
  do fs::last_write_time(path(), time);  // until the clock of the file system has ticked
  while (open().parts()[0].stamp.changed_ns == before);
  EXPECT_EQ(fingerprint(open()), changed);
  // Another file in its place, of the same size and time.
  cache_fingerprint(settled_parts(), remembered);
  EXPECT_EQ(fingerprint(open()), remembered);
  fs::copy_file(path(), path() + "2");
  fs::last_write_time(path() + "2", time);
  fs::rename(path() + "2", path());
  EXPECT_EQ(fingerprint(open()), changed);
}

TEST_F(Fingerprint, EachPartOfAFilesIdentityCounts) {
  computed(model_);
  const std::vector<Part> parts = settled_parts();
  cache_fingerprint(parts, std::string(32, 'a'));
  ASSERT_EQ(cached_fingerprint(parts), std::string(32, 'a'));
  const std::function<void(Part&)> changes[] = {
      [](Part& part) { ++part.size_bytes; },       [](Part& part) { ++part.stamp.device; },
      [](Part& part) { ++part.stamp.inode; },      [](Part& part) { ++part.stamp.modified_ns; },
      [](Part& part) { ++part.stamp.changed_ns; },
  };
  for (const auto& change : changes) {
    std::vector<Part> other = parts;
    change(other[0]);
    EXPECT_EQ(cached_fingerprint(other), std::nullopt);
  }
}

TEST_F(Fingerprint, OfAFileThatJustChangedIsNotRemembered) {
  const std::string expected = computed(model_);
  EXPECT_EQ(fingerprint(open()), expected);
  EXPECT_EQ(cache_.entries(), 0u);
  std::vector<Part> parts = settled_parts();
  for (const int64_t age : {int64_t{-1'000'000'000}, int64_t{0}, int64_t{2'999'999'999}}) {
    parts[0].stamp.seen_ns = parts[0].stamp.changed_ns + age;
    parts[0].stamp.modified_ns = 0;
    cache_fingerprint(parts, expected);
    EXPECT_EQ(cache_.entries(), 0u) << age;
  }
  parts[0].stamp.seen_ns = parts[0].stamp.changed_ns + 3'000'000'000;
  cache_fingerprint(parts, expected);
  EXPECT_EQ(cached_fingerprint(parts), expected);
}

TEST_F(Fingerprint, ABrokenCacheIsIgnoredAndMended) {
  const std::string expected = computed(model_);
  const std::vector<Part> parts = settled_parts();
  cache_fingerprint(parts, expected);
  const std::string good = read_file(cache_entry());
  std::string wrong = good;
  wrong.replace(wrong.find(expected), 32, "not a fingerprint at all, indeed");
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), good.substr(9),
        std::string("{\"files\":1,\"fingerprint\":2}"), wrong, std::string(1000, '\xff')}) {
    write_file(cache_entry(), text);
    EXPECT_EQ(fingerprint(open()), expected) << text;
    cache_fingerprint(parts, expected);
    EXPECT_EQ(read_file(cache_entry()), good) << text;
  }
}

TEST_F(Fingerprint, WithoutACacheItIsComputed) {
  const std::string expected = computed(model_);
  ::setenv("XDG_CACHE_HOME", "/dev/null/nowhere", 1);
  EXPECT_EQ(fingerprint(open()), expected);
  EXPECT_EQ(cache_.entries(), 0u);
  // From memory there is no file to remember.
  ::setenv("XDG_CACHE_HOME", cache_.file("").c_str(), 1);
  const std::string bytes = read_file(path());
  const auto file = parse(bytes);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(fingerprint(*file), expected);
  EXPECT_EQ(cache_.entries(), 0u);
}

}  // namespace
}  // namespace lockstep::gguf
