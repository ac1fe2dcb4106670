#include "cli/bench_start.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/process.h"
#include "base/progress.h"
#include "base/random.h"
#include "base/shown_text.h"
#include "base/table.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/model_path.h"
#include "cli/prompt.h"
#include "engine/session.h"
#include "model/model.h"

namespace lockstep::cli {
namespace start_bench {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

const Clock::time_point kProgramStart = Clock::now();

struct Part {
  const char* key;
  const char* name;
  const char* meaning;
};
constexpr Part kParts[] = {
    {"open_seconds", "open", "the file and its tokenizer"},
    {"load_seconds", "load", "the device, and the weights as it computes with them"},
    {"warm_up_seconds", "warm-up", "what the first prompt takes longer than the next ones"},
    {"prompt_seconds", "prompt", "the prompt itself"},
    {"first_token_seconds", "first token", "all of these"},
};

double median(std::vector<double> numbers) {
  std::ranges::sort(numbers);
  const size_t half = numbers.size() / 2;
  return numbers.size() % 2 == 1 ? numbers[half] : (numbers[half - 1] + numbers[half]) / 2;
}

// In this process, which has done nothing yet: what `lockstep run` does up to a first token.
Result<Json> measure(const StartBench& bench) {
  Clock::time_point last = kProgramStart;
  const auto lap = [&] {
    const Clock::time_point now = Clock::now();
    return std::chrono::duration<double>(now - std::exchange(last, now)).count();
  };
  LS_TRY(const std::string path, model_path(bench.model));
  LS_TRY(const model::Model model, model::Model::load(path, !bench.device.no_map));
  PromptFlags any;
  any.tokens = "0";
  LS_TRY(const Prompt prompt, read_prompt(any, model));  // for its tokenizer
  if (const int64_t most = model.config().context_length; bench.prompt_tokens > most)
    return error("a prompt of {} tokens; the model's context has {} positions", bench.prompt_tokens,
                 most);
  const double open = lap();
  LS_TRY(const exec::Device* device, find_device(bench.device));
  LS_TRY(const op::Program program, model.program(bench.prompt_tokens));
  LS_TRY(const auto executor, device->create(program, options_of(bench.device)));
  const double load = lap();

  Random random(static_cast<uint64_t>(bench.prompt_tokens));
  std::vector<exec::TokenId> tokens(static_cast<size_t>(bench.prompt_tokens));
  for (exec::TokenId& token : tokens)
    token = static_cast<exec::TokenId>(random.below(program.vocabulary));
  exec::Step step;
  step.tokens = tokens;
  lap();
  LS_TRY_VOID(engine::evaluate(*executor, step));
  const double first = lap();
  constexpr int kMore = 3;
  std::vector<double> more;
  for (int i = 0; i < kMore; ++i) {
    executor->rewind(0);
    lap();
    LS_TRY_VOID(engine::evaluate(*executor, step));
    more.push_back(lap());
  }
  const double warm = std::min(first, median(more));

  Json json;
  json["model"] = {{"file", std::filesystem::path(path).filename().string()},
                   {"architecture", model.config().arch->name},
                   {"size_bytes", model.file().size_bytes()}};
  json["device"] = device->name;
  json["prompt_tokens"] = bench.prompt_tokens;
  const double seconds[] = {open, load, first - warm, warm, open + load + first};
  for (size_t i = 0; i < std::size(kParts); ++i) json[kParts[i].key] = seconds[i];
  return json;
}

// The same in a new process.
Result<Json> measure_anew(const StartBench& bench) {
  std::vector<std::string> arguments = {
      "/proc/self/exe", "bench", "--start", "--json", "-r", "1", "-m", bench.model};
  const auto add = [&](std::initializer_list<std::string> more) {
    arguments.insert(arguments.end(), more);
  };
  add({"-p", std::to_string(bench.prompt_tokens)});
  const DeviceFlags& device = bench.device;
  if (!device.name.empty()) add({"--device", device.name});
  if (device.threads > 0) add({"-t", std::to_string(device.threads)});
  if (!device.kv.empty()) add({"--kv", device.kv});
  if (device.no_repack) add({"--no-repack"});
  if (device.no_pin) add({"--no-pin"});
  if (device.no_map) add({"--no-mmap"});
  LS_TRY(const ProcessOutcome outcome, run_process(arguments, ProcessOutput::kCapture));
  Json json = Json::parse(outcome.output, nullptr, false);
  if (outcome.status == 0 && !json.is_discarded()) return json;
  LS_TRY_VOID(measure(bench));  // here its message can be seen
  return error("a measured run ended with exit status {}", outcome.status);
}

void print_text(const Json& json, int64_t runs) {
  fmt::print("model   {}, {}, {}B\n", printable(json["model"]["file"].get<std::string>()),
             json["model"]["architecture"].get<std::string>(),
             human(json["model"]["size_bytes"].get<int64_t>()));
  fmt::print("device  {}\n", json["device"].get<std::string>());
  fmt::print(
      "prompt  {} tokens; {}\n\n", json["prompt_tokens"].get<int64_t>(),
      runs == 1 ? std::string("this process") : fmt::format("medians of {} new processes", runs));
  Table table({{"part"}, {"ms", true}, {"what", false, 1}});
  for (const Part& part : kParts)
    table.add({part.name, fmt::format("{:.1f}", 1e3 * json[part.key].get<double>()), part.meaning});
  fmt::print("{}", table.render(terminal_width(STDOUT_FILENO, INT64_MAX),
                                Paint(terminal_colours(STDOUT_FILENO))));
}

}  // namespace start_bench

Result<int> bench_start(const StartBench& bench) {
  using namespace start_bench;
  std::vector<Json> runs;
  Progress progress("start", bench.repeats, "runs");
  for (int64_t i = 0; i < bench.repeats; ++i) {
    LS_TRY(Json run, bench.repeats == 1 ? measure(bench) : measure_anew(bench));
    runs.push_back(std::move(run));
    progress.advance(1);
  }
  Json json = runs[0];
  json["runs"] = Json::array();
  for (const Json& run : runs) {
    Json times;
    for (const Part& part : kParts) times[part.key] = run[part.key];
    json["runs"].push_back(std::move(times));
  }
  for (const Part& part : kParts) {
    std::vector<double> seconds;
    for (const Json& run : runs) seconds.push_back(run[part.key].get<double>());
    json[part.key] = median(std::move(seconds));
  }
  if (bench.json)
    fmt::print("{}\n", json_text(json));
  else
    print_text(json, std::ssize(runs));
  return kDone;
}

}  // namespace lockstep::cli
