#include "cli/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep::cli {
namespace {

// What can stand where an option or a position wants a value.
struct Values {
  enum class Kind { kNone, kAny, kFile, kChoices };
  Kind kind = Kind::kNone;
  std::vector<std::string> choices;
};

struct Option {
  std::vector<std::string> names;  // with their dashes; empty for a position
  std::string help;
  Values values;
};

struct Verb {
  std::string name;
  std::string help;
  std::vector<Option> options;
  std::vector<Option> positions;
};

// CLI11 tells about checks only in words: "{a,b,c}" for a choice, FILE or PATH for files.
Values values_of(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return {};
  const std::string type = option.get_type_name();
  const size_t open = type.find('{');
  const size_t close = type.find('}', open);
  if (open != type.npos && close != type.npos) {
    Values values{Values::Kind::kChoices, {}};
    for (const std::string& choice :
         CLI::detail::split(type.substr(open + 1, close - open - 1), ','))
      values.choices.push_back(choice.substr(0, choice.find(" -> ")));
    return values;
  }
  const bool file = type.find("FILE") != type.npos || type.find("PATH") != type.npos ||
                    type.find("DIR") != type.npos;
  return {file ? Values::Kind::kFile : Values::Kind::kAny, {}};
}

Option option_of(const CLI::Option& declared) {
  Option option;
  for (const std::string& name : declared.get_lnames()) option.names.push_back("--" + name);
  for (const std::string& name : declared.get_snames()) option.names.push_back("-" + name);
  option.help = declared.get_description();
  option.values = values_of(declared);
  return option;
}

std::vector<Verb> verbs_of(const CLI::App& root) {
  std::vector<Verb> verbs;
  for (const CLI::App* app : root.get_subcommands([](const CLI::App*) { return true; })) {
    Verb verb{app->get_name(), app->get_description(), {}, {}};
    for (const CLI::Option* declared : app->get_options()) {
      Option option = option_of(*declared);
      (option.names.empty() ? verb.positions : verb.options).push_back(std::move(option));
    }
    verbs.push_back(std::move(verb));
  }
  return verbs;
}

// Within single quotes, in either shell.
std::string shell_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'')
      out += "'\\''";
    else
      out += c;
  }
  return out + "'";
}

std::string names_of(const std::vector<Verb>& verbs) {
  std::string names;
  for (const Verb& verb : verbs) names += (names.empty() ? "" : " ") + verb.name;
  return names;
}

std::string bash_values(const Values& values) {
  switch (values.kind) {
    case Values::Kind::kFile:
      return "_lockstep_files \"$current\"";
    case Values::Kind::kChoices:
      return fmt::format("COMPREPLY=($(compgen -W {} -- \"$current\"))",
                         shell_quoted(fmt::format("{}", fmt::join(values.choices, " "))));
    default:
      return "COMPREPLY=()";
  }
}

// Within a command: the value of the option before the cursor, or options, or positions. All
// positions are offered everywhere: counting them would need to know which words are values.
std::string bash_verb(const Verb& verb) {
  std::string out = fmt::format("    {})\n      case \"$previous\" in\n", verb.name);
  std::string names;
  for (const Option& option : verb.options) {
    names += fmt::format("{}{}", names.empty() ? "" : " ", fmt::join(option.names, " "));
    if (option.values.kind != Values::Kind::kNone)
      out += fmt::format("        {}) {}; return ;;\n", fmt::join(option.names, "|"),
                         bash_values(option.values));
  }
  out += "      esac\n";
  out += fmt::format(
      "      if [[ $current == -* ]]; then\n"
      "        COMPREPLY=($(compgen -W {} -- \"$current\"))\n"
      "        return\n"
      "      fi\n",
      shell_quoted(names));
  std::vector<std::string> choices;
  bool file = false;
  for (const Option& position : verb.positions) {
    choices.insert(choices.end(), position.values.choices.begin(), position.values.choices.end());
    file = file || position.values.kind == Values::Kind::kFile;
  }
  if (file) out += fmt::format("      {}\n", bash_values({Values::Kind::kFile, {}}));
  if (!choices.empty())
    out += fmt::format("      COMPREPLY+=($(compgen -W {} -- \"$current\"))\n",
                       shell_quoted(fmt::format("{}", fmt::join(choices, " "))));
  return out + "      ;;\n";
}

// Within zsh's _arguments, colons and brackets have a meaning of their own.
std::string zsh_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == ':' || c == '[' || c == ']' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

std::string zsh_values(const Values& values) {
  switch (values.kind) {
    case Values::Kind::kFile:
      return ":file:_files";
    case Values::Kind::kChoices:
      return fmt::format(":value:({})", fmt::join(values.choices, " "));
    case Values::Kind::kAny:
      return ":value: ";
    default:
      return "";
  }
}

std::string zsh_verb(const Verb& verb) {
  std::string out = fmt::format("    {})\n      _arguments -s", verb.name);
  for (const Option& option : verb.options)
    for (const std::string& name : option.names)
      out += fmt::format(" \\\n        {}",
                         shell_quoted(fmt::format("*{}[{}]{}", name, zsh_text(option.help),
                                                  zsh_values(option.values))));
  for (const Option& position : verb.positions)
    out += fmt::format(" \\\n        {}", shell_quoted(zsh_values(position.values)));
  return out + "\n      ;;\n";
}

}  // namespace

std::string bash_completion(const CLI::App& root) {
  const std::vector<Verb> verbs = verbs_of(root);
  std::string out =
      "# Completion of lockstep for bash: source this file, or\n"
      "#   lockstep completion bash > ~/.local/share/bash-completion/completions/lockstep\n"
      "_lockstep_files() {\n"
      "  compopt -o filenames 2>/dev/null\n"
      "  mapfile -t COMPREPLY < <(compgen -f -- \"$1\")\n"
      "}\n"
      "_lockstep() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n"
      "  COMPREPLY=()\n"
      "  if ((COMP_CWORD == 1)); then\n"
      "    COMPREPLY=($(compgen -W " +
      shell_quoted(names_of(verbs) + " --help --version") +
      " -- \"$current\"))\n"
      "    return\n"
      "  fi\n"
      "  case \"${COMP_WORDS[1]}\" in\n";
  for (const Verb& verb : verbs) out += bash_verb(verb);
  return out + "  esac\n}\ncomplete -F _lockstep lockstep\n";
}

std::string zsh_completion(const CLI::App& root) {
  const std::vector<Verb> verbs = verbs_of(root);
  std::string out =
      "#compdef lockstep\n"
      "# Completion of lockstep for zsh: put this file into a folder of $fpath as _lockstep.\n"
      "_lockstep() {\n"
      "  local -a commands\n"
      "  if ((CURRENT == 2)); then\n"
      "    commands=(";
  for (const Verb& verb : verbs)
    out += fmt::format("\n      {}", shell_quoted(verb.name + ":" + zsh_text(verb.help)));
  out +=
      "\n    )\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  local verb=$words[2]\n"
      "  shift words\n"
      "  ((CURRENT--))\n"
      "  case $verb in\n";
  for (const Verb& verb : verbs) out += zsh_verb(verb);
  // Loaded by name, the file is the function's body and must run it; sourced, it registers it.
  return out +
         "  esac\n}\n"
         "if [[ $funcstack[1] == _lockstep ]]; then\n"
         "  _lockstep \"$@\"\n"
         "else\n"
         "  compdef _lockstep lockstep\n"
         "fi\n";
}

}  // namespace lockstep::cli
