// The prompt of a command, from text, a file, standard input or token ids, as a chat or plain.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/result.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

namespace lockstep::cli {

struct PromptFlags {
  std::optional<std::string> text;
  std::string file;
  std::string tokens;  // ids and commas
  bool chat = false;
  std::string system;
};

struct Prompt {
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;  // null: the model has none
  std::string text;                                 // as the tokenizer saw it; empty for token ids
  std::vector<tokenizer::TokenId> tokens;
};

void declare_prompt(CLI::App& app, PromptFlags& flags);

// All of standard input, or its next line without the end; a length that no prompt has is an error.
// No line: the input is at its end.
Result<std::string> read_standard_input();
Result<std::optional<std::string>> read_input_line();

Result<Prompt> read_prompt(const PromptFlags& flags, const model::Model& model);

}  // namespace lockstep::cli
