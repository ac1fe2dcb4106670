#include "doctor/given.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

namespace lockstep::doctor {
namespace {

Diagnosis of_both(const char* cause, const char* checkpoint) {
  Diagnosis out;
  out.cause = cause;
  out.side = parity::Side::kUndetermined;
  out.checkpoint = checkpoint;
  out.proved = true;
  return out;
}

std::span<const int32_t> prompt_of(const trace::Manifest& manifest) {
  const auto count = std::clamp<int64_t>(manifest.prompt_tokens, 0, std::ssize(manifest.tokens));
  return std::span(manifest.tokens).first(static_cast<size_t>(count));
}

// By how much the tokens of `part` come later in `whole`; nothing: they do not.
std::optional<int64_t> place_in(std::span<const int32_t> whole, std::span<const int32_t> part) {
  const auto found = std::search(whole.begin(), whole.end(), part.begin(), part.end());
  if (found == whole.end()) return std::nullopt;
  return found - whole.begin();
}

void add_prompts(const parity::Comparison& comparison, const parity::Scope& scope,
                 std::vector<Diagnosis>& out) {
  if (!comparison.prompts) return;
  const std::string& kind = comparison.prompts->kind;
  const char* cause = kind == "bos_missing" || kind == "bos_doubled" ? "tokens.bos"
                      : kind == "shift"                              ? "tokens.shifted"
                      : kind == "template"                           ? "tokens.template"
                                                                     : nullptr;
  if (cause == nullptr) return;
  Diagnosis made = of_both(cause, "tokens");
  made.text = fmt::format("The prompts differ: {}", comparison.prompts->text);
  std::optional<int64_t> offset = comparison.tokens.offset;
  if (!offset && kind == "shift" && scope.reference.trace != nullptr &&
      scope.suspect.trace != nullptr) {
    const auto reference = prompt_of(scope.reference.trace->manifest());
    const auto suspect = prompt_of(scope.suspect.trace->manifest());
    offset = place_in(reference, suspect);
    if (const auto later = place_in(suspect, reference); !offset && later) offset = -*later;
  }
  if (offset) made.parameters = {{"offset", *offset}};
  made.fix = "Give both engines the same tokens.";
  out.push_back(std::move(made));
}

// A number of the suspect's first rotation that has another one than the reference's.
std::optional<double> other_number(const op::Program& reference, const op::Program& suspect,
                                   double op::Rope::*number) {
  for (size_t i = 0; i < std::min(reference.ops.size(), suspect.ops.size()); ++i) {
    const auto* a = std::get_if<op::Rope>(&reference.ops[i].what);
    const auto* b = std::get_if<op::Rope>(&suspect.ops[i].what);
    if (a != nullptr && b != nullptr && a->*number != b->*number) return b->*number;
  }
  return std::nullopt;
}

// Another file, or a rotation that one side says it was set to.
void add_models(const parity::Comparison& comparison, const parity::Scope& scope,
                std::vector<Diagnosis>& out) {
  if (comparison.parity) return;
  if (!comparison.other_models.empty() && !comparison.explanation) {
    Diagnosis made = of_both("model.other_file", "model");
    made.parameters = {{"files", comparison.other_models}};
    made.text = fmt::format("The sides ran different model files: {}", comparison.other_models);
    made.fix = "Give both engines the same file.";
    out.push_back(std::move(made));
  }
  if (comparison.other_settings.empty()) return;
  const op::Program& reference = scope.reference.forwards.front().program;
  const op::Program& suspect = scope.suspect.forwards.front().program;
  const auto add = [&](const char* cause, const std::optional<double>& value) {
    Diagnosis made = of_both(cause, "settings");
    if (value) made.parameters = {{"value", *value}};
    made.text = fmt::format("The sides ran the model with different settings: {}",
                            comparison.other_settings);
    made.fix = "Give both engines the same settings of the rotation and the same context length.";
    out.push_back(std::move(made));
  };
  const auto base = other_number(reference, suspect, &op::Rope::base);
  const auto scale = other_number(reference, suspect, &op::Rope::position_scale);
  if (base) add("rope.base", base);
  if (scale) add("rope.scaling", scale);
  if (!base && !scale) add("rope.factors", std::nullopt);
}

}  // namespace

void diagnose_given(const parity::Comparison& comparison, const parity::Scope& scope,
                    std::vector<Diagnosis>& out) {
  add_prompts(comparison, scope, out);
  add_models(comparison, scope, out);
}

void diagnose_choices(const parity::Comparison& comparison, std::vector<Diagnosis>& out) {
  for (const auto& [side, choices] :
       {std::pair(parity::Side::kReference, &comparison.reference.choices),
        std::pair(parity::Side::kSuspect, &comparison.suspect.choices)}) {
    if (!choices->impossible) continue;
    const parity::Choice& choice = *choices->impossible;
    Diagnosis made;
    made.cause = "choice";
    made.side = side;
    made.checkpoint = parity::kChoice;
    made.positions = {choice.position};
    made.proved = true;
    made.text = fmt::format(
        "At position {} it took token {} (logit {:.9g}), which its own logits and its sampling "
        "cannot give: token {} has the largest logit ({:.9g})",
        choice.position, choice.token, choice.logit, choice.largest, choice.largest_logit);
    made.fix = "Look at the sampler, and at which row of logits it reads.";
    out.push_back(std::move(made));
  }
}

}  // namespace lockstep::doctor
