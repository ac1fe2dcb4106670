// lockstep capture: records what another engine computes, by the Python package that comes with the
// program.
#include <memory>

#include <fmt/ranges.h>

#include "base/process.h"
#include "cli/command.h"
#include "cli/model_path.h"
#include "cli/python_environment.h"
#include "gguf/file.h"
#include "gguf/fingerprint.h"

namespace lockstep::cli {
namespace capture_command {

struct CapturedEngine {
  const char* module;
  bool reads_gguf;
  PythonNeeds needs;  // the packages are those of python/pyproject.toml
};

const std::vector<CapturedEngine>& engines() {
  static const std::vector<CapturedEngine> kEngines = {
      {"lockstep.capture.llama_cpp",
       true,
       {"llama.cpp",
        {"numpy", "llama_cpp"},
        {"numpy>=1.22", "llama-cpp-python==0.3.36"},
        "llama.cpp is built from source: minutes, and a C++ compiler"}},
      {"lockstep.capture.transformers",
       false,
       {"transformers",
        {"numpy", "torch", "transformers"},
        {"numpy>=1.22", "transformers>=5.0", "torch>=2.4"},
        "about 5 GB"}},
  };
  return kEngines;
}

// A flag that the engine's module reads; handed on as it is.
struct PassedFlag {
  const char* name;  // of the module
  CLI::Option* option;
  std::string value;
};

struct Flags {
  std::string engine;
  std::string model;
  std::string python;
  bool yes = false;
  bool engine_help = false;
  std::vector<std::unique_ptr<PassedFlag>> passed;
};

Result<int> run(const Flags& flags, const std::vector<std::string>& others) {
  const CapturedEngine* engine = nullptr;
  for (const CapturedEngine& known : engines())
    if (known.needs.name == flags.engine) engine = &known;
  LS_CHECK(engine != nullptr);  // CLI11 has checked it
  LS_TRY(const std::string folder, package_folder());

  // With "=", so that a value may begin with a dash.
  std::vector<std::string> arguments;
  if (flags.engine_help) {
    arguments = {"--help"};
  } else {
    std::string model = flags.model;
    if (engine->reads_gguf) {
      LS_TRY(model, model_path(model.empty() ? kDefaultModel : model));
      LS_TRY(const gguf::File file, gguf::File::open(model));
      arguments.push_back("--fingerprint=" + gguf::fingerprint(file));
    } else if (model.empty()) {
      return error("capture {}: expected -m with a folder or an id of the hub", flags.engine);
    }
    arguments.push_back("--model=" + model);
    for (const auto& flag : flags.passed)
      if (flag->option->count() > 0)
        arguments.push_back(fmt::format("{}={}", flag->name, flag->value));
    arguments.insert(arguments.end(), others.begin(), others.end());
  }
  LS_TRY(const std::string python, find_python(engine->needs, flags.python, flags.yes));
  std::vector<std::string> command = module_command(python, folder, engine->module);
  command.insert(command.end(), arguments.begin(), arguments.end());
  return become_process(command);
}

std::function<Result<int>()> declare(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  std::vector<std::string> names;
  for (const CapturedEngine& engine : engines()) names.push_back(engine.needs.name);
  app.add_option("engine", flags->engine, "llama.cpp or transformers")
      ->required()
      ->check(CLI::IsMember(names));
  app.add_option("-m,--model", flags->model,
                 "llama.cpp: a GGUF file or the name of a shipped or downloaded model; "
                 "transformers: a folder or an id of the hub");
  const auto pass = [&](const char* flag, const char* name, const char* help) {
    auto& passed = flags->passed.emplace_back(std::make_unique<PassedFlag>());
    passed->name = name;
    passed->option = app.add_option(flag, passed->value, help);
    return passed->option;
  };
  pass("-o,--output", "--output", "The folder of the new trace")->type_name("TRACE");
  pass("-p,--prompt", "--prompt", "The prompt, read by the engine's own tokenizer");
  pass("--tokens", "--tokens", "The prompt as token ids: 1,2,3")->type_name("IDS");
  pass("-n,--max-tokens", "--max-tokens", "Tokens to generate")->type_name("N");
  pass("--checkpoints", "--checkpoints",
       "logits, layers, ops, all, or names and globs separated by commas")
      ->type_name("SET");
  app.add_option("--python", flags->python,
                 "The Python to run it with; without it python3 where that has the engine's "
                 "package, else an environment that is made under $XDG_CACHE_HOME or ~/.cache")
      ->type_name("PATH");
  app.add_flag("-y,--yes", flags->yes, "Install what is missing without asking");
  app.add_flag("--engine-help", flags->engine_help,
               "Show all flags of this engine's capture; every one of them may be given here");
  app.allow_extras();
  return [flags, &app] { return run(*flags, app.remaining()); };
}

}  // namespace capture_command

const Command kCaptureCommand = {
    "capture",
    "Record what llama.cpp or transformers computes, as a trace to compare with",
    "  lockstep capture llama.cpp -m haiku -p 'GPU haiku with word seven: ' -n 16 -o theirs.trace\n"
    "  lockstep run -m haiku -p 'GPU haiku with word seven: ' -n 16 --trace ours.trace\n"
    "  lockstep compare ours.trace theirs.trace -m haiku\n"
    "  lockstep capture transformers -m ./SmolLM2-135M --dtype float64 -p Hello -o truth.trace\n"
    "  lockstep capture llama.cpp --engine-help\n",
    capture_command::declare,
};

}  // namespace lockstep::cli
