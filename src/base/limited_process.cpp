#include "base/limited_process.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/close_files.h"
#include "base/text.h"

extern char** environ;

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

// The first and the last part of a text that may go on for ever.
class KeptText {
 public:
  explicit KeptText(int64_t most) : half_(static_cast<size_t>(most / 2)) {}

  void add(std::string_view text) {
    const size_t room = half_ - std::min(half_, first_.size());
    first_ += text.substr(0, room);
    last_ += text.substr(std::min(room, text.size()));
    if (last_.size() > 2 * half_ + 4096) drop();
  }
  void finish(LimitedOutcome& outcome) {
    drop();
    outcome.left_out = dropped_;
    outcome.output = first_;
    if (dropped_ > 0) outcome.output += fmt::format("\n... {} bytes left out ...\n", dropped_);
    outcome.output += last_;
  }

 private:
  void drop() {
    if (last_.size() <= half_) return;
    dropped_ += static_cast<int64_t>(last_.size() - half_);
    last_.erase(0, last_.size() - half_);
  }

  size_t half_;
  std::string first_, last_;
  int64_t dropped_ = 0;
};

std::optional<std::string> read_small(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return std::nullopt;
  char text[4096];
  const ssize_t count = ::read(file.get(), text, sizeof text);
  if (count <= 0) return std::nullopt;
  return std::string(text, static_cast<size_t>(count));
}

// Of a process: what it has written to in memory, which no other process and no file holds.
int64_t own_memory(const std::string& folder) {
  const auto status = read_small(folder + "/status");
  if (!status) return 0;
  int64_t kilobytes = 0;
  for (const char* field : {"RssAnon:", "RssShmem:", "VmSwap:"})
    if (const size_t at = status->find(field); at != std::string::npos)
      kilobytes += std::atoll(status->c_str() + at + std::strlen(field));
  return kilobytes * 1024;
}

// The group of a process, from its "stat": the name in it may hold anything but ends at the last ).
bool in_group(const std::string& folder, pid_t group) {
  const auto stat = read_small(folder + "/stat");
  if (!stat) return false;
  const size_t end = stat->rfind(')');
  if (end == std::string::npos) return false;
  char state = 0;
  int parent = 0, found = 0;
  return std::sscanf(stat->c_str() + end + 1, " %c %d %d", &state, &parent, &found) == 3 &&
         found == group;
}

int64_t memory_of_group(pid_t group) {
  DIR* all = ::opendir("/proc");
  if (all == nullptr) return 0;
  int64_t total = 0;
  while (const dirent* entry = ::readdir(all)) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
    const std::string folder = std::string("/proc/") + entry->d_name;
    if (in_group(folder, group)) total += own_memory(folder);
  }
  ::closedir(all);
  return total;
}

std::vector<char*> environment_without(const std::string& variable) {
  std::vector<char*> out;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (variable.empty() || !std::string_view(*entry).starts_with(variable + "="))
      out.push_back(*entry);
  out.push_back(nullptr);
  return out;
}

Result<pid_t> spawn(const std::vector<std::string>& arguments, const ProcessLimits& limits,
                    int output) {
  std::vector<char*> words;
  for (const std::string& argument : arguments)
    words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  std::vector<char*> environment = environment_without(limits.without_variable);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (limits.output_file.empty())
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  else
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, limits.output_file.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  // A connection of ours must not stay open because this program has it too.
  add_close_from(actions, STDERR_FILENO + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setpgroup(&attributes, 0);
  sigset_t signals;
  sigfillset(&signals);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  pid_t child = 0;
  const int failed =
      ::posix_spawnp(&child, words[0], &actions, &attributes, words.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (failed != 0)
    return error("{}: cannot start: {}", printable(arguments[0]), std::strerror(failed));
  // Where memory runs out, this program goes and ours stays.
  const Descriptor score(
      ::open(fmt::format("/proc/{}/oom_score_adj", child).c_str(), O_WRONLY | O_CLOEXEC));
  if (score.get() >= 0) static_cast<void>(!::write(score.get(), "1000", 4));
  return child;
}

// What lies in the pipe now: at most as much as one holds, since more may come without end.
void drain(int fd, KeptText& text) {
  char piece[1 << 14];
  for (int i = 0; i < 64; ++i) {
    const ssize_t count = ::read(fd, piece, sizeof piece);
    if (count <= 0) return;
    text.add({piece, static_cast<size_t>(count)});
  }
}

}  // namespace

Result<LimitedOutcome> run_limited(const std::vector<std::string>& arguments,
                                   const ProcessLimits& limits, const std::atomic<bool>* cancel) {
  LS_CHECK(!arguments.empty());
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return error("{}: cannot start: {}", printable(arguments[0]), std::strerror(errno));
  const Descriptor reading(ends[0]);
  Descriptor writing(ends[1]);
  ::fcntl(reading.get(), F_SETFL, O_NONBLOCK);
  const auto start = Clock::now();
  LS_TRY(const pid_t child, spawn(arguments, limits, writing.get()));
  writing.close();
  // Tells of the end at once; where the system has none, a look every few milliseconds does.
  const Descriptor ending(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));

  LimitedOutcome outcome;
  KeptText text(limits.output_bytes);
  bool readable = true;
  auto next_look = start;
  std::optional<ProcessEnd> killed;
  int status = 0;
  for (;;) {
    pollfd waits[2] = {{readable ? reading.get() : -1, POLLIN, 0}, {ending.get(), POLLIN, 0}};
    ::poll(waits, 2, ending.get() >= 0 ? 50 : 5);
    drain(reading.get(), text);
    if ((waits[0].revents & POLLHUP) != 0) readable = false;  // else poll would not wait any more
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child || (ended < 0 && errno != EINTR)) break;
    const auto now = Clock::now();
    if (!killed && cancel != nullptr && *cancel) killed = ProcessEnd::kCancelled;
    if (!killed && limits.seconds > 0 &&
        std::chrono::duration<double>(now - start).count() > limits.seconds)
      killed = ProcessEnd::kTime;
    if (!killed && limits.memory_bytes > 0 && now >= next_look) {
      if (memory_of_group(child) > limits.memory_bytes) killed = ProcessEnd::kMemory;
      next_look = now + std::chrono::milliseconds(50);
    }
    if (killed) ::kill(-child, SIGKILL);
  }
  ::kill(-child, SIGKILL);  // what it left running; the pipe may stay open in what left the group
  drain(reading.get(), text);
  text.finish(outcome);
  const bool exited = WIFEXITED(status);
  outcome.end = killed ? *killed : exited ? ProcessEnd::kExited : ProcessEnd::kSignal;
  outcome.status = exited ? WEXITSTATUS(status) : WTERMSIG(status);
  return outcome;
}

std::string describe(const LimitedOutcome& outcome, const ProcessLimits& limits) {
  switch (outcome.end) {
    case ProcessEnd::kExited:
      return fmt::format("ended with exit status {}", outcome.status);
    case ProcessEnd::kSignal:
      return fmt::format("was ended by signal {} ({})", outcome.status,
                         ::strsignal(outcome.status));
    case ProcessEnd::kTime:
      return fmt::format("took longer than {:g} s", limits.seconds);
    case ProcessEnd::kMemory:
      return fmt::format("took more than {}B of memory", human(limits.memory_bytes));
    case ProcessEnd::kCancelled:
      break;
  }
  return "was ended with this program";
}

}  // namespace lockstep
