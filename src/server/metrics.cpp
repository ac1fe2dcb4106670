#include "server/metrics.h"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep::server {
namespace {

std::string header(std::string_view name, std::string_view type, std::string_view help) {
  return fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

// Every outcome is there from the start, so that rates can be taken of all.
constexpr std::string_view kOutcomes[] = {"end",     "stop",      "length",
                                          "context", "cancelled", "disconnected",
                                          "error",   "rejected",  "shutdown"};

}  // namespace

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

void Histogram::add(double value) {
  const auto place = std::ranges::lower_bound(bounds_, value) - bounds_.begin();
  ++counts_[static_cast<size_t>(place)];
  sum_ += value;
}

std::string Histogram::render(std::string_view name, std::string_view help) const {
  std::string out = header(name, "histogram", help);
  int64_t count = 0;
  for (size_t i = 0; i < bounds_.size(); ++i) {
    count += counts_[i];
    out += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, bounds_[i], count);
  }
  count += counts_.back();
  out +=
      fmt::format("{0}_bucket{{le=\"+Inf\"}} {1}\n{0}_sum {2}\n{0}_count {1}\n", name, count, sum_);
  return out;
}

Metrics::Metrics()
    : first_token({0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}),
      per_token({0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                 1, 2.5}) {
  for (const std::string_view outcome : kOutcomes) jobs.emplace(outcome, 0);
}

void Metrics::count_request(std::string_view endpoint, int status) {
  ++requests[{std::string(endpoint), status}];
}

void Metrics::count_job(std::string_view outcome) {
  ++jobs[std::string(outcome)];
}

std::string escape_label(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out;
}

std::string Metrics::render(std::string_view name, std::string_view type, std::string_view help,
                            double value) {
  return fmt::format("{}{} {}\n", header(name, type, help), name, value);
}

std::string Metrics::render() const {
  std::string out = header("lockstep_http_requests_total", "counter",
                           "HTTP requests answered, by endpoint and status.");
  for (const auto& [key, count] : requests)
    out += fmt::format("lockstep_http_requests_total{{endpoint=\"{}\",status=\"{}\"}} {}\n",
                       escape_label(key.first), key.second, count);
  out += header("lockstep_jobs_total", "counter", "Requests for text, by outcome.");
  for (const auto& [outcome, count] : jobs)
    out += fmt::format("lockstep_jobs_total{{outcome=\"{}\"}} {}\n", outcome, count);
  out += header("lockstep_judgements_total", "counter", "Answers that were judged, by outcome.");
  for (const auto& [outcome, count] :
       {std::pair("parity", judgements.parity), std::pair("no_parity", judgements.no_parity),
        std::pair("failed", judgements.failed)})
    out += fmt::format("lockstep_judgements_total{{outcome=\"{}\"}} {}\n", outcome, count);
  const auto counter = [&](std::string_view name, std::string_view help, int64_t value) {
    out += render(name, "counter", help, static_cast<double>(value));
  };
  counter("lockstep_prompt_tokens_total", "Tokens of prompts.", tokens_in);
  counter("lockstep_prompt_tokens_reused_total", "Of those, found in the KV cache.", tokens_reused);
  counter("lockstep_generated_tokens_total", "Tokens generated.", tokens_out);
  counter("lockstep_recordings_failed_total", "Jobs of which a recording could not be written.",
          recordings_failed);
  counter("lockstep_log_lines_dropped_total", "Log lines that nobody took in time.",
          log_lines_dropped);
  counter("lockstep_answers_given_up_total", "Answers that their clients did not read.",
          answers_given_up);
  out += first_token.render("lockstep_time_to_first_token_seconds",
                            "From a job's acceptance to its first token.");
  out += per_token.render("lockstep_time_per_token_seconds", "From one token to the next.");
  return out;
}

}  // namespace lockstep::server
