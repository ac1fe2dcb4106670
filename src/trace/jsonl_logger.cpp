#include "trace/jsonl_logger.h"

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "base/no_throw.h"
#include "base/text.h"
#include "trace/checkpoints.h"
#include "trace/jsonl.h"

namespace lockstep::trace {
namespace {

// For a pipe whose reader does not take the lines.
constexpr int kPatienceMs = 5000;

// 0, or the errno of what went wrong.
int write_lines(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t done = ::write(fd, text.data(), text.size());
    if (done >= 0) {
      text.remove_prefix(static_cast<size_t>(done));
    } else if (errno == EAGAIN) {
      pollfd ready{fd, POLLOUT, 0};
      const int found = ::poll(&ready, 1, kPatienceMs);
      if (found == 0) return ETIMEDOUT;
      if (found < 0 && errno != EINTR) return errno;
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace

struct JsonlLogger::State {
  State(const op::Program& p, JsonlLogOptions o)
      : program(p), options(std::move(o)), chosen(p.values.size()) {}
  ~State() {
    if (file >= 0) ::close(file);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const op::Program& program;
  JsonlLogOptions options;
  int file = -1;
  std::vector<bool> chosen;  // by value
  int64_t first_position = 0;
  int64_t tokens = 0;
  std::string lines;  // of this step
  int failure = 0;    // errno of the first line that was not written
};

Result<JsonlLogOptions> JsonlLogOptions::from_environment() {
  JsonlLogOptions options;
  if (const char* file = std::getenv("ORCH_LOG_FILE")) options.file = file;
  if (const char* team = std::getenv("ORCH_LOG_TEAM")) options.team = team;
  if (const char* values = std::getenv("ORCH_LOG_VALUES")) {
    const char* end = values + std::strlen(values);
    const auto [stop, problem] = std::from_chars(values, end, options.values);
    if (problem != std::errc() || stop != end || options.values < 1)
      return error("ORCH_LOG_VALUES is '{}'; expected a whole number from 1 on", values);
  }
  return options;
}

Result<std::unique_ptr<JsonlLogger>> JsonlLogger::create(const op::Program& program,
                                                         const JsonlLogOptions& options) {
  LS_TRY(const std::vector<op::ValueId> chosen, select_checkpoints(program, "layers"));
  auto state = std::make_unique<State>(program, options);
  // Without O_NONBLOCK a pipe that nobody reads would be waited for, here and when it is full.
  constexpr int kHow = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  state->file = ::open(options.file.c_str(), kHow, 0666);
  if (state->file < 0)
    return error("{}: cannot write the log (ORCH_LOG_FILE): {}", printable(options.file),
                 errno == ENXIO ? "a pipe that nobody reads" : std::strerror(errno));
  for (const op::ValueId id : chosen) state->chosen[static_cast<size_t>(id)] = true;
  return std::unique_ptr<JsonlLogger>(new JsonlLogger(std::move(state)));
}

JsonlLogger::JsonlLogger(std::unique_ptr<State> state) : state_(std::move(state)) {}
JsonlLogger::~JsonlLogger() = default;

void JsonlLogger::begin_step(int64_t first_position, int64_t tokens) {
  state_->first_position = first_position;
  state_->tokens = tokens;
  state_->lines.clear();
}

bool JsonlLogger::wants(op::ValueId id) const {
  return state_->chosen[static_cast<size_t>(id)];
}

void JsonlLogger::see(op::ValueId id, const View& view) {
  if (state_->failure == 0 && !no_throw([&] { return add_lines(id, view); }).ok())
    state_->failure = ENOMEM;
}

Result<void> JsonlLogger::add_lines(op::ValueId id, const View& view) {
  const int64_t rows = view.shape[0];
  const int64_t width = view.shape[1];
  JsonlRecord record;
  record.checkpoint = state_->program.value(id).name;
  record.team = state_->options.team;
  record.dtype = view.dtype;
  record.shape = {width};
  for (int64_t r = 0; r < rows; ++r) {
    // Only the last rows may be there (logits).
    record.position = state_->first_position + state_->tokens - rows + r;
    record.values.clear();
    for (int64_t i = 0; i < std::min(width, state_->options.values); ++i)
      record.values.push_back(view.at(r * width + i));
    state_->lines += jsonl_line(record);
  }
  return {};
}

void JsonlLogger::end_step(bool whole) {
  State& state = *state_;
  if (!whole || state.failure != 0) return;
  state.failure = write_lines(state.file, state.lines);
}

Result<void> JsonlLogger::finish() {
  if (state_->failure == 0) return {};
  return error("{}: cannot write the log (ORCH_LOG_FILE): {}", printable(state_->options.file),
               state_->failure == ETIMEDOUT ? "its reader does not take the lines"
                                            : std::strerror(state_->failure));
}

}  // namespace lockstep::trace
