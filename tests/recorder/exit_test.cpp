// What lockstep/recorder.h leaves behind when its process ends, in whatever way.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <random>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/random.h"
#include "base/temporary_folder.h"
#include "trace/trace.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class RecorderExit : public testing::Test {
 protected:
  pid_t start(int steps, const std::string& mode) {
    const std::string folder_path = folder();
    const std::string count = std::to_string(steps);
    const pid_t child = ::fork();
    if (child == 0) {
      ::execl(EXIT_PROGRAM, EXIT_PROGRAM, folder_path.c_str(), count.c_str(), mode.c_str(),
              nullptr);
      ::_exit(127);
    }
    EXPECT_GT(child, 0) << "no process could be started";
    return child;
  }

  // Until `done` says so. Far longer than anything here takes: a program that hangs is a failure.
  static bool wait_until(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!done()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

  // Ends a child that does not end by itself.
  int wait(pid_t child) {
    if (child <= 0) return -1;
    int status = 0;
    const auto ended = [&] { return ::waitpid(child, &status, WNOHANG) != 0; };
    if (!wait_until(ended)) {
      ADD_FAILURE() << EXIT_PROGRAM << " did not end within a minute";
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
    }
    return status;
  }

  // Every step that the manifest names is whole and right; how many there are.
  int64_t check(bool complete) {
    const auto trace = trace::Trace::open(folder());
    EXPECT_TRUE(trace.ok()) << trace.error().message;
    if (!trace.ok()) return -1;
    EXPECT_EQ(trace->manifest().complete, complete);
    const auto steps = static_cast<int64_t>(trace->manifest().steps.size());
    for (int64_t s = 0; s < steps; ++s)
      for (const auto& [name, first] : {std::pair("a", 0), std::pair("b", 50)}) {
        const auto row = trace->row(name, s);
        if (!row) {
          ADD_FAILURE() << name << " is missing in step " << s;
          return -1;
        }
        for (int64_t i = 0; i < 7; ++i)
          EXPECT_EQ(row->at(0, i), static_cast<double>(s * 100 + first + i)) << name << " " << s;
      }
    return steps;
  }

  std::string folder() const { return (holder_.path() / "trace").string(); }

  const TemporaryFolder holder_ = TemporaryFolder::create().value();
};

// The trap of the case study: values read by a writer that outlives them.
TEST_F(RecorderExit, AStaticRecorderAndExitInTheMiddleOfAStep) {
  EXPECT_EQ(wait(start(37, "static")), 0);
  EXPECT_EQ(check(false), 37);
  for (const auto& entry : fs::directory_iterator(folder()))
    EXPECT_NE(entry.path().extension(), ".part");
}

TEST_F(RecorderExit, ARecorderThatIsNeverDestroyed) {
  EXPECT_EQ(wait(start(37, "left")), 0);
  EXPECT_EQ(check(false), 37);
}

TEST_F(RecorderExit, KilledInTheMiddleOfAStep) {
  EXPECT_TRUE(WIFSIGNALED(wait(start(37, "killed"))));
  EXPECT_EQ(check(false), 37);
}

TEST_F(RecorderExit, Finished) {
  EXPECT_EQ(wait(start(37, "finished")), 0);
  EXPECT_EQ(check(true), 37);
}

TEST_F(RecorderExit, AFullDiskEndsTheRecordingOnlyAndLeavesNothingWithoutSteps) {
  const int status = wait(start(3, "full"));
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_FALSE(fs::exists(folder()));
  fs::create_directory(folder());  // what was there before stays
  EXPECT_EQ(WEXITSTATUS(wait(start(3, "full"))), 1);
  EXPECT_TRUE(fs::is_empty(folder()));
}

// Each process wants the folder at the same moment; one gets it, and what it writes is whole.
TEST_F(RecorderExit, OfSeveralProcessesOneGetsTheFolder) {
  for (int attempt = 0; attempt < 10; ++attempt) {
    fs::remove_all(folder());
    std::vector<pid_t> children;
    for (int i = 0; i < 4; ++i) children.push_back(start(5, "finished"));
    int finished = 0;
    for (const pid_t child : children) {
      const int status = wait(child);
      EXPECT_TRUE(WIFEXITED(status));
      finished += WEXITSTATUS(status) == 0 ? 1 : 0;
    }
    EXPECT_EQ(finished, 1);
    EXPECT_EQ(check(true), 5);
  }
}

TEST_F(RecorderExit, KilledAtAnyMoment) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  Random random(seed);
  for (int attempt = 0; attempt < 15; ++attempt) {
    fs::remove_all(folder());
    const pid_t child = start(1 << 30, random.below(4) > 0 ? "flushed" : "finished");
    ASSERT_GT(child, 0);
    // WNOWAIT: whether the child has ended, which wait() then collects.
    siginfo_t ended{};
    const auto begun = [&] {
      ::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT);
      return ended.si_pid == child || fs::exists(folder() + "/manifest.json");
    };
    EXPECT_TRUE(wait_until(begun)) << "no manifest within a minute";
    EXPECT_EQ(ended.si_pid, 0) << "ended by itself, with status " << ended.si_status;
    // At once too: the first manifest is whole as soon as it has its name.
    if (random.below(3) > 0)
      std::this_thread::sleep_for(std::chrono::microseconds(random.below(60'000)));
    ::kill(child, SIGKILL);
    const int status = wait(child);
    ASSERT_TRUE(WIFSIGNALED(status)) << status;
    EXPECT_GE(check(false), 0);
  }
}

}  // namespace
}  // namespace lockstep
