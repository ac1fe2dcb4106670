// What the tests of lockstep/recorder.h share: a folder, random bits, and our own reader.
#pragma once

#include <algorithm>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <lockstep/recorder.h>

#include "base/random.h"
#include "base/temporary_folder.h"
#include "trace/trace.h"

namespace lockstep {

namespace fs = std::filesystem;
using Bytes = std::vector<char>;

inline TraceInfo plain_info() {
  TraceInfo info;
  info.engine = "test";
  info.tokens = {1, 2, 3};
  return info;
}

inline std::vector<std::string> files_of(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

class RecorderTest : public testing::Test {
 protected:
  trace::Trace open() {
    auto trace = trace::Trace::open(folder());
    EXPECT_TRUE(trace.ok()) << trace.error().message;
    return *std::move(trace);
  }
  std::string folder() const { return (holder_.path() / "trace").string(); }
  void again() { fs::remove_all(folder()); }

  // Random bits: all kinds of NaN and denormals among them.
  Bytes random_bytes(size_t count) {
    Bytes bytes(count);
    for (char& byte : bytes) byte = static_cast<char>(random_.next());
    return bytes;
  }

  void expect_value(const trace::Trace& trace, size_t step, const std::string& name,
                    const Bytes& wanted) {
    const auto view = trace.value(step, name);
    ASSERT_TRUE(view) << name;
    ASSERT_EQ(static_cast<size_t>(view->size() * size_bytes(view->dtype)), wanted.size()) << name;
    EXPECT_EQ(std::memcmp(view->data, wanted.data(), wanted.size()), 0)
        << name << " in step " << step;
  }

  const TemporaryFolder holder_ = TemporaryFolder::create().value();
  const uint64_t seed_ = std::random_device{}();
  testing::ScopedTrace scope_{__FILE__, __LINE__, fmt::format("seed {}", seed_)};
  Random random_{seed_};
};

}  // namespace lockstep
