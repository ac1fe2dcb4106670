#include "cli/completion.h"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

#include "cli/command.h"
#include "cli/value_kinds.h"
#include "cli/words.h"

namespace lockstep::cli {
namespace {

void offer_values(const CLI::Option& option, Completions& out) {
  const ValueKind* kind = find_value_kind(option.get_type_name());
  if (kind == nullptr) return;
  if (kind->paths != nullptr) out.paths = kind->paths;
  if (kind->words == nullptr) return;
  // Of a list, what stands before the last comma stays.
  const size_t comma = kind->list ? out.value.rfind(',') : std::string::npos;
  const std::string before = comma == std::string::npos ? "" : out.value.substr(0, comma + 1);
  for (const std::string& word : kind->words()) out.candidates.push_back({before + word, ""});
}

void offer_options(const CLI::App& app, Completions& out) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames())
      out.candidates.push_back({"--" + name, option->get_description()});
    for (const std::string& name : option->get_snames())
      out.candidates.push_back({"-" + name, option->get_description()});
  }
}

// The path of a command that `help` tells about: each word is a command of the one before.
void offer_help(const CLI::App& root, const std::vector<std::string>& words, Completions& out) {
  const CLI::App* app = &root;
  for (size_t i = 2; i + 1 < words.size(); ++i) {
    const CLI::App* next = nullptr;
    for (const CLI::App* sub : subcommands_of(*app))
      if (sub->get_name() == words[i]) next = sub;
    if (next == nullptr) return;
    app = next;
  }
  for (const CLI::App* sub : subcommands_of(*app))
    out.candidates.push_back({sub->get_name(), sub->get_description()});
}

}  // namespace

Completions complete(const CLI::App& root, const std::vector<std::string>& words) {
  Completions out;
  if (words.size() < 2) return out;
  out.value = words.back();
  WordReader reader(root);
  for (size_t i = 1; i + 1 < words.size(); ++i) reader.read(words[i]);

  if (const CLI::Option* option = reader.pending()) {
    offer_values(*option, out);
    return out;
  }
  const bool option_next = !reader.options_ended() && out.value.starts_with('-');
  if (const size_t equals = out.value.find('='); option_next && equals != std::string::npos) {
    const CLI::Option* option = find_option(reader.app(), out.value.substr(0, equals));
    out.value.erase(0, equals + 1);
    if (option != nullptr && takes_value(*option)) offer_values(*option, out);
    return out;
  }
  if (option_next) {
    offer_options(reader.app(), out);
    return out;
  }
  if (reader.app().get_name() == kHelpCommand.name) {
    offer_help(root, words, out);
    return out;
  }
  if (reader.expects_command())
    for (const CLI::App* sub : subcommands_of(reader.app()))
      out.candidates.push_back({sub->get_name(), sub->get_description()});
  if (const CLI::Option* position = reader.position()) offer_values(*position, out);
  // Where nothing but options can follow, they are what is looked for.
  if (out.candidates.empty() && out.paths.empty() && reader.position() == nullptr &&
      !reader.options_ended() && reader.app().get_parent() != nullptr)
    offer_options(reader.app(), out);
  return out;
}

Result<int> answer_completion(const CLI::App& root, const std::vector<std::string>& arguments) {
  const bool line = arguments.size() == 3 && arguments[1] == "bash";
  if (!line && (arguments.size() < 3 || arguments[1] != "words"))
    return error("{}: expected 'bash LINE' or 'words WORD...'", kCompleteWord);
  const std::vector<std::string> words =
      line ? shell_words(arguments[2])
           : std::vector<std::string>(arguments.begin() + 2, arguments.end());
  const Completions found = complete(root, words);
  if (found.value.find('\n') != std::string::npos) return kDone;  // no line could hold it
  std::string text = found.paths + "\n" + found.value + "\n";
  for (const Candidate& candidate : found.candidates) {
    if (line && !candidate.word.starts_with(found.value)) continue;
    std::string help = candidate.help;
    std::ranges::replace(help, '\n', ' ');
    text += candidate.word + "\t" + help + "\n";
  }
  std::fwrite(text.data(), 1, text.size(), stdout);
  return kDone;
}

}  // namespace lockstep::cli
