// A recording that fails costs nothing but itself. tests/shipped/recording_test.cpp has those that
// succeed, with real executors.
#include "trace/recorder.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <random>
#include <set>
#include <system_error>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/random.h"
#include "base/temporary_folder.h"
#include "trace/trace.h"
#include "trace/write_queue.h"

namespace {

// Counts down allocations, of all threads: the one that reaches 0 fails. Below 0: none does.
std::atomic<int64_t> allocations_left = -1;

void* allocate_or_fail(size_t size) {
  if (allocations_left.load() >= 0 && allocations_left.fetch_sub(1) == 0) throw std::bad_alloc();
  if (void* memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(size_t size) {
  return allocate_or_fail(size);
}
void* operator new[](size_t size) {
  return allocate_or_fail(size);
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  try {
    return operator new(size);
  } catch (...) {
    return nullptr;
  }
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, size_t) noexcept {
  std::free(memory);
}

namespace lockstep::trace {
namespace {

namespace fs = std::filesystem;

class FailingRecording : public testing::Test {
 protected:
  FailingRecording() {
    program_.values = {{"embedding", 3}, {"final_norm", 7}, {"logits", 5}};
    for (op::ValueId id = 0; id < 3; ++id) program_.ops.push_back({op::Scale{1}, {}, {id}});
  }

  Result<std::unique_ptr<Recorder>> create(const std::string& checkpoints = "all",
                                           bool last_logits = false) const {
    RecordOptions options;
    options.folder = folder_;
    options.checkpoints = checkpoints;
    options.last_logits = last_logits;
    Manifest start;
    start.engine.name = "test";
    return Recorder::create(program_, DType::kF32, options, start);
  }

  void show(Recorder& recorder, op::ValueId id, std::vector<int64_t> shape,
            DType dtype = DType::kF32) {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    numbers_.assign(static_cast<size_t>(count), 1.5);
    if (recorder.wants(id)) recorder.see(id, {dtype, numbers_.data(), std::move(shape)});
  }

  void whole_step(Recorder& recorder, int64_t first, int64_t tokens) {
    recorder.begin_step(first, tokens);
    for (op::ValueId id = 0; id < 3; ++id) show(recorder, id, {tokens, program_.value(id).width});
    recorder.end_step(true);
  }

  const TemporaryFolder temporary_ = TemporaryFolder::create().value();
  const std::string folder_ = (temporary_.path() / "deep" / "trace").string();
  op::Program program_;
  std::vector<double> numbers_;
};

TEST_F(FailingRecording, AValueOfAnotherSizeIsItsErrorAndStepsBeforeStay) {
  auto recorder = create();
  ASSERT_TRUE(recorder.ok()) << recorder.error().message;
  whole_step(**recorder, 0, 4);
  (*recorder)->begin_step(4, 2);
  show(**recorder, 1, {1, 7});  // the last row alone
  (*recorder)->end_step(true);
  whole_step(**recorder, 6, 1);
  const auto finished = (*recorder)->finish({1, 2, 3});
  ASSERT_FALSE(finished.ok());
  EXPECT_EQ(finished.error().message, "value 1/final_norm: found 28 bytes, expected 56");
  const auto trace = Trace::open(folder_);
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_FALSE(trace->manifest().complete);
  EXPECT_EQ(trace->positions(), 4);
  EXPECT_EQ(trace->row("logits", 3)->width, 5);
}

TEST_F(FailingRecording, NothingIsLeftOfOneWithoutAWholeStep) {
  auto recorder = create();
  ASSERT_TRUE(recorder.ok());
  (*recorder)->begin_step(0, 2);
  show(**recorder, 0, {2, 3});
  show(**recorder, 2, {2, 5});
  (*recorder)->end_step(true);
  const auto finished = (*recorder)->finish({});
  ASSERT_FALSE(finished.ok());
  EXPECT_EQ(finished.error().message, "value 0/final_norm: never came, in a step that is whole");
  EXPECT_TRUE(fs::is_empty(temporary_.path()));
}

TEST_F(FailingRecording, WhatAnExecutorMustNotShow) {
  const auto message_of = [&](const auto& wrong) {
    auto recorder = create("embedding");
    EXPECT_TRUE(recorder.ok());
    (*recorder)->begin_step(0, 1);
    wrong(**recorder);
    (*recorder)->end_step(true);
    const auto finished = (*recorder)->finish({});
    EXPECT_FALSE(fs::exists(folder_));
    return finished.ok() ? "" : finished.error().message;
  };
  EXPECT_EQ(message_of([&](Recorder& r) {
              show(r, 0, {1, 3}, DType::kF64);
            }),
            "embedding: found numbers of type f64, expected f32");
  EXPECT_EQ(message_of([&](Recorder& r) {
              show(r, 0, {1, 3}), show(r, 0, {1, 3});
            }),
            "value 0/embedding: came twice in a step");
  EXPECT_EQ(message_of([&](Recorder& r) {
              r.see(2, {DType::kF32, numbers_.data(), {1, 5}});
            }),
            "logits: came without being asked for");
  EXPECT_EQ(message_of([&](Recorder& r) {
              show(r, 0, {0, 3});
            }),
            "value 0/embedding: found 0 bytes, expected 12");
}

TEST_F(FailingRecording, LastLogitsOfFewerNumbersThanARow) {
  auto recorder = create("logits", true);
  ASSERT_TRUE(recorder.ok());
  (*recorder)->begin_step(0, 3);
  show(**recorder, 2, {1, 4});
  (*recorder)->end_step(true);
  EXPECT_EQ((*recorder)->finish({}).error().message, "value 0/logits: found 16 bytes, expected 20");
}

// Memory that runs out at any place, on either thread, is an error of the recording, or of nothing.
TEST_F(FailingRecording, NoMemoryAtAnyPlace) {
  RecordOptions options;
  options.folder = folder_;
  const Manifest start;
  const std::vector<float> numbers(4 * 7, 2);
  const std::vector<int32_t> tokens = {1, 2};
  int64_t failed = 0, succeeded = 0;
  for (int64_t place = 0; succeeded < 8; place += place < 200 ? 1 : 7) {
    ASSERT_LT(place, 5000);
    allocations_left = place;
    bool ok = false;
    {
      auto recorder = Recorder::create(program_, DType::kF32, options, start);
      if (recorder.ok()) {
        for (int64_t step = 0; step < 3; ++step) {
          (*recorder)->begin_step(4 * step, 4);
          for (op::ValueId id = 0; id < 3; ++id) {
            // The executor's own memory is not what is tried here.
            View view{DType::kF32, numbers.data(), {}};
            const int64_t left = allocations_left.exchange(-1);
            view.shape = {4, program_.value(id).width};
            allocations_left = left;
            if ((*recorder)->wants(id)) (*recorder)->see(id, view);
          }
          (*recorder)->end_step(true);
        }
        ok = (*recorder)->finish(tokens).ok();
      }
      allocations_left = -1;
    }
    if (fs::exists(folder_)) {
      const auto trace = Trace::open(folder_);
      ASSERT_TRUE(trace.ok()) << "place " << place << ": " << trace.error().message;
      EXPECT_EQ(trace->manifest().complete, ok) << "place " << place;
    } else {
      EXPECT_FALSE(ok) << "place " << place;
    }
    fs::remove_all(folder_);
    ++(ok ? succeeded : failed);
  }
  EXPECT_GT(failed, 20);
}

TEST_F(FailingRecording, NoThread) {
  WriteQueue queue;
  const auto started = queue.start([](const std::function<void()>&) -> std::thread {
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  });
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(started.error().message.find("cannot start the thread that writes: "), 0u);
  EXPECT_TRUE(queue.finish().ok());
}

TEST_F(FailingRecording, WhatAJobThrows) {
  WriteQueue queue;
  ASSERT_TRUE(queue.start().ok());
  bool later = false;
  queue.push(1, []() -> Result<void> { throw std::runtime_error("a disk that went away"); });
  queue.push(1, [&]() -> Result<void> {
    later = true;
    return {};
  });
  const auto finished = queue.finish();
  ASSERT_FALSE(finished.ok());
  EXPECT_EQ(finished.error().message, "a disk that went away");
  EXPECT_TRUE(queue.failed());
  EXPECT_FALSE(later);
}

// A disk that is slower than the model: the model waits, and knows for how long.
TEST_F(FailingRecording, ASlowDiskIsWaitedFor) {
  WriteQueue queue;
  ASSERT_TRUE(queue.start().ok());
  const auto nothing = []() -> Result<void> { return {}; };
  queue.push(1, nothing);
  EXPECT_EQ(queue.waited().count(), 0);
  const auto slow = []() -> Result<void> {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return {};
  };
  // This thread may itself be kept waiting until the disk is done, but not every time.
  for (int round = 0; round < 200 && queue.waited().count() == 0; ++round) {
    queue.push(int64_t{1} << 40, slow);
    queue.push(1, nothing);
  }
  EXPECT_GT(queue.waited().count(), 0);
  EXPECT_TRUE(queue.finish().ok());
}

// Several processes want one folder at the same moment: one gets it.
TEST_F(FailingRecording, OneOfSeveralGetsTheFolder) {
  for (int round = 0; round < 20; ++round) {
    const std::string folder = (temporary_.path() / fmt::format("race{}", round)).string();
    if (round % 2 == 0) fs::create_directory(folder);
    int gate[2];
    ASSERT_EQ(pipe(gate), 0);
    std::vector<pid_t> children;
    for (int i = 0; i < 3; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        char byte = 0;
        close(gate[1]);
        static_cast<void>(!read(gate[0], &byte, 1));  // ends for all when the parent closes it
        RecordOptions options;
        options.folder = folder;
        auto recorder = Recorder::create(program_, DType::kF32, options, {});
        if (!recorder.ok()) _exit(1);
        whole_step(**recorder, 0, 1 + i);
        _exit((*recorder)->finish({}).ok() ? 0 : 2);
      }
      children.push_back(child);
    }
    close(gate[0]);
    close(gate[1]);
    int winners = 0;
    for (const pid_t child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      ASSERT_TRUE(WIFEXITED(status));
      EXPECT_NE(WEXITSTATUS(status), 2);
      winners += WEXITSTATUS(status) == 0 ? 1 : 0;
    }
    EXPECT_EQ(winners, 1) << "round " << round;
    const auto trace = Trace::open(folder);
    EXPECT_TRUE(trace.ok()) << trace.error().message;
  }
}

}  // namespace
}  // namespace lockstep::trace
