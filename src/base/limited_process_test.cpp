#include "base/limited_process.h"

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/temporary_folder.h"

namespace lockstep {
namespace {

LimitedOutcome run(const std::string& script, const ProcessLimits& limits = {},
                   const std::atomic<bool>* cancel = nullptr) {
  auto outcome = run_limited({"sh", "-c", script}, limits, cancel);
  EXPECT_TRUE(outcome.ok());
  return outcome.ok() ? *outcome : LimitedOutcome();
}

TEST(LimitedProcess, StatusAndOutput) {
  const LimitedOutcome outcome = run("echo a; echo b >&2; exit 7");
  EXPECT_EQ(outcome.end, ProcessEnd::kExited);
  EXPECT_EQ(outcome.status, 7);
  EXPECT_EQ(outcome.output, "a\nb\n");
  EXPECT_FALSE(outcome.succeeded());
  EXPECT_EQ(describe(outcome, {}), "ended with exit status 7");
  EXPECT_TRUE(run("cat").succeeded());  // nothing to read is no reason to wait
}

TEST(LimitedProcess, StandardOutputToAFile) {
  const auto folder = TemporaryFolder::create();
  const std::string file = (folder->path() / "out").string();
  const LimitedOutcome outcome = run("echo a; echo b >&2", {.output_file = file});
  EXPECT_EQ(outcome.output, "b\n");
  std::ifstream in(file);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "a\n");
  const auto nowhere = run_limited({"sh"}, {.output_file = "/nowhere/out"});
  ASSERT_FALSE(nowhere.ok());
  EXPECT_EQ(nowhere.error().message, "sh: cannot start: No such file or directory");
}

TEST(LimitedProcess, TheEnvironmentButForAVariable) {
  ::setenv("LOCKSTEP_TEST_A", "1", 1);
  ::setenv("LOCKSTEP_TEST_AB", "2", 1);
  const std::string show = "echo \"$LOCKSTEP_TEST_A|$LOCKSTEP_TEST_AB\"";
  EXPECT_EQ(run(show).output, "1|2\n");
  EXPECT_EQ(run(show, {.without_variable = "LOCKSTEP_TEST_A"}).output, "|2\n");
  ::unsetenv("LOCKSTEP_TEST_A");
  ::unsetenv("LOCKSTEP_TEST_AB");
}

TEST(LimitedProcess, OurFilesAreNotTheirs) {
  const int open_file = ::open("/dev/null", O_RDONLY);  // without O_CLOEXEC
  ASSERT_GT(open_file, 2);
  const auto outcome = run(fmt::format("test -e /proc/self/fd/{} && echo there", open_file));
  ::close(open_file);
  EXPECT_EQ(outcome.output, "");
}

TEST(LimitedProcess, ArgumentsAreNoWordsOfAShell) {
  const auto outcome = run_limited({"printf", "%s|", "a b", "$HOME; rm", "", "'"}, {});
  EXPECT_EQ(outcome->output, "a b|$HOME; rm||'|");
}

TEST(LimitedProcess, Crashes) {
  const LimitedOutcome outcome = run("kill -SEGV $$");
  EXPECT_EQ(outcome.end, ProcessEnd::kSignal);
  EXPECT_EQ(outcome.status, SIGSEGV);
  EXPECT_EQ(describe(outcome, {}), "was ended by signal 11 (Segmentation fault)");
}

TEST(LimitedProcess, ProgramsThatAreNotThere) {
  const auto outcome = run_limited({"/nowhere/at all"}, {});
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().message, "/nowhere/at all: cannot start: No such file or directory");
}

TEST(LimitedProcess, HangsEndWithAllThatTheyStarted) {
  const ProcessLimits limits = {.seconds = 0.2};
  const LimitedOutcome outcome = run("sleep 100 & echo $!; sleep 100", limits);
  EXPECT_EQ(outcome.end, ProcessEnd::kTime);
  EXPECT_EQ(describe(outcome, limits), "took longer than 0.2 s");
  const pid_t started = std::atoi(outcome.output.c_str());
  ASSERT_GT(started, 0);
  // Gone, or waiting for whoever is its parent now to bury it.
  const auto runs = [&] {
    std::ifstream stat(fmt::format("/proc/{}/stat", started));
    std::string number, name, state;
    stat >> number >> name >> state;
    return !state.empty() && state != "Z" && state != "X";
  };
  for (int i = 0; i < 500 && runs(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(runs());
}

TEST(LimitedProcess, WhatIsLeftInTheBackgroundIsNotWaitedFor) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(run("sleep 100 & exit 0").succeeded());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(50));
}

TEST(LimitedProcess, MemoryOfAllItsProcesses) {
  const ProcessLimits limits = {.seconds = 30, .memory_bytes = 50'000'000};
  // A shell's variable that doubles, in a child of the child.
  const LimitedOutcome outcome =
      run("sh -c 'a=xxxxxxxxxxxxxxxx; while :; do a=$a$a; done'; exit 0", limits);
  EXPECT_EQ(outcome.end, ProcessEnd::kMemory);
  EXPECT_EQ(describe(outcome, limits), "took more than 50.0 MB of memory");
  EXPECT_TRUE(run("exit 0", limits).succeeded());
}

TEST(LimitedProcess, OutputIsBounded) {
  for (const int64_t most : {2, 7, 100, 4096}) {
    const LimitedOutcome outcome = run("seq 1 20000", {.output_bytes = most});
    EXPECT_LE(static_cast<int64_t>(outcome.output.size()), most + 60);
    EXPECT_TRUE(outcome.output.starts_with("1"));
    EXPECT_TRUE(outcome.output.ends_with("\n"));
    EXPECT_EQ(outcome.left_out, 108894 - most / 2 * 2);
  }
  EXPECT_EQ(run("yes", {.seconds = 0.2, .output_bytes = 1000}).end, ProcessEnd::kTime);
}

TEST(LimitedProcess, CanBeCancelled) {
  std::atomic<bool> cancel = false;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    cancel = true;
  });
  EXPECT_EQ(run("sleep 100", {}, &cancel).end, ProcessEnd::kCancelled);
  later.join();
}

}  // namespace
}  // namespace lockstep
