// What each word of a command line is: a command, an option, the value of one, or a position.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

namespace lockstep::cli {

class WordReader {
 public:
  // `root` holds the commands.
  explicit WordReader(const CLI::App& root) : app_(&root) {}

  // Goes past a word.
  void read(const std::string& word);

  const CLI::App& app() const { return *app_; }  // the command so far
  // The option whose value comes next; null where none does.
  const CLI::Option* pending() const { return pending_; }
  bool options_ended() const { return options_ended_; }  // by --
  // What a word that is no option would be the value of; null where none is expected.
  const CLI::Option* position() const;
  // Commands of this command may come next.
  bool expects_command() const;

 private:
  const CLI::App* app_;
  const CLI::Option* pending_ = nullptr;
  size_t positions_ = 0;  // that were read
  bool options_ended_ = false;
};

// "--name" or "-n"; null where the command has none that is called so.
const CLI::Option* find_option(const CLI::App& app, std::string_view name);
bool takes_value(const CLI::Option& option);

// The commands of a command.
std::vector<const CLI::App*> subcommands_of(const CLI::App& app);

// What CLI11 would read otherwise than a shell's user means. After "--name=" it takes the next word
// as the value: this becomes two words, the second one empty. Where several paths may stand, it
// takes "[a,b]" for a list: this becomes "./[a,b]". And "-ngl" means "--gpu-layers", where a
// command has that.
std::vector<std::string> words_for_cli11(const CLI::App& root,
                                         const std::vector<std::string>& words);

}  // namespace lockstep::cli
