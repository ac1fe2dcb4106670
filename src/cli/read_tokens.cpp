#include "cli/read_tokens.h"

#include <algorithm>

#include "cli/options.h"

namespace lockstep::cli {

void declare_text(CLI::App& app, PromptFlags& flags) {
  auto* file =
      add_value(app, "-f,--file", flags.file, kInputFileOrStdin, "The text; - is standard input");
  add_value(app, "--tokens", flags.tokens, kTokenIds, "The text as token ids: 1,2,3")
      ->excludes(file);
}

Result<TextTokens> read_tokens(const PromptFlags& flags, const model::Model& model) {
  if (flags.file.empty() && flags.tokens.empty())
    return error("no text: give -f FILE or --tokens IDS");
  LS_TRY(Prompt prompt, read_prompt(flags, model));
  TextTokens text{std::move(prompt.tokens), {}};
  if (flags.tokens.empty() && prompt.tokenizer->adds_bos() && prompt.tokenizer->bos()) {
    text.begin = prompt.tokenizer->bos();
    text.tokens.erase(text.tokens.begin());  // encode() put it there
  }
  return text;
}

Result<int64_t> window_length(int64_t asked, int64_t longest, const TextTokens& text) {
  constexpr int64_t kDefault = 512;
  if (asked > longest)
    return error("--ctx {} is longer than the context of {} tokens that the model has", asked,
                 longest);
  const int64_t length = asked > 0 ? asked : std::min(kDefault, longest);
  const int64_t least = text.begin ? 3 : 2;
  if (length < least)
    return error("windows of {} token{} leave nothing to predict; at least {} are needed", length,
                 length == 1 ? "" : "s", least);
  return length;
}

}  // namespace lockstep::cli
