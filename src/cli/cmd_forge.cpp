// lockstep forge: write a model of given architecture, sizes and formats with random weights.
#include <cstdio>
#include <map>
#include <memory>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/shown_text.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/model_path.h"
#include "cli/options.h"
#include "cli/rope_flags.h"
#include "forge/forge.h"
#include "forge/formats.h"
#include "forge/known.h"

namespace lockstep::cli {
namespace forge_command {

using forge::Spec;

// Flags that set a field of the spec each. What is not given stays as --like or the default has it.
class Settings {
 public:
  CLI::Option* add(CLI::App& app, const std::string& flag, std::string Spec::*field,
                   const ValueKind& kind, const std::string& help) {
    const auto value = std::make_shared<std::string>();
    return set(add_value(app, flag, *value, kind, help), value, field);
  }

  // Sizes begin at 0; what a model makes of one is the plan's matter.
  template <class T>
  CLI::Option* add(CLI::App& app, const std::string& flag, T Spec::*field,
                   const std::string& help) {
    const auto value = std::make_shared<T>();
    return set(add_number(app, flag, *value, {.least = 0}, help), value, field);
  }

  void add_flag(CLI::App& app, const std::string& flag, bool Spec::*field,
                const std::string& help) {
    const auto value = std::make_shared<bool>();
    CLI::Option* option = app.add_flag(flag, *value, help);
    setters_.push_back([=](Spec& spec) {
      if (option->count() > 0) spec.*field = *value;
    });
  }

  void apply(Spec& spec) const {
    for (const auto& setter : setters_) setter(spec);
  }

 private:
  template <class T>
  CLI::Option* set(CLI::Option* option, const std::shared_ptr<T>& value, T Spec::*field) {
    setters_.push_back([=](Spec& spec) {
      if (option->count() > 0) spec.*field = *value;
    });
    return option;
  }

  std::vector<std::function<void(Spec&)>> setters_;
};

struct Flags {
  std::string out;
  std::string like;
  std::string arch;
  CLI::Option* vocabulary = nullptr;
  std::string rope_factors;
  std::string rope_scaling;
  std::string tokenizer;
  bool force = false;
  bool dry_run = false;
  bool json = false;
  Settings settings;
};

Result<Spec> spec_of(const Flags& flags) {
  Spec spec;
  if (!flags.like.empty()) {
    LS_TRY(const forge::KnownModel* known, forge::find_known_model(flags.like));
    spec = known->spec;
    if (!flags.arch.empty() && flags.arch != spec.arch)
      return error("--arch {} contradicts --like {}, which is {}", flags.arch, flags.like,
                   spec.arch);
  } else if (flags.arch.empty()) {
    return error("give --like MODEL or --arch ARCHITECTURE");
  } else {
    spec.arch = flags.arch;
  }
  flags.settings.apply(spec);
  if (!flags.rope_factors.empty()) {
    LS_TRY(spec.rope_factors, parse_rope_factors(flags.rope_factors));
  }
  if (!flags.rope_scaling.empty()) {
    LS_TRY(spec.rope_scaling, parse_rope_scaling(flags.rope_scaling));
  }
  if (!flags.tokenizer.empty()) {
    LS_TRY(const std::string path, model_path(flags.tokenizer));
    LS_TRY(spec.tokenizer, forge::read_tokenizer(path));
    const int64_t tokens = forge::token_count(spec.tokenizer);
    if (flags.vocabulary->count() == 0 && tokens > 0) spec.vocabulary = tokens;
  }
  return spec;
}

std::map<std::string, int64_t> tensors_by_format(const forge::Plan& plan) {
  std::map<std::string, int64_t> counts;
  for (const gguf::TensorPlan& tensor : plan.tensors) ++counts[std::string(tensor.format->name)];
  return counts;
}

void print_text(const Flags& flags, const Spec& spec, const forge::Plan& plan) {
  std::string formats;
  for (const auto& [name, count] : tensors_by_format(plan))
    formats += fmt::format("{}{} {}", formats.empty() ? "" : ", ", count, name);
  fmt::print("{}{}: {} {}, {} parameters, {}B, {} tensors ({})\n", flags.out,
             flags.dry_run ? " would be" : "", spec.arch, spec.name, plan.parameters(),
             human(plan.data_bytes()), plan.tensors.size(), formats);
}

void print_json(const Flags& flags, const Spec& spec, const forge::Plan& plan) {
  nlohmann::ordered_json json;
  json["path"] = flags.out;
  json["written"] = !flags.dry_run;
  json["architecture"] = spec.arch;
  json["name"] = spec.name;
  json["seed"] = spec.seed;
  json["parameters"] = plan.parameters();
  json["data_bytes"] = plan.data_bytes();
  json["tensors"] = plan.tensors.size();
  json["formats"] = tensors_by_format(plan);
  fmt::print("{}\n", json_text(json));
}

Result<int> run(const Flags& flags) {
  LS_TRY(const Spec spec, spec_of(flags));
  LS_TRY(const forge::Plan plan, forge::plan_model(spec));
  if (!flags.dry_run) {
    LS_TRY_VOID(forge::write_model(
        spec, plan, flags.out, flags.force ? forge::Existing::kReplace : forge::Existing::kRefuse));
  }
  flags.json ? print_json(flags, spec, plan) : print_text(flags, spec, plan);
  return kDone;
}

void declare_sizes(CLI::App& app, Flags& flags) {
  Settings& set = flags.settings;
  set.add(app, "--layers", &Spec::layers, "Layers");
  set.add(app, "--width", &Spec::width, "Width of the residual stream");
  set.add(app, "--heads", &Spec::heads, "Query heads");
  set.add(app, "--kv-heads", &Spec::kv_heads, "Key and value heads; 0: as many as query heads");
  set.add(app, "--head-size", &Spec::head_size, "Size of a head; 0: width / heads");
  set.add(app, "--value-size", &Spec::value_size, "Size of a head's values; 0: the head size");
  set.add(app, "--feed-forward", &Spec::feed_forward, "Width of the feed-forward part");
  set.add(app, "--experts", &Spec::experts, "Experts in place of the feed-forward part; 0: none");
  set.add(app, "--experts-used", &Spec::experts_used, "Experts that a token chooses");
  set.add(app, "--expert-size", &Spec::expert_feed_forward,
          "Width of an expert; 0: that of the feed-forward part");
  set.add(app, "--shared-expert-size", &Spec::shared_feed_forward,
          "Width of the expert that all tokens share; 0: there is none");
  set.add(app, "--dense-layers", &Spec::dense_layers,
          "How many of the first layers have no experts");
  set.add(app, "--expert-groups", &Spec::expert_groups, "Groups of experts; 0: none");
  set.add(app, "--expert-groups-used", &Spec::expert_groups_used,
          "Groups that a token's experts come from");
  set.add(app, "--expert-scale", &Spec::expert_scale, "Factor of the chosen experts' weights");
  set.add_flag(app, "--sigmoid-experts", &Spec::sigmoid_experts,
               "Scores of experts by the sigmoid, with a sum of 1, as in DeepSeek V3");
  set.add(app, "--latent", &Spec::latent,
          "Short row that latent attention makes keys and values from; 0: the width");
  set.add(app, "--query-latent", &Spec::query_latent, "The same of its queries; 0: none");
  flags.vocabulary = set.add(app, "--vocab", &Spec::vocabulary,
                             "Tokens (default with --tokenizer: as many as that has)");
  set.add(app, "--context", &Spec::context, "Trained context");
  set.add(app, "--window", &Spec::window, "Positions that attention sees; 0: all");
  set.add(app, "--epsilon", &Spec::epsilon, "Epsilon of the norms");
  set.add(app, "--rope-base", &Spec::rope_base, "Base of the rotation's frequencies");
  set.add(app, "--rope-dims", &Spec::rope_dims, "Rotated numbers of a head; 0: all");
  add_value(app, "--rope-factors", flags.rope_factors, kRopeFactors,
            std::string("Tensors of factors: ") + kRopeFactorForms);
  add_value(app, "--rope-scaling", flags.rope_scaling, kRopeScaling,
            std::string("Scaled positions: ") + kRopeScalingForms);
  set.add(app, "--embedding-scale", &Spec::embedding_scale, "Granite's factor of the embedding");
  set.add(app, "--residual-scale", &Spec::residual_scale, "Granite's factor of each branch");
  set.add(app, "--attention-scale", &Spec::attention_scale, "Granite's factor of q · k");
  set.add(app, "--logit-scale", &Spec::logit_scale, "Granite's divisor of the logits");
  set.add_flag(app, "--tied,!--untied", &Spec::tied, "Whether the embedding serves as the output");
  set.add_flag(app, "--bias", &Spec::biases, "Biases where the architecture may have them");
}

std::function<Result<int>()> declare(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  add_value(app, "out", flags->out, kOutputModel, "The file to write")->required();
  add_value(app, "--like", flags->like, kForgedLike,
            fmt::format("All sizes of a well-known model; other flags change them: {}",
                        fmt::join(kForgedLike.words(), ", ")));
  add_value(app, "--arch", flags->arch, kArchitecture,
            fmt::format("Architecture, for a small model of given sizes: {}",
                        fmt::join(kArchitecture.words(), ", ")));
  flags->settings.add(
      app, "--type", &Spec::type, kForgedType,
      fmt::format("Formats: a recipe or one format for all matrices (default f16): {}",
                  fmt::join(kForgedType.words(), ", ")));
  flags->settings.add_flag(app, "--pure", &Spec::pure, "The recipe's main format for all matrices");
  flags->settings.add(app, "--seed", &Spec::seed, "Same seed, same bytes (default 0)");
  flags->settings.add(app, "--name", &Spec::name, kText, "What the file calls the model");
  add_value(app, "--tokenizer", flags->tokenizer, kModel,
            "Take the tokenizer of this GGUF file or model");
  declare_sizes(app, *flags);
  app.add_flag("--force", flags->force, "Replace a file that is there");
  app.add_flag("--dry-run", flags->dry_run, "Only say what would be written");
  app.add_flag("--json", flags->json, "Print one JSON object about the file");
  return [flags] { return run(*flags); };
}

}  // namespace forge_command

const Command kForgeCommand = {
    "forge",
    "Write a model with random weights, of given sizes and formats",
    "  lockstep forge --like qwen2.5-0.5b --type q4_k_m --seed 7 out.gguf\n"
    "  lockstep forge --arch llama --layers 3 --width 56 --heads 7 --kv-heads 1 --type f32 "
    "out.gguf\n"
    "  lockstep forge --like llama3-8b --type q4_k_m --dry-run --json out.gguf\n",
    forge_command::declare,
};

}  // namespace lockstep::cli
