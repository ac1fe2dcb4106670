// lockstep tokenize: text to token ids, and back.
#include <charconv>
#include <cstdio>
#include <memory>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/shown_text.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/model_path.h"
#include "cli/options.h"
#include "cli/prompt.h"
#include "gguf/file.h"
#include "hub/folder.h"
#include "tokenizer/tokenizer.h"

namespace lockstep::cli {
namespace tokenize_command {

using nlohmann::ordered_json;
using tokenizer::TokenId;
using tokenizer::Tokenizer;

struct Flags {
  std::string model = kDefaultModel;
  std::optional<std::string> prompt;
  bool jsonl = false;
  bool no_bos = false;
  bool no_special = false;
  bool decode = false;
  bool json = false;
};

std::string spaced(const std::vector<TokenId>& ids) {
  return fmt::format("{}\n", fmt::join(ids, " "));
}

// Ids separated by spaces, commas or line ends.
Result<std::vector<TokenId>> parse_ids(std::string_view text, const Tokenizer& tokens) {
  constexpr std::string_view kBetween = " ,\t\r\n[]";
  std::vector<TokenId> ids;
  for (size_t at; (at = text.find_first_not_of(kBetween)) != std::string_view::npos;) {
    text.remove_prefix(at);
    const std::string_view word = text.substr(0, text.find_first_of(kBetween));
    TokenId id = 0;
    const auto [end, failure] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (failure != std::errc() || end != word.data() + word.size() || id < 0 ||
        id >= tokens.size()) {
      return error("'{}' is no token id, expected 0 to {}", printable(word, 80), tokens.size() - 1);
    }
    ids.push_back(id);
    text.remove_prefix(word.size());
  }
  return ids;
}

// A token may spell parts of characters; those bytes show as U+FFFD, and `piece` tells them apart.
std::string as_json(const std::vector<TokenId>& ids, const Tokenizer& tokens) {
  ordered_json list = ordered_json::array();
  for (const TokenId id : ids) {
    list.push_back({{"id", id}, {"text", tokens.piece(id, true)}, {"piece", tokens.text(id)}});
  }
  const ordered_json whole = {{"count", ids.size()}, {"ids", ids}, {"tokens", std::move(list)}};
  return json_text(whole, 2) + "\n";
}

Result<int> encode_lines(const Tokenizer& tokens, const tokenizer::EncodeOptions& options) {
  for (int64_t number = 1;; ++number) {
    LS_TRY(const std::optional<std::string> line, read_input_line());
    if (!line) return kDone;
    const ordered_json value = ordered_json::parse(*line, nullptr, /*allow_exceptions=*/false);
    if (!value.is_string()) {
      std::fflush(stdout);
      return error("line {} of the input is {}, expected a JSON string", number,
                   value.is_discarded() ? "no JSON" : value.type_name());
    }
    fmt::print("{}", spaced(tokens.encode(value.get_ref<const std::string&>(), options)));
  }
}

Result<int> tokenize(const Flags& flags) {
  LS_TRY(const std::string path, model_path(flags.model));
  LS_TRY(const gguf::File file, hub::open(path));
  LS_TRY(const std::unique_ptr<Tokenizer> tokens, Tokenizer::load(file));
  const tokenizer::EncodeOptions options{.add_special = !flags.no_bos,
                                         .parse_special = !flags.no_special};
  if (flags.jsonl) return encode_lines(*tokens, options);
  std::string input;
  if (flags.prompt) {
    input = *flags.prompt;
  } else {
    LS_TRY(input, read_standard_input());
  }
  if (flags.decode) {
    LS_TRY(const std::vector<TokenId> ids, parse_ids(input, *tokens));
    const std::string text = shown_text(tokens->decode(ids, !flags.no_special), STDOUT_FILENO);
    std::fwrite(text.data(), 1, text.size(), stdout);
    return kDone;
  }
  const std::vector<TokenId> ids = tokens->encode(input, options);
  fmt::print("{}", flags.json ? as_json(ids, *tokens) : spaced(ids));
  return kDone;
}

std::function<Result<int>()> declare(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  add_value(app, "-m,--model", flags->model, kModel,
            "GGUF file, folder from the hub, or the name of a model")
      ->default_str(flags->model);
  CLI::Option* prompt = add_value(app, "-p,--prompt", flags->prompt, kPromptText,
                                  "Text to encode; without it, standard input as it is");
  CLI::Option* jsonl = app.add_flag("--jsonl", flags->jsonl,
                                    "Read one JSON string a line; print the ids of each on a line");
  app.add_flag("--no-bos", flags->no_bos, "Do not add the tokens that begin and end a text");
  app.add_flag("--no-special", flags->no_special,
               "Take special tokens such as <|im_end|> as plain text; with --decode, omit them");
  CLI::Option* decode = app.add_flag("--decode", flags->decode, "Ids to text")->excludes(jsonl);
  app.add_flag("--json", flags->json,
               "As JSON, of each token: id; text, what it spells; piece, as the vocabulary has it")
      ->excludes(jsonl)
      ->excludes(decode);
  prompt->excludes(jsonl);
  return [flags] { return tokenize(*flags); };
}

}  // namespace tokenize_command

extern const Command kTokenizeCommand = {
    "tokenize",
    "Text to token ids, and back",
    "  lockstep tokenize -m model.gguf -p 'Hello world'\n"
    "  lockstep tokenize -m model.gguf --json < prompt.txt\n"
    "  lockstep tokenize -m model.gguf --decode -p '9906 1917'\n"
    "  printf '\"one\"\\n\"two\"\\n' | lockstep tokenize -m model.gguf --jsonl --no-bos",
    tokenize_command::declare,
};

}  // namespace lockstep::cli
