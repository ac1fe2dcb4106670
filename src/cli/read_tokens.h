// A text whose tokens are read in windows, each of which begins as a text does.
#pragma once

#include <optional>
#include <vector>

#include "cli/prompt.h"
#include "exec/executor.h"

namespace lockstep::cli {

struct TextTokens {
  std::vector<exec::TokenId> tokens;   // without BOS
  std::optional<exec::TokenId> begin;  // BOS, where the model's texts begin with it
};

// From -f or --tokens.
Result<TextTokens> read_tokens(const PromptFlags& flags, const model::Model& model);
void declare_text(CLI::App& app, PromptFlags& flags);

// --ctx, or the default, within what the model has.
Result<int64_t> window_length(int64_t asked, int64_t longest, const TextTokens& text);

}  // namespace lockstep::cli
