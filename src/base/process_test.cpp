#include "base/process.h"

#include <csignal>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Process, ArgumentsArriveAsTheyAre) {
  const std::vector<std::string> odd = {"", "a b", "$(touch /tmp/x)", "'; exit 3; '", "\n", "*"};
  std::vector<std::string> command = {"printf", "[%s]"};
  command.insert(command.end(), odd.begin(), odd.end());
  const auto outcome = run_process(command, ProcessOutput::kCapture);
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  EXPECT_EQ(outcome->status, 0);
  EXPECT_EQ(outcome->output, "[][a b][$(touch /tmp/x)]['; exit 3; '][\n][*]");
}

TEST(Process, StatusIsThatOfTheProgram) {
  EXPECT_EQ(run_process({"sh", "-c", "exit 37"}, ProcessOutput::kToStderr)->status, 37);
  EXPECT_EQ(run_process({"sh", "-c", "kill -9 $$"}, ProcessOutput::kCapture)->status,
            128 + SIGKILL);
}

TEST(Process, MuchOutputComesWhole) {
  const auto outcome = run_process({"seq", "200000"}, ProcessOutput::kCapture);
  EXPECT_EQ(outcome->output.size(), 1288895u);
  EXPECT_TRUE(outcome->output.ends_with("199999\n200000\n"));
}

TEST(Process, AMissingProgramIsAnError) {
  for (const ProcessOutput output : {ProcessOutput::kCapture, ProcessOutput::kToStderr}) {
    const auto outcome = run_process({"/nowhere/python", "x"}, output);
    ASSERT_FALSE(outcome.ok());
    EXPECT_EQ(outcome.error().message, "/nowhere/python: cannot start: No such file or directory");
  }
  EXPECT_EQ(become_process({"/nowhere/python"}).message,
            "/nowhere/python: cannot start: No such file or directory");
}

TEST(ProcessDeathTest, BecomesTheOtherProgram) {
  EXPECT_EXIT(become_process({"sh", "-c", "exit \"$1\"", "sh", "41"}), testing::ExitedWithCode(41),
              "");
}

}  // namespace
}  // namespace lockstep
