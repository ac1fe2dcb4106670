// What recording costs: generation without, with and again without a trace, in rounds. The two
// without show how far the machine's noise reaches.
//
//   bench_recording MODEL.gguf [TOKENS [ROUNDS [CHECKPOINTS [DEVICE]]]]
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>
#include <unistd.h>

#include "base/temporary_folder.h"
#include "engine/sampler.h"
#include "exec/registry.h"
#include "model/model.h"
#include "trace/recorder.h"

namespace lockstep {
namespace {

struct Seconds {
  double generation = 0;
  double rest = 0;  // until the trace's last bytes are on the disk
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// `tokens` tokens, one by one, each the likeliest.
Result<Seconds> generate(exec::Executor& executor, const op::Program& program, int64_t tokens,
                         const std::string& folder, const std::string& checkpoints) {
  executor.rewind(0);
  std::unique_ptr<trace::Recorder> recorder;
  if (!folder.empty()) {
    trace::RecordOptions options;
    options.folder = folder;
    options.checkpoints = checkpoints;
    options.last_logits = true;
    LS_TRY(recorder, trace::Recorder::create(program, executor.dtype(), options, {}));
  }
  const auto start = std::chrono::steady_clock::now();
  exec::TokenId token = 1;
  for (int64_t i = 0; i < tokens; ++i) {
    exec::Step step;
    step.tokens = std::span(&token, 1);
    step.observer = recorder.get();
    step.greedy = i + 1 < tokens;
    LS_TRY(const View logits, executor.run(step));
    LS_TRY(token, engine::largest(logits, 0));
  }
  Seconds seconds;
  seconds.generation = seconds_since(start);
  if (recorder != nullptr) LS_TRY_VOID(recorder->finish({}));
  seconds.rest = seconds_since(start) - seconds.generation;
  return seconds;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

Result<void> run(const std::string& path, int64_t tokens, int rounds,
                 const std::string& checkpoints, const std::string& device_name) {
  LS_TRY(const model::Model model, model::Model::load(path));
  LS_TRY(const op::Program program, model.program(std::min(tokens, model.config().context_length)));
  LS_TRY(const exec::Device* device, exec::find_device(device_name));
  LS_TRY(const auto executor, device->create(program, {}));
  tokens = program.context_length;
  LS_TRY_VOID(generate(*executor, program, tokens, "", ""));  // warm-up
  std::vector<double> plain, noise, cost, rest;
  for (int round = 0; round < rounds; ++round) {
    LS_TRY(const TemporaryFolder folder, TemporaryFolder::create());
    LS_TRY(const Seconds before, generate(*executor, program, tokens, "", ""));
    LS_TRY(const Seconds with,
           generate(*executor, program, tokens, (folder.path() / "trace").string(), checkpoints));
    LS_TRY(const Seconds after, generate(*executor, program, tokens, "", ""));
    plain.push_back(before.generation);
    noise.push_back(after.generation / before.generation);
    cost.push_back(2 * with.generation / (before.generation + after.generation));
    rest.push_back(with.rest);
  }
  fmt::print(
      "{}: {} tokens in {:.3f} s; with a trace of {} {:+.2f}%, without again {:+.2f}%; {:.0f} ms "
      "after the last token (medians of {})\n",
      device->name, tokens, median(plain), checkpoints, 100 * (median(cost) - 1),
      100 * (median(noise) - 1), 1e3 * median(rest), rounds);
  return {};
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr,
               "usage: bench_recording MODEL.gguf [TOKENS [ROUNDS [CHECKPOINTS [DEVICE]]]]\n");
    return 2;
  }
  const int64_t tokens = argc > 2 ? std::atoll(argv[2]) : 128;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 5;
  if (const auto outcome = lockstep::run(argv[1], tokens, rounds, argc > 4 ? argv[4] : "layers",
                                         argc > 5 ? argv[5] : "");
      !outcome.ok()) {
    fmt::print(stderr, "bench_recording: {}\n", outcome.error().message);
    return 2;
  }
  return 0;
}
