// lockstep bench: how fast a model runs here, held against what the memory allows.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/bandwidth.h"
#include "base/notice.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "base/shown_text.h"
#include "base/table.h"
#include "base/text.h"
#include "cli/bench_start.h"
#include "cli/command.h"
#include "cli/device.h"
#include "cli/model_path.h"
#include "cli/number_list.h"
#include "cli/options.h"
#include "engine/cost.h"
#include "engine/speed.h"
#include "exec/registry.h"
#include "model/model.h"

namespace lockstep::cli {
namespace bench_command {

using engine::SpeedTest;
using Json = nlohmann::ordered_json;

struct Flags {
  std::string model = kDefaultModel;
  std::vector<int64_t> prompts = {128, 512};
  std::vector<int64_t> generations = {128};
  std::vector<std::string> prompt_lists;  // as given, in place of these
  std::vector<std::string> generation_lists;
  CLI::Option* prompts_given = nullptr;
  CLI::Option* generations_given = nullptr;
  int64_t repeats = 5;
  DeviceFlags device;
  bool start = false;
  bool json = false;
};

struct Outcome {
  SpeedTest test;
  engine::Speeds speeds;
  double multiply_adds;     // of a prompt, a token; 0 for generation
  engine::Traffic traffic;  // of generation; nothing for a prompt

  bool is_prompt() const { return test.kind == SpeedTest::Kind::kPrompt; }
  double multiply_adds_per_second() const { return multiply_adds * speeds.mean(); }
  double bytes_per_second() const { return traffic.bytes() * speeds.mean(); }
};

struct Report {
  const model::Model& model;
  const exec::Device& device;
  exec::Precision precision;
  int threads;
  double load_seconds;
  Bandwidth bandwidth;
  std::vector<Outcome> outcomes;

  std::string file_name() const {
    return std::filesystem::path(model.file().path()).filename().string();
  }
  double share(const Outcome& outcome) const {
    return outcome.bytes_per_second() / bandwidth.bytes_per_second;
  }
};

// Tests of one kind that fit the context. One that was asked for and does not is an error; one of
// the defaults is left out, so that small models can be measured too.
Result<void> add_tests(std::vector<SpeedTest>& tests, SpeedTest::Kind kind,
                       const std::vector<int64_t>& counts, const CLI::Option* given,
                       int64_t context) {
  for (const int64_t count : counts) {
    const SpeedTest test{kind, count};
    if (count == 0) continue;
    if (count <= context) {
      tests.push_back(test);
    } else if (given->count() > 0) {
      return error("{} takes {} positions; the model's context has {}", test.name(), count,
                   context);
    } else {
      notice("lockstep: {} is left out, since the model's context has {} positions\n", test.name(),
             context);
    }
  }
  return {};
}

Result<std::vector<SpeedTest>> choose_tests(const Flags& flags, int64_t context) {
  std::vector<SpeedTest> tests;
  LS_TRY_VOID(
      add_tests(tests, SpeedTest::Kind::kPrompt, flags.prompts, flags.prompts_given, context));
  LS_TRY_VOID(add_tests(tests, SpeedTest::Kind::kGeneration, flags.generations,
                        flags.generations_given, context));
  if (tests.empty()) return error("nothing to measure: -p and -n leave no test");
  return tests;
}

Result<Outcome> measure(const SpeedTest& test, int64_t repeats, const op::Program& program,
                        exec::Executor& executor) {
  Progress progress(test.name(), repeats + 1, "runs");
  LS_TRY(engine::Speeds speeds, engine::measure(executor, program.vocabulary, test, repeats,
                                                [&] { progress.advance(1); }));
  Outcome outcome{test, std::move(speeds), 0, {}};
  if (outcome.is_prompt())
    outcome.multiply_adds =
        engine::prompt_multiply_adds(program, test.tokens) / static_cast<double>(test.tokens);
  else
    outcome.traffic = engine::generation_traffic(program, test.tokens, executor.precision().kv);
  return outcome;
}

Json to_json(const Report& report, const Outcome& outcome) {
  Json json;
  json["test"] = outcome.test.name();
  json["kind"] = outcome.is_prompt() ? "prompt" : "generation";
  json["tokens"] = outcome.test.tokens;
  json["tokens_per_second"] = outcome.speeds.mean();
  json["standard_deviation"] = outcome.speeds.deviation();
  json["median"] = outcome.speeds.median();
  json["samples"] = outcome.speeds.samples();
  if (outcome.is_prompt()) {
    json["multiply_adds_per_token"] = outcome.multiply_adds;
    json["multiply_adds_per_second"] = outcome.multiply_adds_per_second();
  } else {
    json["weight_bytes_per_token"] = outcome.traffic.weight_bytes;
    json["kv_bytes_per_token"] = outcome.traffic.kv_bytes;
    json["bytes_per_token"] = outcome.traffic.bytes();
    json["bytes_per_second"] = outcome.bytes_per_second();
    json["bandwidth_share"] = report.share(outcome);
  }
  return json;
}

Json to_json(const Report& report) {
  Json json;
  json["model"] = {{"file", report.file_name()},
                   {"architecture", report.model.config().arch->name},
                   {"size_bytes", report.model.file().size_bytes()}};
  json["device"] = report.device.name;
  json["threads"] = report.threads;
  json["precision"] = {{"compute", report.precision.compute},
                       {"activations", report.precision.activations},
                       {"kv", report.precision.kv}};
  json["load_seconds"] = report.load_seconds;
  json["bandwidth"] = {{"bytes_per_second", report.bandwidth.bytes_per_second},
                       {"buffer_bytes", report.bandwidth.buffer_bytes}};
  json["results"] = Json::array();
  for (const Outcome& outcome : report.outcomes)
    json["results"].push_back(to_json(report, outcome));
  return json;
}

void print_text(const Report& report) {
  const auto line = [](std::string_view label, const std::string& text) {
    fmt::print("{:<7} {}\n", label, text);
  };
  const exec::Precision& precision = report.precision;
  const bool several = report.device.has_threads && report.threads > 1;
  const std::string threads = several ? fmt::format(", {} threads", report.threads)
                              : report.device.has_threads ? ", 1 thread"
                                                          : "";
  line("model",
       fmt::format("{}, {}, {}B", printable(report.file_name()), report.model.config().arch->name,
                   human(report.model.file().size_bytes())));
  line("device",
       fmt::format("{}{}; computes in {}, activations {}, KV cache {}", report.device.name, threads,
                   precision.compute, precision.activations, precision.kv));
  line("memory", fmt::format("{:.1f} GB/s read by {}", report.bandwidth.bytes_per_second / 1e9,
                             several ? "them together" : "it"));
  fmt::print("\n");
  Table table({{"test"},
               {"tokens/s", true},
               {"median", true, 1},
               {"MB/token", true, 2},
               {"GB/s", true},
               {"of memory", true},
               {"G mul-add/s", true}});
  for (const Outcome& outcome : report.outcomes) {
    const bool prompt = outcome.is_prompt();
    table.add({outcome.test.name(),
               fmt::format("{:.2f} ± {:.2f}", outcome.speeds.mean(), outcome.speeds.deviation()),
               fmt::format("{:.2f}", outcome.speeds.median()),
               prompt ? "" : fmt::format("{:.1f}", outcome.traffic.bytes() / 1e6),
               prompt ? "" : fmt::format("{:.2f}", outcome.bytes_per_second() / 1e9),
               prompt ? "" : fmt::format("{:.1f}%", 100 * report.share(outcome)),
               prompt ? fmt::format("{:.2f}", outcome.multiply_adds_per_second() / 1e9) : ""});
  }
  fmt::print("{}", table.render(terminal_width(STDOUT_FILENO, INT64_MAX),
                                Paint(terminal_colours(STDOUT_FILENO))));
}

Result<int> run_start(const Flags& flags) {
  if (flags.generations_given->count() > 0)
    return error("--start measures up to the first token; -n is for what comes after it");
  const bool given = flags.prompts_given->count() > 0;
  if (given && (flags.prompts.size() != 1 || flags.prompts[0] == 0))
    return error("--start takes one prompt of one token or more, such as -p 128");
  return bench_start({.model = flags.model,
                      .prompt_tokens = flags.prompts[0],
                      .repeats = flags.repeats,
                      .device = flags.device,
                      .json = flags.json});
}

Result<int> run(const Flags& flags) {
  LS_TRY(const exec::Device* device, find_device(flags.device));
  LS_TRY(const std::string path, model_path(flags.model));
  LS_TRY(const model::Model model, model::Model::load(path, !flags.device.no_map));
  LS_TRY(const auto tests, choose_tests(flags, model.config().context_length));
  exec::Options options = options_of(flags.device);
  const int threads = options.threads > 0 ? options.threads : available_cores();
  options.threads = threads;

  // Before the model takes its memory; the buffer is gone when that comes.
  LS_TRY(const Bandwidth bandwidth, device->read_bandwidth(threads));

  const int64_t context = std::ranges::max(tests, {}, &SpeedTest::tokens).tokens;
  LS_TRY(const op::Program program, model.program(context));
  const auto start = std::chrono::steady_clock::now();
  LS_TRY(const auto executor, device->create(program, options));
  const std::chrono::duration<double> load = std::chrono::steady_clock::now() - start;

  Report report{model, *device, executor->precision(), threads, load.count(), bandwidth, {}};
  for (const SpeedTest& test : tests) {
    LS_TRY(Outcome outcome, measure(test, flags.repeats, program, *executor));
    report.outcomes.push_back(std::move(outcome));
  }
  if (flags.json)
    fmt::print("{}\n", json_text(to_json(report)));
  else
    print_text(report);
  return kDone;
}

// "128,512" and "64" are 128, 512, 64; nothing leaves the default.
void take_counts(const std::vector<std::string>& lists, std::vector<int64_t>& counts) {
  if (!lists.empty()) counts.clear();
  for (const std::string& list : lists) {
    const auto parsed = parse_counts(list);
    LS_CHECK(parsed.ok());  // the option has checked it
    counts.insert(counts.end(), parsed->begin(), parsed->end());
  }
}

std::function<Result<int>()> declare(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  const auto counts = [&](const std::string& names, std::vector<std::string>& lists,
                          const std::vector<int64_t>& values, const std::string& help) {
    return add_values(app, names, lists, kCounts, help)
        ->default_str(fmt::format("{}", fmt::join(values, ",")));
  };
  add_value(app, "-m,--model", flags->model, kModel,
            "GGUF file, folder from the hub, or the name of a model")
      ->default_str(flags->model);
  flags->prompts_given = counts("-p,--prompt", flags->prompt_lists, flags->prompts,
                                "Evaluate a prompt of N random tokens; several with commas or by "
                                "repeating it; 0: no such test");
  flags->generations_given =
      counts("-n,--generate", flags->generation_lists, flags->generations,
             "Evaluate N random tokens one after another, from an empty cache; likewise");
  show_default(add_number(app, "-r,--repeats", flags->repeats, {1, 1000000},
                          "Measured runs of each test, after one to warm up"),
               flags->repeats);
  declare_device(app, flags->device);
  app.add_flag("--start", flags->start,
               "Measure instead how long `lockstep run` takes from its start to the first token, "
               "by parts, each time in a new process; -p is the prompt");
  app.add_flag("--json", flags->json, "Print one JSON object with every run");
  return [flags] {
    take_counts(flags->prompt_lists, flags->prompts);
    take_counts(flags->generation_lists, flags->generations);
    return flags->start ? run_start(*flags) : run(*flags);
  };
}

}  // namespace bench_command

const Command kBenchCommand = {
    "bench",
    "Measure prompt and generation speed",
    "  lockstep bench -m model.gguf\n"
    "  lockstep bench -m model.gguf -p 128,512 -n 64 -t 2 -r 10\n"
    "  lockstep bench -m model.gguf -p 0 -n 32 --device reference --json\n"
    "  lockstep bench -m model.gguf --start -p 512 --device cuda\n"
    "\n"
    "GB/s: the weights that a token reads, as they lie in the file, and the KV cache halfway, "
    "times\n"
    "tokens a second. Of memory: its share of what the same number of threads reads from memory;\n"
    "a model that the caches hold may pass 100%. bench/side_by_side compares with llama.cpp.\n",
    bench_command::declare,
};

}  // namespace lockstep::cli
