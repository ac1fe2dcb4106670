// lockstep convert: a folder from the hub as a GGUF file.
#include <memory>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/quantize_file.h"
#include "quant/recipe.h"

namespace lockstep::cli {
namespace convert_command {

std::function<Result<int>()> declare(CLI::App& app) {
  auto flags = std::make_shared<QuantizeFlags>();
  add_value(app, "folder", flags->source, kModel, "Folder from the hub, or a model file")
      ->required();
  add_value(app, "out", flags->target, kOutputModel, "GGUF file to write")->required();
  add_value(app, "--type", flags->recipe, kRecipe,
            "One of " + quant::recipe_names() + " (default: as the weights are)");
  app.add_flag("--force", flags->force, "Replace an existing file");
  app.add_flag("--dry-run", flags->dry_run, "Only tell what would be written");
  app.add_flag("--json", flags->json, "As JSON, with the error of each tensor");
  return [flags] { return quantize_file(*flags); };
}

}  // namespace convert_command

extern const Command kConvertCommand = {
    "convert",
    "Write a folder from the hub as a GGUF file",
    "  lockstep convert SmolLM2-135M smollm2.gguf\n"
    "  lockstep convert SmolLM2-135M smollm2-q4_k_m.gguf --type q4_k_m\n"
    "\n"
    "The folder has config.json and model.safetensors, or several files with their index. Without\n"
    "--type every weight keeps its value: F32, F16 or BF16. Experts in MXFP4 stay so with it "
    "too.\n",
    convert_command::declare,
};

}  // namespace lockstep::cli
