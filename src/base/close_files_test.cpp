#include "base/close_files.h"

#include <array>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace lockstep {
namespace {

// Whether a program that is started so has each of these files open.
std::vector<bool> open_there(void (*close)(posix_spawn_file_actions_t&, int), int first,
                             const std::vector<int>& files) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  close(actions, first);
  std::vector<bool> open;
  for (const int file : files) {
    std::string text = fmt::format("test -e /proc/self/fd/{}", file);
    std::string shell = "sh", flag = "-c";
    const std::array<char*, 4> words{shell.data(), flag.data(), text.data(), nullptr};
    pid_t child = 0;
    int status = -1;
    EXPECT_EQ(::posix_spawnp(&child, "sh", &actions, nullptr, words.data(), environ), 0);
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    open.push_back(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  posix_spawn_file_actions_destroy(&actions);
  return open;
}

TEST(CloseFiles, FromOneOn) {
  std::vector<int> files{STDERR_FILENO};
  for (int i = 0; i < 7; ++i) files.push_back(::open("/dev/null", O_RDONLY));  // without O_CLOEXEC
  const int high = ::fcntl(files.back(), F_DUPFD, 250);
  ASSERT_GE(high, 250);
  files.push_back(high);
  for (const auto close : {add_close_from, add_close_each}) {
    EXPECT_EQ(open_there(close, STDERR_FILENO + 1, files),
              (std::vector<bool>{true, false, false, false, false, false, false, false, false}));
    EXPECT_EQ(open_there(close, high, {STDERR_FILENO, files[1], files[7], high}),
              (std::vector<bool>{true, true, true, false}));
    EXPECT_EQ(open_there(close, high + 1, {files[1], high}), (std::vector<bool>{true, true}));
  }
  for (size_t i = 1; i < files.size(); ++i) ::close(files[i]);
}

}  // namespace
}  // namespace lockstep
