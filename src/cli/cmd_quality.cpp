// lockstep quality: what a quantized file costs, and which tensors cost it.
#include <algorithm>
#include <memory>
#include <optional>

#include <unistd.h>

#include "base/output_file.h"
#include "base/shown_text.h"
#include "cli/command.h"
#include "cli/counting_bar.h"
#include "cli/device.h"
#include "cli/model_path.h"
#include "cli/model_size.h"
#include "cli/options.h"
#include "cli/read_tokens.h"
#include "engine/cost.h"
#include "quality/quality.h"
#include "quality/recipe.h"
#include "report/quality_page.h"

namespace lockstep::cli {
namespace quality_command {

struct Flags {
  std::string reference;
  std::string suspect;
  PromptFlags text;
  int64_t context = 0;
  int64_t sample = 0;
  bool no_tensors = false;
  double fail_above = -1;
  std::string size;
  std::string output;
  DeviceFlags device;
  std::string html;
  bool all = false;
  bool json = false;
};

constexpr int64_t kSampleWindow = 128;

// So many tokens that all tensors take minutes on a few cores; at least two windows.
Result<int64_t> sample_tokens(const model::Model& model, int64_t window) {
  constexpr double kMultiplyAdds = 2e13;
  constexpr int64_t kMost = 8192;
  LS_TRY(const op::Program program, model.program(window));
  const double a_token =
      engine::prompt_multiply_adds(program, window) / static_cast<double>(window);
  double passes = 0;  // two for each matrix, from its layer on
  for (const op::Op& op : program.ops)
    passes += std::holds_alternative<op::Linear>(op.what) ||
              std::holds_alternative<op::ExpertLinear>(op.what);
  return std::clamp(static_cast<int64_t>(kMultiplyAdds / (a_token * std::max(passes, 1.0))),
                    2 * kSampleWindow, kMost);
}

void add_sizes(const gguf::File& reference, const gguf::File& suspect, quality::Report& report) {
  for (const gguf::Tensor& tensor : reference.tensors())
    report.bytes_reference += static_cast<int64_t>(tensor.data.size());
  for (const gguf::Tensor& tensor : suspect.tensors()) {
    report.bytes_suspect += static_cast<int64_t>(tensor.data.size());
    report.values += tensor.values();
  }
}

// What single tensors are measured on.
Result<std::vector<quality::Window>> sample_windows(const model::Model& reference,
                                                    const TextTokens& text, const Flags& flags,
                                                    int64_t window) {
  const int64_t length = std::min(window, kSampleWindow);
  const int64_t context = std::max<int64_t>(1, (length - 1) / 4);
  LS_TRY(const auto windows, quality::cut_text(text.tokens, {length, context, text.begin}));
  int64_t tokens = flags.sample;
  if (tokens == 0) {
    LS_TRY(tokens, sample_tokens(reference, length));
  }
  return quality::spread(windows, std::max<int64_t>(1, (tokens + length - 1) / length));
}

Result<void> write_text(const std::string& path, const std::string& text) {
  LS_TRY(OutputFile file, OutputFile::create(path));
  LS_TRY_VOID(file.write(std::as_bytes(std::span(text))));
  return file.finish();
}

Result<int> run(const Flags& flags) {
  if (flags.size.empty() != flags.output.empty())
    return error("--recipe SIZE and -o FILE go together: a recipe is written to a file");
  LS_TRY(const exec::Device* device, find_device(flags.device));
  LS_TRY(const std::string reference_path, model_path(flags.reference));
  LS_TRY(const std::string suspect_path, model_path(flags.suspect));
  LS_TRY(const model::Model reference, model::Model::load(reference_path, !flags.device.no_map));
  LS_TRY(const model::Model suspect, model::Model::load(suspect_path, !flags.device.no_map));
  LS_TRY_VOID(quality::check_same_shape(reference, suspect));
  LS_TRY(const TextTokens text, read_tokens(flags.text, reference));

  const int64_t longest =
      std::min(reference.config().context_length, suspect.config().context_length);
  LS_TRY(const int64_t window, window_length(flags.context, longest, text));
  const int64_t begins = text.begin ? 1 : 0;
  const int64_t context = std::max<int64_t>(1, (window - begins) / 2);
  LS_TRY(const auto windows, quality::cut_text(text.tokens, {window, context, text.begin}));

  quality::Report report{.reference = reference.file().path(),
                         .suspect = suspect.file().path(),
                         .device = std::string(device->name),
                         .text_tokens = static_cast<int64_t>(text.tokens.size())};
  add_sizes(reference.file(), suspect.file(), report);
  const quality::Setting setting{device, options_of(flags.device)};
  {
    CountingBar bar("quality", "tokens");
    LS_TRY(report.cost, quality::measure_cost(reference, suspect, windows, setting,
                                              [&](int64_t done, int64_t all) { bar(done, all); }));
  }
  report.window = static_cast<int64_t>(windows.front().tokens.size());
  report.context = windows.front().first_scored;
  if (!flags.no_tensors) {
    LS_TRY(const auto sample, sample_windows(reference, text, flags, window));
    {
      CountingBar bar("by tensor", "passes");
      LS_TRY(report.ranking,
             quality::rank_tensors(reference, suspect, sample, setting,
                                   [&](int64_t done, int64_t all) { bar(done, all); }));
    }
    report.ranked = true;
    if (!flags.size.empty()) {
      LS_TRY(const ModelSize size, parse_model_size(flags.size));
      LS_TRY(report.proposal, quality::propose(reference, suspect, report.ranking, sample, setting,
                                               size.bytes_of(reference.file())));
      LS_TRY_VOID(
          write_text(flags.output, quality::recipe_text(*report.proposal, report.reference)));
      report.recipe_path = flags.output;
    }
  }
  LS_TRY_VOID(reference.file().check_unchanged());
  LS_TRY_VOID(suspect.file().check_unchanged());
  if (!flags.html.empty()) LS_TRY_VOID(write_text(flags.html, report::quality_page(report)));
  if (flags.json)
    fmt::print("{}\n", json_text(quality::to_json(report)));
  else
    fmt::print("{}", quality::to_text(report, terminal_width(STDOUT_FILENO, INT64_MAX),
                                      Paint(terminal_colours(STDOUT_FILENO)), flags.all));
  const bool failed = flags.fail_above >= 0 && report.cost.kl_mean.value > flags.fail_above;
  return failed ? kFailedCheck : kDone;
}

std::function<Result<int>()> declare(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  add_value(app, "reference", flags->reference, kModel, "The model that you trust: F32, F16, BF16")
      ->required();
  add_value(app, "suspect", flags->suspect, kModel, "The quantized model in question")->required();
  declare_text(app, flags->text);
  add_number(app, "--ctx", flags->context, {.least = 2},
             "Tokens that are read at once; the second half of them is predicted (default: 512, or "
             "the model's context)");
  auto* no_tensors =
      app.add_flag("--no-tensors", flags->no_tensors, "Only the whole file, not tensor by tensor");
  add_number(app, "--sample", flags->sample, {.least = 8},
             "Tokens of the text that are read for each tensor (default: as many as take minutes "
             "on a few cores, 256 to 8192)")
      ->excludes(no_tensors);
  add_value(app, "--recipe", flags->size, kModelSize,
            "Propose a format for each matrix, for a model of this size: bits a weight (4.5) or "
            "bytes of tensors (400M)")
      ->excludes(no_tensors);
  add_value(app, "-o,--output", flags->output, kOutputFile,
            "File for the recipe, which 'lockstep quantize --recipe' reads");
  add_value(app, "--html", flags->html, kOutputFile,
            "Write a page: the costs, a picture of all tensors, their ranking");
  app.add_flag("--all", flags->all, "Every tensor, not only the 20 that cost the most");
  add_number(app, "--fail-above", flags->fail_above, {.least = 0},
             "Exit with 1 where the mean KL is larger");
  declare_device(app, flags->device);
  app.add_flag("--json", flags->json, "As JSON (docs/quantization.md)");
  return [flags] { return run(*flags); };
}

}  // namespace quality_command

extern const Command kQualityCommand = {
    "quality", "Tell what a quantized file costs, and which tensors cost it",
    "  lockstep quality model-f16.gguf model-q4_k_m.gguf -f text.txt\n"
    "  lockstep quality model-f16.gguf model-q4_k_m.gguf -f text.txt --no-tensors --fail-above "
    "0.1\n"
    "  lockstep quality model-f16.gguf model-q4_k_m.gguf -f text.txt --json | jq .kl_mean\n"
    "  lockstep quality model-f16.gguf model-q4_k_m.gguf -f text.txt --html costs.html\n"
    "  lockstep quality model-f16.gguf model-q4_k_m.gguf -f text.txt --recipe 4.8 -o mix.recipe\n"
    "  lockstep quantize model-f16.gguf mix.gguf --recipe mix.recipe\n"
    "\n"
    "Both models predict the text. KL is how far their probabilities of the next token are apart:\n"
    "0 where they agree. A tensor's cost is measured by exchanging it alone.\n"
    "Exit status: 0 measured; 1 the mean KL is above --fail-above; 2 something cannot be read.\n",
    quality_command::declare};

}  // namespace lockstep::cli
