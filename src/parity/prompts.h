// Why two prompts differ, as far as their tokens tell.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trace/manifest.h"

namespace lockstep::parity {

struct PromptDifference {
  // bos_missing, bos_doubled, shift, longer, tokenization, template, model, text
  std::string kind;
  std::string text;  // a clause: "the suspect lacks the BOS token 1 that the reference starts with"
};

// What is known of the model's tokenizer.
struct TokenKnowledge {
  std::optional<int32_t> bos;
  std::function<std::string(const std::vector<int32_t>&)> text;  // empty: not at hand
};

// Of two manifests whose prompts are not the same.
PromptDifference name_difference(const trace::Manifest& reference, const trace::Manifest& suspect,
                                 const TokenKnowledge& known);

}  // namespace lockstep::parity
