// One line a request on standard error, as text or JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "server/metrics.h"

namespace lockstep::server {

struct LogEntry {
  std::string remote;  // address of the client
  std::string method;  // empty: the request could not be read
  std::string path;
  int status = 0;
  double milliseconds = 0;
  int64_t bytes = 0;  // sent
  // Of requests for text.
  std::string job_id;
  std::string outcome;
  int64_t tokens_in = 0;
  int64_t tokens_out = 0;
  std::optional<double> first_token_ms;
  std::string prompt;  // only where the operator asked for it
};

class Log {
 public:
  enum class Format { kText, kJson };
  Log(Format format, Metrics& metrics);

  void request(const LogEntry& entry) noexcept;
  void note(std::string_view message) noexcept;  // what happened outside of a request

 private:
  void write(std::string line);
  void drop() noexcept;

  Format format_;
  Metrics& metrics_;
  int64_t dropped_ = 0;  // since the last line that was written
};

std::string text_line(const LogEntry& entry);
std::string json_line(const LogEntry& entry);

}  // namespace lockstep::server
