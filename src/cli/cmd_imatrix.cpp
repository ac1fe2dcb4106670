// lockstep imatrix: how large the inputs of each matrix are on a text.
#include <filesystem>
#include <memory>

#include <nlohmann/json.hpp>

#include "base/shown_text.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/counting_bar.h"
#include "cli/device.h"
#include "cli/model_path.h"
#include "cli/options.h"
#include "cli/read_tokens.h"
#include "quality/collect.h"

namespace lockstep::cli {
namespace imatrix_command {

struct Flags {
  std::string model = kDefaultModel;
  PromptFlags text;
  std::string output;
  int64_t context = 0;
  DeviceFlags device;
  bool force = false;
  bool json = false;
};

Result<int> run(const Flags& flags) {
  std::error_code failed;
  if (!flags.force && std::filesystem::exists(flags.output, failed))
    return error("{} exists; --force replaces it", flags.output);
  LS_TRY(const exec::Device* device, find_device(flags.device));
  LS_TRY(const std::string path, model_path(flags.model));
  LS_TRY(const model::Model model, model::Model::load(path, !flags.device.no_map));
  LS_TRY(const TextTokens text, read_tokens(flags.text, model));
  LS_TRY(const int64_t window, window_length(flags.context, model.config().context_length, text));
  CountingBar bar("imatrix", "tokens");
  LS_TRY(gguf::Imatrix imatrix,
         quality::collect_imatrix(model, quality::chunk_text(text.tokens, window, text.begin),
                                  {device, options_of(flags.device)},
                                  [&](int64_t done, int64_t all) { bar(done, all); }));
  LS_TRY_VOID(model.file().check_unchanged());
  imatrix.dataset = flags.text.file;
  LS_TRY_VOID(imatrix.write(flags.output));
  const auto tokens = static_cast<int64_t>(text.tokens.size());
  const auto tensors = static_cast<int64_t>(imatrix.tensors.size());
  if (flags.json)
    fmt::print("{}\n", json_text(nlohmann::ordered_json{{"path", flags.output},
                                                        {"tokens", tokens},
                                                        {"windows", imatrix.chunks},
                                                        {"window", imatrix.chunk_size},
                                                        {"tensors", tensors}}));
  else
    fmt::print("{}: the inputs of {} tensors on {} tokens\n", printable(flags.output), tensors,
               tokens);
  return kDone;
}

std::function<Result<int>()> declare(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  add_value(app, "-m,--model", flags->model, kModel, "The model, best not quantized")
      ->default_str(flags->model);
  declare_text(app, flags->text);
  add_value(app, "-o,--output", flags->output, kOutputFile, "File to write, in llama.cpp's form")
      ->required();
  add_number(app, "--ctx", flags->context, {.least = 2},
             "Tokens that are read at once (default: 512, or the model's context)");
  declare_device(app, flags->device);
  app.add_flag("--force", flags->force, "Replace an existing file");
  app.add_flag("--json", flags->json, "As JSON: what was read and written");
  return [flags] { return run(*flags); };
}

}  // namespace imatrix_command

extern const Command kImatrixCommand = {
    "imatrix", "Measure on a text which weights matter, for quantize --imatrix",
    "  lockstep imatrix -m model-f16.gguf -f text.txt -o model.imatrix\n"
    "  lockstep quantize model-f16.gguf out.gguf Q4_K_M --imatrix model.imatrix\n"
    "\n"
    "For each column of each matrix: the mean square of what it is multiplied with. The file is "
    "in\n"
    "llama.cpp's GGUF form, which its tools read too.\n",
    imatrix_command::declare};

}  // namespace lockstep::cli
