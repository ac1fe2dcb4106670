// lockstep demo: what the program finds, shown on a bug made on purpose.
#include <cstdio>
#include <filesystem>

#include <unistd.h>

#include "base/shown_text.h"
#include "base/temporary_folder.h"
#include "base/terminal.h"
#include "cli/command.h"
#include "cli/model_path.h"
#include "cli/options.h"
#include "cli/prompt.h"
#include "engine/recording.h"
#include "engine/session.h"
#include "parity/compare.h"
#include "quant/decode.h"
#include "report/report.h"

namespace lockstep::cli {
namespace demo_command {

namespace fs = std::filesystem;

struct Flags {
  std::string model = kDefaultModel;
  std::string prompt = "GPU haiku with word fifty-one: ";
  std::string keep;
};

// The matrix as somebody sees it who takes its first dimension for the slow one: the numbers of
// each row then come from many rows. `storage` holds them and must outlive the weight.
op::Weight misread(const op::Weight& weight, std::vector<float>& storage) {
  const int64_t rows = weight.rows;
  const int64_t columns = weight.columns;
  std::vector<float> numbers(static_cast<size_t>(rows * columns));
  for (int64_t r = 0; r < rows; ++r)
    quant::decode(weight.format->format(), weight.row(r), columns, numbers.data() + r * columns);
  storage.resize(numbers.size());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      storage[static_cast<size_t>(r * columns + c)] = numbers[static_cast<size_t>(c * rows + r)];
  op::Weight out = weight;
  out.format = &quant::info(quant::Format::kF32);
  out.data = std::as_bytes(std::span(storage));
  return out;
}

// Runs a program and records it; the text.
Result<std::string> take(op::Program program, const model::Model& model, const Prompt& prompt,
                         const std::string& folder) {
  LS_TRY(const exec::Device* device, exec::find_device(""));
  LS_TRY(engine::Session session,
         engine::Session::create(std::move(program), prompt.tokenizer.get(), *device, {}));
  engine::Request request;
  request.prompt = prompt.tokens;
  request.max_tokens = 40;
  trace::RecordOptions options;
  options.folder = folder;
  LS_TRY(const trace::JsonlLogOptions log, trace::JsonlLogOptions::from_environment());
  LS_TRY(engine::Recording recording,
         engine::Recording::start(options, log, session,
                                  engine::describe(model, *device, session.executor()), request,
                                  prompt.text));
  recording.attach(request);
  LS_TRY(const engine::Outcome outcome, session.generate(request, nullptr));
  LS_TRY_VOID(recording.finish(request.prompt, outcome.tokens));
  return outcome.text;
}

Result<int> bug(const Flags& flags) {
  LS_TRY(const std::string path, model_path(flags.model));
  LS_TRY(const model::Model model, model::Model::load(path));
  PromptFlags prompt_flags;
  prompt_flags.text = flags.prompt;
  LS_TRY(const Prompt prompt, read_prompt(prompt_flags, model));
  const auto context = static_cast<int64_t>(prompt.tokens.size()) + 40;
  LS_TRY(const op::Program right, model.program(context));
  op::Program wrong = right;
  std::vector<float> storage;
  for (op::Op& op : wrong.ops)
    if (auto* linear = std::get_if<op::Linear>(&op.what); linear != nullptr && op.layer < 0)
      linear->weight = misread(linear->weight, storage);

  LS_TRY(const TemporaryFolder temporary, TemporaryFolder::create());
  const fs::path folder = flags.keep.empty() ? temporary.path() : fs::path(flags.keep);
  LS_TRY(const std::string good, take(right, model, prompt, (folder / "right").string()));
  LS_TRY(const std::string bad, take(wrong, model, prompt, (folder / "wrong").string()));
  fmt::print("The prompt: {}\n\nThe engine as it should be:\n{}\n\n", flags.prompt,
             shown_text(good, STDOUT_FILENO));
  fmt::print(
      "The same engine with one mistake, its output matrix read with the wrong layout:\n{}\n\n",
      shown_text(bad, STDOUT_FILENO));
  fmt::print("What 'lockstep compare right wrong -m {}' says:\n\n", flags.model);

  LS_TRY(const trace::Trace reference, trace::Trace::open((folder / "right").string()));
  LS_TRY(const trace::Trace suspect, trace::Trace::open((folder / "wrong").string()));
  LS_TRY(const parity::Comparison comparison, parity::compare(reference, suspect, &model, {}));
  report::Subject subject;
  subject.reference = report::describe(reference);
  subject.suspect = report::describe(suspect);
  subject.model = path;
  fmt::print("{}", report::terminal_report(comparison, subject, terminal_width(STDOUT_FILENO, 100),
                                           Paint(terminal_colours(STDOUT_FILENO))));
  if (!flags.keep.empty()) fmt::print("\nThe traces are in {}.\n", flags.keep);
  return comparison.parity ? kFailedCheck : kDone;  // not to find it would be the failure
}

std::function<Result<int>()> declare(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  app.require_subcommand(1);
  CLI::App* sub = app.add_subcommand(
      "bug", "The same text from a deliberately wrong engine, and how compare finds the mistake");
  add_value(*sub, "-m,--model", flags->model, kModel, "GGUF file, or the name of a model")
      ->default_str(flags->model);
  add_value(*sub, "-p,--prompt", flags->prompt, kText, "The prompt")->default_str(flags->prompt);
  add_value(*sub, "--keep", flags->keep, kNewFolder, "Leave the two traces in this new folder");
  return [flags] { return bug(*flags); };
}

}  // namespace demo_command

const Command kDemoCommand = {
    "demo",
    "Show what the program finds, on a bug made on purpose",
    "  lockstep demo bug\n"
    "  lockstep demo bug -m haiku-qwen2 --keep traces && lockstep compare traces/right "
    "traces/wrong\n",
    demo_command::declare,
};

}  // namespace lockstep::cli
