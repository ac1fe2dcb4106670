#include "report/compared.h"

#include <algorithm>

#include "doctor/doctor.h"
#include "gguf/fingerprint.h"
#include "parity/scope.h"

namespace lockstep::report {
namespace {

std::optional<TokenPair> first_difference(const parity::Comparison& comparison,
                                          const trace::Trace& reference,
                                          const trace::Trace& suspect, const model::Model* model,
                                          const tokenizer::Tokenizer* tokenizer, bool own_files) {
  if (!comparison.tokens.first_difference) return std::nullopt;
  TokenPair pair;
  pair.index = *comparison.tokens.first_difference;
  const auto show = [&](const trace::Trace& trace, std::optional<int32_t>& id,
                        std::optional<std::string>& text) {
    const auto& tokens = trace.manifest().tokens;
    if (pair.index >= static_cast<int64_t>(tokens.size())) return;
    id = tokens[static_cast<size_t>(pair.index)];
    // Ids of another model's vocabulary would be shown as words that they are not.
    const std::string& fingerprint = trace.manifest().model.fingerprint;
    const bool own =
        tokenizer != nullptr && model != nullptr &&
        (own_files || fingerprint.empty() || fingerprint == gguf::fingerprint(model->file()));
    if (own && *id < tokenizer->size()) text = tokenizer->piece(*id, true);
  };
  show(reference, pair.reference, pair.reference_text);
  show(suspect, pair.suspect, pair.suspect_text);
  return pair;
}

// What the model's tokenizer tells of prompts that differ.
parity::TokenKnowledge token_knowledge(const tokenizer::Tokenizer* known) {
  parity::TokenKnowledge out;
  if (known == nullptr) return out;
  const tokenizer::Tokenizer& tokenizer = *known;
  out.bos = tokenizer.bos();
  out.text = [&tokenizer](const std::vector<int32_t>& tokens) {
    std::string text;
    for (const int32_t token : tokens)
      text += token < tokenizer.size() ? tokenizer.piece(token, true) : std::string("?");
    return text;
  };
  return out;
}

}  // namespace

void rename_checkpoints(const std::optional<trace::NameMap>& given, trace::Trace& trace) {
  const std::string& engine = trace.manifest().engine.name;
  const trace::NameMap* map = given && given->engine() == engine ? &*given : nullptr;
  if (map == nullptr) map = trace::find_name_map(engine);
  if (map != nullptr) trace.rename(*map);
}

Result<Compared> compare(const trace::Trace& reference, const trace::Trace& suspect,
                         const model::Model* model, const tokenizer::Tokenizer* tokenizer,
                         parity::CompareOptions options, const Diagnosing& diagnosing) {
  options.tokens = token_knowledge(tokenizer);
  Compared out;
  parity::Scope scope;
  LS_TRY(out.comparison, parity::compare(reference, suspect, model, options, &scope));
  Subject& subject = out.subject;
  subject.reference = describe(reference);
  subject.suspect = describe(suspect);
  if (model != nullptr) subject.model = model->file().path();
  if (options.suspect_model != nullptr)
    subject.suspect_model = options.suspect_model->file().path();
  subject.difference = first_difference(out.comparison, reference, suspect, model, tokenizer,
                                        options.suspect_model != nullptr);
  if (diagnosing.begins) diagnosing.begins();
  const bool given_up = !options.products().failure().empty();
  if (diagnosing.depth > 0)
    subject.diagnoses =
        doctor::diagnose(out.comparison, scope, model,
                         {.depth = diagnosing.depth,
                          .seconds = std::max(diagnosing.seconds, out.comparison.seconds),
                          .threads = options.threads,
                          .checkpoints = options.checkpoints,
                          .device = options.device,
                          .search = diagnosing.search,
                          .interrupted = diagnosing.interrupted});
  if (const std::string& failure = options.products().failure(); !given_up && !failure.empty())
    out.comparison.notes.push_back(fmt::format(
        "the GPU was given up while causes were looked for, and the CPU did the rest: {}",
        failure));
  return out;
}

}  // namespace lockstep::report
