#include "base/process.h"

#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"

extern char** environ;

namespace lockstep {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& arguments) {
  std::vector<char*> out;
  for (const std::string& argument : arguments) out.push_back(const_cast<char*>(argument.c_str()));
  out.push_back(nullptr);
  return out;
}

Error cannot_start(const std::string& program, int code) {
  return error("{}: cannot start: {}", printable(program), std::strerror(code));
}

// The text up to its end, which a reader may wait for.
std::string read_all(int fd) {
  std::string text;
  char piece[4096];
  for (;;) {
    const ssize_t count = ::read(fd, piece, sizeof piece);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(piece, static_cast<size_t>(count));
  }
}

}  // namespace

Result<ProcessOutcome> run_process(const std::vector<std::string>& arguments,
                                   ProcessOutput output) {
  LS_CHECK(!arguments.empty());
  int pipe_ends[2] = {-1, -1};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (output == ProcessOutput::kCapture) {
    if (::pipe2(pipe_ends, O_CLOEXEC) != 0) return cannot_start(arguments[0], errno);
    posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  } else {
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  }
  pid_t child = 0;
  const int failed = ::posix_spawnp(&child, arguments[0].c_str(), &actions, nullptr,
                                    pointers(arguments).data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (pipe_ends[1] >= 0) ::close(pipe_ends[1]);
  ProcessOutcome outcome;
  if (failed == 0 && pipe_ends[0] >= 0) outcome.output = read_all(pipe_ends[0]);
  if (pipe_ends[0] >= 0) ::close(pipe_ends[0]);
  if (failed != 0) return cannot_start(arguments[0], failed);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return error("{}: cannot wait for it: {}", arguments[0], strerror(errno));
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

Error become_process(const std::vector<std::string>& arguments) {
  LS_CHECK(!arguments.empty());
  std::signal(SIGXFSZ, SIG_DFL);  // main() ignores it; that would be inherited
  ::execvp(arguments[0].c_str(), pointers(arguments).data());
  return cannot_start(arguments[0], errno);
}

}  // namespace lockstep
