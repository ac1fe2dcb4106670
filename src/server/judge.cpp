#include "server/judge.h"

#include <algorithm>
#include <filesystem>

#include "base/json_reader.h"
#include "base/limited_process.h"
#include "base/mapped_file.h"
#include "base/memory.h"
#include "base/text.h"
#include "trace/trace.h"

namespace lockstep::server {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostResultBytes = size_t{32} << 20;
constexpr size_t kLongestSaid = 600;

std::string joined(const std::vector<engine::TokenId>& tokens) {
  std::string out;
  for (const engine::TokenId token : tokens)
    out += fmt::format("{}{}", out.empty() ? "" : ",", token);
  return out;
}

// The last lines that a program wrote, where it says what is wrong.
std::string said(const std::string& output) {
  std::string text =
      output.size() > kLongestSaid ? output.substr(output.size() - kLongestSaid) : output;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return printable(text, static_cast<int64_t>(kLongestSaid));
}

// `good`: the exit statuses that mean success are 0 to this.
Result<void> run_part(const std::vector<std::string>& command, const ProcessLimits& limits,
                      const std::atomic<bool>& cancel, const char* what, int good) {
  LS_TRY(const LimitedOutcome outcome, run_limited(command, limits, &cancel));
  if (outcome.end == ProcessEnd::kCancelled) return error("the judgement was cancelled");
  if (outcome.end == ProcessEnd::kExited && outcome.status <= good) return {};
  const std::string words = said(outcome.output);
  return error("{} {}{}{}", what, describe(outcome, limits), words.empty() ? "" : ": ", words);
}

// Infinity is null there.
Result<std::optional<double>> number_or_nothing(const JsonReader& value) {
  if (!value.present()) return std::optional<double>();
  LS_TRY(const double number, value.number());
  return std::optional(number);
}

}  // namespace

Result<JudgeVerdict> read_verdict(const std::string& file) {
  LS_TRY(const MappedFile read, MappedFile::read(file));
  const auto bytes = read.bytes();
  if (bytes.size() > kMostResultBytes)
    return error("the comparison's result has {} bytes, expected at most {}", bytes.size(),
                 kMostResultBytes);
  LS_TRY(const nlohmann::json json,
         parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                    "the comparison's result"));
  const JsonReader result(json, "the comparison's result");
  JudgeVerdict out;
  LS_TRY(out.parity, result["parity"].boolean());
  LS_TRY(out.verdict, result["verdict"].text());
  LS_TRY(out.headline, result["headline"].text());
  LS_TRY(out.mean_kl, number_or_nothing(result["choices"]["mean_kl"]));
  LS_TRY(const std::vector<JsonReader> diagnoses, result["diagnoses"].items());
  if (!diagnoses.empty()) {
    LS_TRY(out.cause, diagnoses[0]["text"].text());
  }
  LS_TRY(const std::vector<JsonReader> checkpoints, result["checkpoints"].items());
  for (const JsonReader& checkpoint : checkpoints) {
    LS_TRY(const std::optional<double> ratio, number_or_nothing(checkpoint["suspect"]["ratio"]));
    if (ratio) out.worst_ratio = std::max(out.worst_ratio.value_or(0), *ratio);
  }
  return out;
}

Result<JudgeVerdict> judge(const JudgeTask& task, const JudgeOptions& options,
                           const std::atomic<bool>& cancel, const std::function<void()>& judging) {
  const fs::path folder = task.folder;
  const std::string reference = (folder / kReferenceTrace).string();
  ProcessLimits limits;
  // Where memory is short, a judgement ends and not a job.
  limits.memory_bytes = std::max<int64_t>(available_memory_bytes() / 4 * 3, 1);
  limits.without_variable = "ORCH_LOG_FILE";  // the log is about jobs
  const auto command = [&](std::vector<std::string> words) {
    words.insert(words.begin(), options.program);
    words.insert(words.end(), {"-m", task.model});
    if (options.threads > 0)
      words.insert(words.end(), {"--threads", std::to_string(options.threads)});
    return words;
  };
  // The answer's tokens are given: double precision is asked what it makes of them, not what it
  // would have said.
  LS_TRY_VOID(
      run_part(command({"run", "--device", "reference", "--tokens", joined(task.tokens), "-n", "0",
                        "--ctx", std::to_string(task.context), "--trace", reference}),
               limits, cancel, "the run in double precision", 0));
  LS_TRY(const trace::Trace truth, trace::Trace::open(reference));
  if (truth.manifest().model.fingerprint != task.fingerprint)
    return error("{}: the file is no longer the model that is served", task.model);
  judging();
  const std::string result = (folder / "result.json").string();
  limits.output_file = result;
  LS_TRY_VOID(run_part(command({"compare", reference, (folder / kAnswerTrace).string(), "--json",
                                "--html", (folder / kReportPage).string(), "--budget",
                                fmt::format("{}", options.budget_seconds)}),
                       limits, cancel, "the comparison", 1));
  return read_verdict(result);
}

}  // namespace lockstep::server
