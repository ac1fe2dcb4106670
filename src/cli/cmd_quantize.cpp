// lockstep quantize: a model file in another format.
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/mapped_file.h"
#include "base/progress.h"
#include "base/shown_text.h"
#include "base/table.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/model_path.h"
#include "cli/options.h"
#include "cli/quantize_file.h"
#include "gguf/quantize.h"
#include "hub/folder.h"
#include "models/model_folder.h"

namespace lockstep::cli {
namespace quantize_command {

namespace fs = std::filesystem;

using Flags = QuantizeFlags;

struct Share {
  int64_t tensors = 0;
  int64_t values = 0;
  int64_t bytes = 0;

  double bits() const {
    return values > 0 ? 8 * static_cast<double>(bytes) / static_cast<double>(values) : 0;
  }
};

// What the plan makes of the file, by format, and in all.
struct Summary {
  std::map<uint32_t, Share> shares;  // by GGUF's type number
  Share before, after;
};

Summary summarize(const gguf::File& source, const gguf::QuantizePlan& plan) {
  Summary summary;
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const gguf::Tensor& tensor = source.tensors()[i];
    const quant::FormatInfo& format = *plan.tensors[i].format;
    const int64_t values = tensor.values();
    const int64_t bytes = quant::size_bytes(format, values);
    for (Share* share : {&summary.shares[format.id], &summary.after}) {
      share->tensors += 1;
      share->values += values;
      share->bytes += bytes;
    }
    summary.before.tensors += 1;
    summary.before.values += values;
    summary.before.bytes += static_cast<int64_t>(tensor.data.size());
  }
  return summary;
}

// Of each tensor; empty where nothing was written.
using Errors = std::vector<gguf::QuantizeError>;

void print_json(const gguf::File& source, const gguf::QuantizePlan& plan, const Errors& errors,
                const Summary& summary, const Flags& flags) {
  nlohmann::ordered_json out = {
      {"path", flags.target},
      {"recipe",
       flags.tensors.empty() ? std::string(quant::find_recipe(flags.recipe)->name) : flags.tensors},
      {"written", !flags.dry_run},
      {"bytes_before", summary.before.bytes},
      {"bytes", summary.after.bytes},
      {"bits_per_weight", summary.after.bits()},
      {"formats", nlohmann::ordered_json::array()}};
  for (const auto& [id, share] : summary.shares)
    out["formats"].push_back({{"type", quant::find_format(id)->name},
                              {"tensors", share.tensors},
                              {"values", share.values},
                              {"bytes", share.bytes}});
  out["tensors"] = nlohmann::ordered_json::array();
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const gguf::Tensor& tensor = source.tensors()[i];
    const quant::FormatInfo& format = *plan.tensors[i].format;
    nlohmann::ordered_json row = {{"name", tensor.name},
                                  {"source_type", tensor.format->name},
                                  {"type", format.name},
                                  {"values", tensor.values()},
                                  {"bytes", quant::size_bytes(format, tensor.values())}};
    // JSON has no word for infinity: null then.
    if (!errors.empty()) row["relative_rms_error"] = errors[i].relative();
    out["tensors"].push_back(std::move(row));
  }
  fmt::print("{}\n", json_text(out));
}

void print_tensors(const gguf::File& source, const gguf::QuantizePlan& plan, const Errors& errors) {
  Table table(
      {{"tensor", false, 0, true}, {"from"}, {"to"}, {"size", true}, {"relative RMS error", true}});
  for (size_t i = 0; i < errors.size(); ++i) {
    const gguf::Tensor& tensor = source.tensors()[i];
    const quant::FormatInfo& format = *plan.tensors[i].format;
    const double relative = errors[i].relative();
    table.add({printable(tensor.name), std::string(tensor.format->name), std::string(format.name),
               human(quant::size_bytes(format, tensor.values())) + "B",
               relative == 0 ? "0" : fmt::format("{:.2e}", relative)});
  }
  fmt::print("{}\n", table.render(terminal_width(STDOUT_FILENO, INT64_MAX),
                                  Paint(terminal_colours(STDOUT_FILENO))));
}

void print_text(const gguf::QuantizePlan& plan, const Summary& summary, const Flags& flags) {
  Table table({{"format"}, {"tensors", true}, {"size", true}, {"bits a weight", true}});
  const auto add = [&](std::string_view name, const Share& share) {
    table.add({std::string(name), fmt::format("{}", share.tensors), human(share.bytes) + "B",
               fmt::format("{:.2f}", share.bits())});
  };
  for (const auto& [id, share] : summary.shares) add(quant::find_format(id)->name, share);
  if (summary.shares.size() > 1) add("all", summary.after);
  fmt::print("{}", table.render(terminal_width(STDOUT_FILENO, INT64_MAX),
                                Paint(terminal_colours(STDOUT_FILENO))));
  fmt::print("{}{}: {}B of weights, from {}B\n", flags.dry_run ? "(not written) " : "",
             printable(flags.target), human(summary.after.bytes), human(summary.before.bytes));
  if (flags.imatrix.empty()) return;
  int64_t quantized = 0, weighted = 0;
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    quantized += plan.tensors[i].format->block_values > 1 ? 1 : 0;
    weighted += plan.importance[i].empty() ? 0 : 1;
  }
  fmt::print("{} knows {} of the {} tensors that are quantized\n", printable(flags.imatrix),
             weighted, quantized);
}

Result<void> check_target(const std::string& source, const Flags& flags) {
  std::error_code failed;
  if (!fs::exists(flags.target, failed)) return {};
  if (fs::equivalent(source, flags.target, failed))
    return error("{} is the source itself; give another name", flags.target);
  if (!flags.force) return error("{} exists; --force replaces it", flags.target);
  return {};
}

// Nothing is lost in it.
std::string_view own_format(const gguf::File& source) {
  bool half = false, brain = false;
  for (const gguf::Tensor& tensor : source.tensors()) {
    if (!quant::is_quantized_weight(tensor.name, tensor.dims)) continue;
    half |= tensor.format->format() == quant::Format::kF16;
    brain |= tensor.format->format() == quant::Format::kBF16;
    if (tensor.format->format() == quant::Format::kF32) return "F32";
  }
  return half == brain ? "F32" : half ? "F16" : "BF16";
}

Result<quant::TensorRecipe> read_recipe(const std::string& path) {
  LS_TRY(const MappedFile file, MappedFile::open(path));
  const auto bytes = file.bytes();
  return quant::TensorRecipe::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                                    path);
}

Result<int> run(Flags flags) {
  LS_TRY(const std::string path, model_path(flags.source));
  LS_TRY(const gguf::File source, hub::open(path));
  gguf::QuantizeOptions options;
  const bool as_it_is = flags.recipe.empty() && flags.tensors.empty();
  if (as_it_is) flags.recipe = own_format(source);
  // Folders have experts in four bits, which no other form has better.
  options.keep_quantized = as_it_is || (models::is_hub_folder(path) && !flags.requantize);
  std::optional<quant::TensorRecipe> tensors;
  if (flags.tensors.empty()) {
    options.recipe = quant::find_recipe(flags.recipe);
    LS_CHECK(options.recipe != nullptr);  // the option has checked it
  } else {
    LS_TRY(tensors, read_recipe(flags.tensors));
    options.tensors = &*tensors;
  }
  options.pure = flags.pure;
  options.requantize = flags.requantize;
  std::optional<gguf::Imatrix> imatrix;
  if (!flags.imatrix.empty()) {
    LS_TRY(imatrix, gguf::Imatrix::read(flags.imatrix));
    options.imatrix = &*imatrix;
  }
  if (!flags.dry_run) LS_TRY_VOID(check_target(path, flags));
  LS_TRY(const gguf::QuantizePlan plan, gguf::plan_quantization(source, options));
  const Summary summary = summarize(source, plan);
  Errors errors;
  if (!flags.dry_run) {
    constexpr int64_t kMegabyte = 1000000;
    Progress progress("quantize", summary.before.bytes / kMegabyte, "MB");
    int64_t done = 0;
    LS_TRY(errors, gguf::quantize(source, plan, flags.target, [&](int64_t bytes) {
             const int64_t before = done / kMegabyte;
             done += bytes;
             progress.advance(done / kMegabyte - before);
           }));
  }
  if (flags.json) {
    print_json(source, plan, errors, summary, flags);
    return kDone;
  }
  if (!flags.dry_run) print_tensors(source, plan, errors);
  print_text(plan, summary, flags);
  return kDone;
}

std::function<Result<int>()> declare(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  add_value(app, "in", flags->source, kModel, "Model to read; F32, F16 or BF16")->required();
  add_value(app, "out", flags->target, kOutputModel, "GGUF file to write")->required();
  auto* type =
      add_value(app, "--type,type", flags->recipe, kRecipe, "One of " + quant::recipe_names());
  auto* pure = app.add_flag("--pure", flags->pure, "Every weight in the type's own format, no mix");
  add_value(
      app, "--recipe", flags->tensors, kInputFile,
      "File with a format for each tensor, in place of the type; 'lockstep quality' writes one")
      ->excludes(type)
      ->excludes(pure);
  add_value(app, "--imatrix", flags->imatrix, kInputFile,
            "Importance matrix: what errors of each column count ('lockstep imatrix' writes one)");
  app.add_flag("--requantize", flags->requantize,
               "Allow a source that is quantized already (decoded exactly first)");
  app.add_flag("--force", flags->force, "Replace an existing file");
  app.add_flag("--dry-run", flags->dry_run, "Only tell what would be written");
  app.add_flag("--json", flags->json, "As JSON, with the error of each tensor");
  return [flags]() -> Result<int> {
    if (flags->recipe.empty() && flags->tensors.empty())
      return error("no type: give one of {}, or --recipe FILE", quant::recipe_names());
    return quantize_file(*flags);
  };
}

}  // namespace quantize_command

Result<int> quantize_file(const QuantizeFlags& flags) {
  return quantize_command::run(flags);
}

const Command kQuantizeCommand = {
    "quantize",
    "Write a model in another format",
    "  lockstep quantize model-f16.gguf model-q4_k_m.gguf Q4_K_M\n"
    "  lockstep quantize model-f16.gguf out.gguf Q6_K --dry-run\n"
    "  lockstep quantize model-q8_0.gguf small.gguf --type Q4_0 --requantize\n"
    "  lockstep quantize model-f16.gguf mix.gguf --recipe mix.recipe\n"
    "  lockstep quantize model-f16.gguf out.gguf Q4_K_M --imatrix model.imatrix\n"
    "\n"
    "The error of a tensor: the root mean square of what its values are off, relative to that of\n"
    "the values. 1e-3 is a tenth of a percent.\n",
    quantize_command::declare,
};

}  // namespace lockstep::cli
