// lockstep capture: records what another engine computes, by the Python package that comes with the
// program.
#include <cerrno>  // program_invocation_name
#include <memory>

#include "base/process.h"
#include "base/text.h"
#include "cli/captured_engines.h"
#include "cli/command.h"
#include "cli/model_path.h"
#include "cli/options.h"
#include "cli/python_environment.h"
#include "gguf/file.h"
#include "gguf/fingerprint.h"
#include "models/model_folder.h"

namespace lockstep::cli {
namespace capture_command {

// A flag of the engine's module, as it was given.
struct PassedFlag {
  const CaptureFlag* flag;
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

  bool has(const std::string& name) const {
    for (const auto& passed_flag : passed)
      if (passed_flag->option->get_name() == name) return passed_flag->option->count() > 0;
    return false;
  }
};

// What the module would find missing only after its engine was installed.
Result<void> check_flags(const Flags& flags) {
  for (const auto& passed : flags.passed) {
    const char* engine = passed->flag->engine;
    if (passed->option->count() > 0 && engine != nullptr && engine != flags.engine)
      return error("capture: {} is for {}; this is {}", passed->option->get_name(), engine,
                   flags.engine);
  }
  const int prompts = flags.has("--prompt") + flags.has("--text-file") + flags.has("--tokens");
  if (prompts != 1)
    return error("capture: found {}, expected one of -p TEXT, --text-file FILE, --tokens IDS",
                 prompts == 0 ? "no prompt" : "several prompts");
  if (!flags.has("--output")) return error("capture: expected -o FOLDER, for the new trace");
  return {};
}

Result<int> run(const Flags& flags) {
  const CapturedEngine* engine = nullptr;
  for (const CapturedEngine& known : captured_engines())
    if (known.needs.name == flags.engine) engine = &known;
  LS_CHECK(engine != nullptr);  // the option has checked it
  LS_TRY(const std::string folder, package_folder());

  // With "=", so that a value may begin with a dash.
  std::vector<std::string> arguments;
  if (flags.engine_help) {
    arguments = {"--help"};
  } else {
    std::string model = flags.model;
    if (!engine->reads_gguf && model.empty())
      return error("capture {}: expected -m with a folder or an id of the hub", flags.engine);
    LS_TRY_VOID(check_flags(flags));
    if (engine->reads_gguf) {
      LS_TRY(model, model_path(model.empty() ? kDefaultModel : model));
      if (models::is_hub_folder(model))
        return error(
            "capture {}: found the folder {}, expected a GGUF file: 'lockstep convert' "
            "makes one of it",
            flags.engine, printable(model));
      LS_TRY(const gguf::File file, gguf::File::open(model));
      arguments.push_back("--fingerprint=" + gguf::fingerprint(file));
    }
    arguments.push_back("--model=" + model);
    // For the commands that the module says to run next.
    arguments.push_back(fmt::format("--program={}", program_invocation_name));
    for (const auto& passed : flags.passed) {
      if (passed->option->count() == 0) continue;
      const std::string name = passed->option->get_name();
      arguments.push_back(passed->flag->kind == nullptr ? name : name + "=" + passed->value);
    }
  }
  LS_TRY(const std::string python, find_python(engine->needs, flags.python, flags.yes));
  std::vector<std::string> command = module_command(python, folder, engine->module);
  command.insert(command.end(), arguments.begin(), arguments.end());
  return become_process(command);
}

CLI::Option* declare_passed(CLI::App& app, const CaptureFlag& flag, PassedFlag& passed) {
  passed.flag = &flag;
  if (flag.kind == nullptr) return app.add_flag(flag.names, flag.help);
  if (flag.kind != &kWholeNumber && flag.kind != &kRealNumber)
    return add_value(app, flag.names, passed.value, *flag.kind, flag.help);
  return detail::add_checked(
      app, flag.names, *flag.kind, flag.help,
      [&passed, &flag](const std::string& text) -> Result<void> {
        if (flag.kind == &kRealNumber)
          LS_TRY_VOID(parse_number(text, NumberRange<double>{.least = 0}));
        else
          LS_TRY_VOID(parse_number(text, NumberRange<int64_t>{flag.least, flag.most}));
        passed.value = text;
        return {};
      });
}

std::function<Result<int>()> declare(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  add_value(app, "engine", flags->engine, kEngine, "llama.cpp or transformers")->required();
  add_value(app, "-m,--model", flags->model, kCapturedModel,
            "llama.cpp: a GGUF file or the name of a model; transformers: a folder or an id of the "
            "hub");
  for (const CaptureFlag& flag : capture_flags()) {
    PassedFlag& passed = *flags->passed.emplace_back(std::make_unique<PassedFlag>());
    passed.option = declare_passed(app, flag, passed);
  }
  add_value(app, "--python", flags->python, kProgram,
            "The Python to run it with; without it python3 where that has the engine's package, "
            "else an environment that is made under $XDG_CACHE_HOME or ~/.cache");
  app.add_flag("-y,--yes", flags->yes, "Install what is missing without asking");
  app.add_flag("--engine-help", flags->engine_help, "Show what the engine's module says");
  return [flags] { return run(*flags); };
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
