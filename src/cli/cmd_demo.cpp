// lockstep demo: what the program finds, shown on a bug made on purpose.
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include <unistd.h>

#include "base/shown_text.h"
#include "base/table.h"
#include "base/temporary_folder.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/model_path.h"
#include "cli/options.h"
#include "cli/prompt.h"
#include "doctor/alterations.h"
#include "doctor/doctor.h"
#include "engine/recording.h"
#include "engine/session.h"
#include "parity/compare.h"
#include "parity/scope.h"
#include "report/report.h"

namespace lockstep::cli {
namespace demo_command {

namespace fs = std::filesystem;

struct Flags {
  std::string model;  // empty: one that can have the bug
  std::string prompt = "GPU haiku with word fifty-one: ";
  std::string keep;
  std::string cause = "weight.layout";
  bool list = false;
};

// A mistake that people make, by the id of its cause: in which values, and how.
struct Mistake {
  const char* cause;
  const char* text;
  std::vector<std::string> values;  // by their names without the layer; of all layers
  doctor::Alteration alteration;
  const char* model = kDefaultModel;  // that can have it
};

// Of layers after the first.
bool with_first_layers_weight(doctor::Altered& altered, size_t op) {
  const op::Op& own = altered.op(op);
  const auto name = [&](const op::Op& other) {
    const std::string& all = altered.program().value(other.outputs[0]).name;
    return all.substr(all.rfind('.') + 1);
  };
  for (const op::Op& other : altered.program().ops)
    if (other.layer == 0 && own.layer > 0 && name(other) == name(own))
      if (const op::Weight* weight = doctor::weight_of(other))
        return doctor::other_weight(*weight)(altered, op);
  return false;
}

const std::vector<Mistake>& mistakes() {
  using A = op::Activate::Kind;
  static const std::vector<Mistake> kAll = {
      {"weight.layout",
       "its output matrix read with the wrong leading dimension",
       {"logits"},
       doctor::reweigh(doctor::column_major)},
      {"weight.transposed",
       "the matrices after attention used transposed",
       {"attn_out"},
       doctor::reweigh(doctor::column_major)},
      {"rope.pairing",
       "the other numbers of a head rotated together",
       {"q_rope", "k_rope"},
       doctor::other_pairing()},
      {"rope.base",
       "another base of the rotation",
       {"q_rope", "k_rope"},
       doctor::rope_base_times(50)},
      {"rope.missing", "keys not rotated", {"k_rope"}, doctor::without_rotation()},
      {"rope.dims",
       "two numbers of each head not rotated",
       {"q_rope", "k_rope"},
       doctor::rope([](op::Rope& rope) {
         rope.dims -= 2;
         if (!rope.factors.empty()) rope.factors.pop_back();
         return rope.dims > 0;
       })},
      {"norm.epsilon",
       "another epsilon",
       {"attn_norm", "ffn_norm", "final_norm"},
       doctor::epsilon_times(1e4)},
      {"norm.weight_missing",
       "norms without their weight",
       {"attn_norm"},
       doctor::norm_weight([](float) { return 1.0F; })},
      {"norm.weight_offset",
       "1 added to the weight of norms",
       {"ffn_norm"},
       doctor::norm_weight([](float w) { return 1 + w; })},
      {"norm.missing", "no norm before the feed-forward", {"ffn_norm"}, doctor::passes_on(0)},
      {"bias.missing",
       "the bias of q left out",
       {"q", "qkv"},
       doctor::bias_times(0),
       "haiku-qwen2"},
      {"bias.twice",
       "the bias of v added twice",
       {"v", "qkv"},
       doctor::bias_times(2),
       "haiku-qwen2"},
      {"attention.scale",
       "the scale of attention left out",
       {"attn_mix"},
       doctor::attention_scale(1)},
      {"attention.window", "a window of 8 positions", {"attn_mix"}, doctor::window(8)},
      {"attention.soft_cap", "scores capped at 2", {"attn_mix"}, doctor::soft_cap(2)},
      {"activation.kind", "another activation", {"ffn_act"}, doctor::activation(A::kGeluErf)},
      {"activation.inputs_swapped",
       "gate and up swapped",
       {"ffn_act"},
       doctor::keeps_inputs({1, 0})},
      {"residual.missing",
       "the residual left out after attention",
       {"attn_residual"},
       doctor::passes_on(1)},
      {"scale.missing",
       "a factor of the model left out",
       {"embedding", "logits"},
       doctor::scale_factor(1),
       "haiku-granite"},
      {"slices.swapped",
       "gate taken for up in the fused projection",
       {"ffn_up"},
       doctor::slice_first(0),
       "haiku-phi3"},
      {"weight.other_layer", "k made with the matrix of layer 0", {"k"}, with_first_layers_weight},
      {"norm.kind", "layer norms for RMS norms", {"attn_norm"}, doctor::other_norm_kind()},
      {"rope.scaling",
       "positions divided by 4",
       {"q_rope", "k_rope"},
       doctor::rope([](op::Rope& rope) {
         rope.position_scale /= 4;
         return true;
       })},
      {"residual.input",
       "attention added to itself, not to what went in",
       {"attn_residual"},
       doctor::keeps_inputs({1, 1})},
      {"experts.normalization",
       "weights of the chosen experts not divided by their sum",
       {"ffn_weights"},
       doctor::weigh([](op::Weigh& weigh) {
         weigh.normalize = !weigh.normalize;
         return true;
       }),
       "haiku-moe"},
      {"experts.scoring",
       "a sigmoid of the router's numbers, not a softmax",
       {"ffn_weights"},
       doctor::weigh([](op::Weigh& weigh) {
         const bool softmax = weigh.scoring == op::Scoring::kSoftmax;
         weigh.scoring = softmax ? op::Scoring::kSigmoid : op::Scoring::kSoftmax;
         return true;
       }),
       "haiku-moe"},
      {"experts.index",
       "the weights of the next expert used",
       {"ffn_expert_up"},
       doctor::weights_of_expert(1),
       "haiku-moe"},
  };
  return kAll;
}

// Makes the mistake wherever the program can have it. False: nowhere.
bool make_mistake(const Mistake& mistake, doctor::Altered& program) {
  bool made = false;
  for (size_t i = 0; i < program.program().ops.size(); ++i) {
    const op::Value& value = program.program().value(program.op(i).outputs[0]);
    const std::string name = value.name.substr(value.name.rfind('.') + 1);
    if (std::ranges::find(mistake.values, name) == mistake.values.end()) continue;
    if (mistake.cause == std::string("weight.transposed"))
      if (const op::Weight* weight = doctor::weight_of(program.op(i));
          weight == nullptr || weight->rows != weight->columns)
        continue;
    made = mistake.alteration(program, i) || made;
  }
  return made;
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

Result<int> list_mistakes() {
  Table table({{"cause"}, {"mistake"}});
  for (const Mistake& mistake : mistakes()) table.add({mistake.cause, mistake.text});
  fmt::print("{}", table.render(terminal_width(STDOUT_FILENO, 100),
                                Paint(terminal_colours(STDOUT_FILENO))));
  return kDone;
}

Result<const Mistake*> find_mistake(const std::string& cause) {
  const auto found = std::ranges::find(mistakes(), cause, &Mistake::cause);
  if (found == mistakes().end())
    return error("no bug of the name {}; 'lockstep demo bug --list' has all", printable(cause));
  return &*found;
}

Result<int> bug(const Flags& flags) {
  if (flags.list) return list_mistakes();
  LS_TRY(const Mistake* chosen, find_mistake(flags.cause));
  const Mistake& mistake = *chosen;
  const std::string model_name = flags.model.empty() ? mistake.model : flags.model;
  LS_TRY(const std::string path, model_path(model_name));
  LS_TRY(const model::Model model, model::Model::load(path));
  PromptFlags prompt_flags;
  prompt_flags.text = flags.prompt;
  LS_TRY(const Prompt prompt, read_prompt(prompt_flags, model));
  const auto context = static_cast<int64_t>(prompt.tokens.size()) + 40;
  LS_TRY(const op::Program right, model.program(context));
  doctor::Altered wrong(right);
  if (!make_mistake(mistake, wrong))
    return error("{} has nothing that could be wrong by {}; 'lockstep demo bug --list' has others",
                 model_name, mistake.cause);

  LS_TRY(const TemporaryFolder temporary, TemporaryFolder::create());
  const fs::path folder = flags.keep.empty() ? temporary.path() : fs::path(flags.keep);
  LS_TRY(const std::string good, take(right, model, prompt, (folder / "right").string()));
  LS_TRY(const std::string bad, take(wrong.program(), model, prompt, (folder / "wrong").string()));
  fmt::print("The prompt: {}\n\nThe engine as it should be:\n{}\n\n", flags.prompt,
             shown_text(good, STDOUT_FILENO));
  fmt::print("The same engine with one mistake, {}:\n{}\n\n", mistake.text,
             shown_text(bad, STDOUT_FILENO));
  fmt::print("What 'lockstep compare right wrong -m {}' says:\n\n", model_name);

  LS_TRY(const trace::Trace reference, trace::Trace::open((folder / "right").string()));
  LS_TRY(const trace::Trace suspect, trace::Trace::open((folder / "wrong").string()));
  parity::Scope scope;
  LS_TRY(const parity::Comparison comparison,
         parity::compare(reference, suspect, &model, {}, &scope));
  report::Subject subject;
  subject.reference = report::describe(reference);
  subject.suspect = report::describe(suspect);
  subject.model = path;
  subject.diagnoses = doctor::diagnose(comparison, scope, &model, {});
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
  add_value(*sub, "cause", flags->cause, kText, "The bug, by its cause (docs/diagnosis.md)")
      ->default_str(flags->cause);
  sub->add_flag("--list", flags->list, "List the bugs that can be shown");
  add_value(*sub, "-m,--model", flags->model, kModel,
            "GGUF file, or the name of a model (default: a shipped one that can have the bug)");
  add_value(*sub, "-p,--prompt", flags->prompt, kText, "The prompt")->default_str(flags->prompt);
  add_value(*sub, "--keep", flags->keep, kNewFolder, "Leave the two traces in this new folder");
  return [flags] { return bug(*flags); };
}

}  // namespace demo_command

const Command kDemoCommand = {
    "demo",
    "Show what the program finds, on a bug made on purpose",
    "  lockstep demo bug\n"
    "  lockstep demo bug --list\n"
    "  lockstep demo bug rope.pairing\n"
    "  lockstep demo bug -m haiku-qwen2 --keep traces && lockstep compare traces/right "
    "traces/wrong\n",
    demo_command::declare,
};

}  // namespace lockstep::cli
