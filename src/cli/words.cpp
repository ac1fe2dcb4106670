#include "cli/words.h"

#include <algorithm>

namespace lockstep::cli {
namespace {

// llama.cpp's users know the flag by a name of several letters after one dash.
constexpr std::string_view kLlamaFlag = "-ngl";
constexpr std::string_view kOurFlag = "--gpu-layers";

}  // namespace

bool takes_value(const CLI::Option& option) {
  return option.get_items_expected_max() > 0;
}

const CLI::Option* find_option(const CLI::App& app, std::string_view name) {
  for (const CLI::Option* option : app.get_options())
    if (name.starts_with("--") ? option->check_lname(std::string(name.substr(2)))
                               : option->check_sname(std::string(name.substr(1))))
      return option;
  return nullptr;
}

std::vector<const CLI::App*> subcommands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

void WordReader::read(const std::string& word) {
  if (pending_ != nullptr) {
    pending_ = nullptr;
    return;
  }
  if (!options_ended_ && word == "--") {
    options_ended_ = true;
    return;
  }
  if (!options_ended_ && word.starts_with("--")) {
    const size_t equals = word.find('=');
    const CLI::Option* option = find_option(*app_, std::string_view(word).substr(0, equals));
    if (option != nullptr && takes_value(*option) && equals == std::string::npos) pending_ = option;
    return;
  }
  if (!options_ended_ && word.size() > 1 && word[0] == '-') {
    const CLI::Option* option = find_option(*app_, std::string_view(word).substr(0, 2));
    if (option != nullptr && takes_value(*option) && word.size() == 2) pending_ = option;
    return;
  }
  if (expects_command())
    for (const CLI::App* sub : subcommands_of(*app_))
      if (sub->get_name() == word) {
        app_ = sub;
        positions_ = 0;
        return;
      }
  ++positions_;
}

const CLI::Option* WordReader::position() const {
  std::vector<const CLI::Option*> positions;
  for (const CLI::Option* option : app_->get_options())
    if (option->get_positional()) positions.push_back(option);
  if (positions.empty()) return nullptr;
  if (positions_ < positions.size()) return positions[positions_];
  return positions.back()->get_items_expected_max() > 1 ? positions.back() : nullptr;
}

bool WordReader::expects_command() const {
  return positions_ == 0 && !options_ended_;
}

std::vector<std::string> words_for_cli11(const CLI::App& root,
                                         const std::vector<std::string>& words) {
  std::vector<std::string> out;
  WordReader reader(root);
  for (std::string word : words) {
    const bool value = reader.pending() != nullptr;
    if (!value && !reader.options_ended() && word == kLlamaFlag &&
        find_option(reader.app(), kOurFlag) != nullptr)
      word = kOurFlag;
    const bool option = !value && !reader.options_ended() && word.starts_with("--");
    const CLI::Option* position = reader.position();
    const std::string name = word.substr(0, word.find('='));
    const CLI::Option* named = option ? find_option(reader.app(), name) : nullptr;
    if (named != nullptr && takes_value(*named) && word == name + "=") {
      out.push_back(name);
      out.emplace_back();
    } else if (!value && position != nullptr && position->get_items_expected_max() > 1 &&
               word.starts_with('[') && word.ends_with(']')) {
      out.push_back("./" + word);
    } else {
      out.push_back(word);
    }
    reader.read(word);
  }
  return out;
}

}  // namespace lockstep::cli
