#include "server/log.h"

#include <chrono>

#include <fmt/chrono.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <unistd.h>

#include "base/text.h"
#include "server/api_error.h"

namespace lockstep::server {
namespace {

// A pipe that is ready takes this much without waiting (POSIX: PIPE_BUF is 4096 on Linux).
constexpr size_t kLongestLine = 4000;

std::string now() {
  const auto time = std::chrono::system_clock::now();
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count() % 1000;
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(time)), milliseconds);
}

// As much of a text as a line has room for, without cutting a character in two.
std::string cut(const std::string& text, int64_t chars) {
  return printable(text, chars);
}

}  // namespace

std::string text_line(const LogEntry& entry) {
  std::string line = fmt::format("{} {} {} {} {:.1f} ms {} bytes", entry.remote,
                                 entry.method.empty() ? "-" : entry.method,
                                 entry.path.empty() ? "-" : cut(entry.path, 200), entry.status,
                                 entry.milliseconds, entry.bytes);
  if (!entry.job_id.empty()) {
    line += fmt::format(" job={} in={} out={} {}", cut(entry.job_id, 256), entry.tokens_in,
                        entry.tokens_out, entry.outcome);
    if (entry.first_token_ms) line += fmt::format(" first={:.1f}ms", *entry.first_token_ms);
  }
  if (!entry.prompt.empty()) line += fmt::format(" prompt={}", cut(entry.prompt, 600));
  return line;
}

std::string json_line(const LogEntry& entry) {
  nlohmann::ordered_json json = {
      {"remote", entry.remote}, {"method", cut(entry.method, 20)},   {"path", cut(entry.path, 200)},
      {"status", entry.status}, {"duration_ms", entry.milliseconds}, {"bytes", entry.bytes}};
  if (!entry.job_id.empty()) {
    json["job_id"] = entry.job_id;
    json["outcome"] = entry.outcome;
    json["tokens_in"] = entry.tokens_in;
    json["tokens_out"] = entry.tokens_out;
    if (entry.first_token_ms) json["first_token_ms"] = *entry.first_token_ms;
  }
  if (!entry.prompt.empty()) json["prompt"] = cut(entry.prompt, 300);
  return dump(json);
}

Log::Log(Format format, Metrics& metrics) : format_(format), metrics_(metrics) {}

void Log::request(const LogEntry& entry) noexcept try {
  if (format_ == Format::kText) return write(fmt::format("{} {}", now(), text_line(entry)));
  // The time comes first, as in the text.
  write(fmt::format("{{\"time\":\"{}\",{}", now(), json_line(entry).substr(1)));
} catch (...) {
  drop();
}

void Log::note(std::string_view message) noexcept try {
  if (format_ == Format::kText)
    write(fmt::format("{} {}", now(), printable(message)));
  else
    write(dump({{"time", now()}, {"message", message}}));
} catch (...) {
  drop();
}

void Log::drop() noexcept {
  ++dropped_;
  ++metrics_.log_lines_dropped;
}

// Nobody may read standard error, and the network thread never waits: what does not fit is dropped
// and counted, as is what there is no memory for.
void Log::write(std::string line) {
  if (line.size() > kLongestLine) line.resize(kLongestLine);
  line += '\n';
  pollfd ready{STDERR_FILENO, POLLOUT, 0};
  const bool writable = ::poll(&ready, 1, 0) == 1 && (ready.revents & POLLOUT) != 0;
  if (!writable || ::write(STDERR_FILENO, line.data(), line.size()) < 0) return drop();
  if (const int64_t lost = std::exchange(dropped_, 0); lost > 0)
    note(fmt::format("{} log lines were dropped: standard error was not read, or memory was short",
                     lost));
}

}  // namespace lockstep::server
