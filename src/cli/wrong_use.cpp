#include "cli/wrong_use.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include <fmt/ranges.h>

#include "base/near_names.h"
#include "base/text.h"
#include "cli/value_kinds.h"
#include "cli/words.h"

namespace lockstep::cli {
namespace {

// "run", "models pull"; "" for the program itself.
std::string path_of(const CLI::App& app) {
  if (app.get_parent() == nullptr) return "";
  const std::string above = path_of(*app.get_parent());
  return above.empty() ? app.get_name() : above + " " + app.get_name();
}

// The command that was asked for.
const CLI::App& chosen_app(const CLI::App& root) {
  const CLI::App* app = &root;
  for (auto next = app->get_subcommands(); !next.empty(); next = app->get_subcommands())
    app = next.front();
  return *app;
}

std::string unknown_option_text(const CLI::App& app, const std::string& word) {
  const std::string given = word.substr(0, word.find('='));
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  const std::string shown = printable(given, 100);
  std::vector<std::string> near = nearest_names(given, names);
  return near.empty()
             ? fmt::format("no option '{}'", shown)
             : fmt::format("no option '{}'; did you mean {}?", shown, fmt::join(near, " or "));
}

// "-temp": one dash too few, which CLI11 reads as "-t emp".
std::optional<std::string> one_dash_text(const CLI::App& root,
                                         const std::vector<std::string>& arguments) {
  WordReader reader(root);
  for (const std::string& word : arguments) {
    const std::string name = word.substr(0, word.find('='));
    const bool option = reader.pending() == nullptr && !reader.options_ended() && name.size() > 2 &&
                        name[0] == '-' && name[1] != '-';
    if (option && find_option(reader.app(), "-" + name) != nullptr)
      return fmt::format("no option '{}'; did you mean -{}?", name, name);
    reader.read(word);
  }
  return std::nullopt;
}

// Of what CLI11 could make nothing.
std::optional<std::string> leftover_text(const CLI::App& app) {
  const std::vector<std::string> left = app.remaining();
  for (const std::string& word : left)
    if (word.size() > 1 && word[0] == '-') return unknown_option_text(app, word);
  if (left.empty()) return std::nullopt;
  if (!subcommands_of(app).empty()) return no_command_text(app, left.front());
  return fmt::format("found '{}', which no option and no position takes",
                     printable(left.front(), 100));
}

// "TRACE": how the help calls what an option or position expects.
std::string expected_by(const CLI::Option& option) {
  const ValueKind* kind = find_value_kind(option.get_type_name());
  return kind != nullptr ? kind->expected : "a value";
}

const CLI::Option* option_named(const CLI::App& app, const std::string& name) {
  for (const CLI::Option* option : app.get_options())
    if (option->get_name() == name || option->get_name() == "--" + name) return option;
  return nullptr;
}

// CLI11's text begins with the name of an option.
const CLI::Option* option_of(const CLI::App& app, const std::string& text) {
  return option_named(app, text.substr(0, text.find_first_of(": ")));
}

// Positions stand in usages as "REFERENCE".
std::string upper_name(const CLI::Option& option) {
  std::string name = option.get_name(true);
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

std::string usage_of(const CLI::App& app) {
  std::string text = "lockstep " + path_of(app);
  for (const CLI::Option* option : app.get_options())
    if (option->get_positional() && option->get_required())
      text += " " + upper_name(*option) + (option->get_items_expected_max() > 1 ? "..." : "");
  return text;
}

// Two names around a word.
std::optional<std::pair<std::string, std::string>> around(const std::string& text,
                                                          const std::string& word) {
  const size_t at = text.find(word);
  if (at == std::string::npos) return std::nullopt;
  return std::pair(text.substr(0, at), text.substr(at + word.size()));
}

std::string problem_text(const CLI::App& app, const CLI::ParseError& problem) {
  if (const auto left = leftover_text(app)) return *left;
  const std::string text = problem.what();
  const CLI::Option* option = option_of(app, text);
  if (dynamic_cast<const CLI::RequiredError*>(&problem) != nullptr) {
    if (option != nullptr)
      return fmt::format("{} is missing, expected {}; usage: {}", upper_name(*option),
                         expected_by(*option), usage_of(app));
    std::vector<std::string> names;
    for (const CLI::App* sub : subcommands_of(app)) names.push_back(sub->get_name());
    if (!names.empty()) return fmt::format("expected one of: {}", fmt::join(names, ", "));
  }
  if (const auto two = around(text, " requires "))
    return fmt::format("{} needs {}", two->first, two->second);
  if (const auto two = around(text, " excludes "))
    return fmt::format("{} and {} cannot be given together", two->first, two->second);
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&problem) != nullptr && option != nullptr) {
    if (!takes_value(*option)) return fmt::format("{} takes no value", option->get_name());
    if (option->count() > 1)
      return fmt::format("{} is given {} times, expected once", option->get_name(),
                         option->count());
    return fmt::format("{}: the value is missing, expected {}", option->get_name(),
                       expected_by(*option));
  }
  if (dynamic_cast<const CLI::ValidationError*>(&problem) == nullptr && option != nullptr &&
      !takes_value(*option))
    return fmt::format("{} takes no value", option->get_name());
  if (option != nullptr && option->get_positional() && !text.starts_with('-'))
    return upper_name(*option) + text.substr(option->get_name(true).size());
  return text;
}

}  // namespace

std::string no_command_text(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* sub : subcommands_of(app)) names.push_back(sub->get_name());
  const std::vector<std::string> near = nearest_names(word, names);
  return fmt::format("no command '{}'; {}", printable(word, 100),
                     near.empty() ? fmt::format("there are {}", fmt::join(names, ", "))
                                  : fmt::format("did you mean {}?", fmt::join(near, " or ")));
}

std::string wrong_use_text(const CLI::App& root, const std::vector<std::string>& arguments,
                           const CLI::ParseError& problem) {
  const CLI::App& app = chosen_app(root);
  const std::string path = path_of(app);
  const auto dash = one_dash_text(root, arguments);
  const std::string text = dash ? *dash : problem_text(app, problem);
  if (path.empty()) return fmt::format("lockstep: {}\n'lockstep help' tells more", text);
  return fmt::format("lockstep {}: {}\n'lockstep help {}' tells more", path, text, path);
}

}  // namespace lockstep::cli
