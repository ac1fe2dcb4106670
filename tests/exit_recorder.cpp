// Test-only: our own recorder and logger in the trap that toy_logger.cpp falls into. They are
// static objects, and the process ends by exit() in the middle of a run, with an atexit function
// that was registered while they were made. What they wrote must be true all the same.
//
// exit_recorder MODEL TRACE LOG STEPS
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "exec/registry.h"
#include "model/model.h"
#include "trace/jsonl_logger.h"
#include "trace/recorder.h"

namespace {

using namespace lockstep;

template <class T>
T must(Result<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "%s\n", result.error().message.c_str());
  std::exit(2);
}

struct Engine {
  explicit Engine(char** arguments)
      : model(must(model::Model::load(arguments[1]))),
        program(must(model.program(64))),
        executor(must(must(exec::find_device(""))->create(program, {}))) {
    std::atexit([] { std::fputs("leaving\n", stderr); });
    trace::RecordOptions options;
    options.folder = arguments[2];
    trace::Manifest start;
    start.engine.name = "exit_recorder";
    const exec::Precision precision = executor->precision();
    start.engine.precision = {std::string(precision.compute), std::string(precision.activations),
                              std::string(precision.kv)};
    recorder = must(trace::Recorder::create(program, executor->dtype(), options, start));
    trace::JsonlLogOptions log;
    log.file = arguments[3];
    logger = must(trace::JsonlLogger::create(program, log));
    observers.add(recorder.get());
    observers.add(logger.get());
  }

  model::Model model;
  op::Program program;
  std::unique_ptr<exec::Executor> executor;
  std::unique_ptr<trace::Recorder> recorder;
  std::unique_ptr<trace::JsonlLogger> logger;
  op::Observers observers;
};

Engine& engine(char** arguments) {
  static Engine instance(arguments);
  return instance;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  Engine& it = engine(argv);
  for (int i = 0; i < std::atoi(argv[4]); ++i) {
    const exec::TokenId token = 100 + i;
    exec::Step step;
    step.tokens = std::span(&token, 1);
    step.all_logits = true;
    step.observer = &it.observers;
    must(it.executor->run(step));
  }
  std::exit(0);
}
