#include "cli/prompt.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/text.h"
#include "cli/number_list.h"
#include "cli/options.h"
#include "tokenizer/chat_prompt.h"

namespace lockstep::cli {
namespace {

bool has_tokenizer(const gguf::File& file) {
  const auto kind = file.text_or("tokenizer.ggml.model", "none");
  return !kind.ok() || (*kind != "none" && *kind != "no_vocab");
}

// Far beyond any context: what goes on after it, such as a device, may never end.
constexpr size_t kMostPromptBytes = size_t{64} << 20;

Result<std::string> read_bounded(std::FILE* file, const std::string& source) {
  std::string text;
  char piece[1 << 16];
  while (const size_t count = std::fread(piece, 1, sizeof piece, file)) {
    text.append(piece, count);
    if (text.size() > kMostPromptBytes)
      return error("{}: the prompt has more than {} bytes", printable(source), kMostPromptBytes);
  }
  if (std::ferror(file) != 0)
    return error("{}: cannot read the prompt: {}", printable(source), std::strerror(errno));
  return text;
}

Result<std::string> read_text(const PromptFlags& flags) {
  if (flags.text) return *flags.text;
  if (flags.file.empty()) return error("no prompt: give -p TEXT, -f FILE or --tokens IDS");
  if (flags.file == "-") return read_standard_input();
  std::FILE* file = std::fopen(flags.file.c_str(), "rbe");
  if (file == nullptr)
    return error("{}: cannot read the prompt: {}", printable(flags.file), std::strerror(errno));
  Result<std::string> text = read_bounded(file, flags.file);
  std::fclose(file);
  return text;
}

// The conversation as the model's own template writes it.
Result<tokenizer::ChatText> as_chat(const PromptFlags& flags, const std::string& text,
                                    const model::Model& model,
                                    const tokenizer::Tokenizer& tokenizer) {
  const auto chat = tokenizer::ChatPrompt::load(model.file(), tokenizer);
  if (!chat.ok()) return error("--chat: {}", chat.error().message);
  auto messages = nlohmann::ordered_json::array();
  if (!flags.system.empty()) messages.push_back({{"role", "system"}, {"content", flags.system}});
  messages.push_back({{"role", "user"}, {"content", text}});
  return chat->render(messages);
}

}  // namespace

void declare_prompt(CLI::App& app, PromptFlags& flags) {
  auto* text = add_value(app, "-p,--prompt", flags.text, kPromptText, "The prompt");
  auto* file = add_value(app, "-f,--file", flags.file, kInputFileOrStdin,
                         "File with the prompt; - is standard input");
  auto* tokens =
      add_value(app, "--tokens", flags.tokens, kTokenIds, "The prompt as token ids: 1,2,3");
  text->excludes(file)->excludes(tokens);
  file->excludes(tokens);
  auto* chat = app.add_flag("--chat", flags.chat, "Wrap the prompt in the model's chat template");
  chat->excludes(tokens);
  add_value(app, "--system", flags.system, kText, "System message of the chat")->needs(chat);
}

Result<std::string> read_standard_input() {
  return read_bounded(stdin, "standard input");
}

Result<std::optional<std::string>> read_input_line() {
  std::string line;
  for (int c = std::getc(stdin); c != '\n'; c = std::getc(stdin)) {
    if (c == EOF && std::ferror(stdin) != 0)
      return error("standard input: cannot read: {}", std::strerror(errno));
    if (c == EOF && line.empty()) return std::optional<std::string>();
    if (c == EOF) break;
    line += static_cast<char>(c);
    if (line.size() > kMostPromptBytes)
      return error("standard input: a line has more than {} bytes", kMostPromptBytes);
  }
  return std::optional(std::move(line));
}

Result<Prompt> read_prompt(const PromptFlags& flags, const model::Model& model) {
  Prompt prompt;
  if (has_tokenizer(model.file())) {
    LS_TRY(prompt.tokenizer, tokenizer::Tokenizer::load(model.file()));
  }
  if (!flags.tokens.empty()) {
    LS_TRY(prompt.tokens, parse_token_ids(flags.tokens));
    return prompt;
  }
  if (prompt.tokenizer == nullptr)
    return error("{}: the model has no tokenizer; give the prompt as --tokens 1,2,3",
                 model.file().path());
  LS_TRY(std::string text, read_text(flags));
  if (flags.chat) {
    LS_TRY(tokenizer::ChatText chat, as_chat(flags, text, model, *prompt.tokenizer));
    prompt.tokens = std::move(chat.tokens);
    prompt.text = std::move(chat.text);
  } else {
    prompt.tokens = prompt.tokenizer->encode(text);
    prompt.text = std::move(text);
  }
  if (prompt.tokens.empty()) return error("the prompt has no tokens; the model needs at least one");
  return prompt;
}

}  // namespace lockstep::cli
