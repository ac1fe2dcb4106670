// What the worker counts, as Prometheus reads it. Of the network thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::server {

class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds);
  void add(double value);
  // All lines of the family.
  std::string render(std::string_view name, std::string_view help) const;

 private:
  std::vector<double> bounds_;   // ascending
  std::vector<int64_t> counts_;  // of values up to each bound and above the one before; the rest
  double sum_ = 0;
};

struct Metrics {
  Metrics();

  void count_request(std::string_view endpoint, int status);
  void count_job(std::string_view outcome);

  // One number with its type ("counter", "gauge") and help.
  static std::string render(std::string_view name, std::string_view type, std::string_view help,
                            double value);
  std::string render() const;  // all that is counted here

  std::map<std::pair<std::string, int>, int64_t, std::less<>> requests;  // by endpoint and status
  std::map<std::string, int64_t, std::less<>> jobs;                      // by outcome
  int64_t tokens_in = 0;
  int64_t tokens_reused = 0;
  int64_t tokens_out = 0;
  int64_t recordings_failed = 0;
  int64_t log_lines_dropped = 0;
  int64_t answers_given_up = 0;
  struct {
    int64_t parity = 0, no_parity = 0, failed = 0;
  } judgements;
  Histogram first_token;
  Histogram per_token;
};

// A label's value within quotes.
std::string escape_label(std::string_view text);

}  // namespace lockstep::server
