#include "cli/completion.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "cli/command.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

class Completion : public testing::Test {
 protected:
  void SetUp() override {
    root_.name("lockstep");
    for (const Command* command : {&kForgeCommand, &kCompletionCommand})
      command->declare(*root_.add_subcommand(command->name, command->summary));
    std::ofstream(folder_ / "script.bash") << bash_completion(root_);
    std::ofstream(folder_ / "script.zsh") << zsh_completion(root_);
    std::ofstream(folder_ / "model one.gguf");
    std::ofstream(folder_ / "model_two.gguf");
  }

  struct Output {
    std::string text;
    int status = 0;
  };

  Output shell(const std::string& command) const {
    Output output;
    FILE* pipe = popen(fmt::format("cd '{}' && {}", folder_.string(), command).c_str(), "r");
    if (pipe == nullptr) return {"", -1};
    char piece[4096];
    for (size_t n; (n = fread(piece, 1, sizeof piece, pipe)) > 0;) output.text.append(piece, n);
    output.status = pclose(pipe);
    return output;
  }

  // What bash offers for the last of these words, sorted.
  std::vector<std::string> offered(const std::vector<std::string>& words) const {
    std::ofstream script(folder_ / "ask.bash");
    script << "source ./script.bash || exit 1\nCOMP_WORDS=(";
    for (const std::string& word : words) script << " '" << word << "'";
    script << ")\nCOMP_CWORD=" << words.size() - 1
           << "\n_lockstep\nfor word in \"${COMPREPLY[@]}\"; do echo \"$word\"; done | sort\n";
    script.close();
    const Output output = shell("bash --norc ask.bash 2>&1");
    EXPECT_EQ(output.status, 0) << output.text;
    std::vector<std::string> lines;
    std::istringstream in(output.text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }

  const TemporaryFolder temporary_ = TemporaryFolder::create().value();
  const fs::path folder_ = temporary_.path();
  CLI::App root_;
};

using Words = std::vector<std::string>;

TEST_F(Completion, BashRegistersTheFunction) {
  const Output output = shell("bash --norc -c 'source ./script.bash && complete -p lockstep' 2>&1");
  EXPECT_EQ(output.text, "complete -F _lockstep lockstep\n");
}

TEST_F(Completion, BashOffersCommands) {
  EXPECT_EQ(offered({"lockstep", ""}), (Words{"--help", "--version", "completion", "forge"}));
  EXPECT_EQ(offered({"lockstep", "fo"}), Words{"forge"});
  EXPECT_EQ(offered({"lockstep", "x"}), Words{});
}

TEST_F(Completion, BashOffersOptions) {
  EXPECT_EQ(offered({"lockstep", "forge", "--rope"}),
            (Words{"--rope-base", "--rope-dims", "--rope-factors", "--rope-scaling"}));
  EXPECT_EQ(offered({"lockstep", "forge", "--like", "gpt2", "--unt"}), Words{"--untied"});
  EXPECT_EQ(offered({"lockstep", "completion", "--"}), Words{"--help"});
}

TEST_F(Completion, BashOffersTheValuesOfAChoice) {
  EXPECT_EQ(offered({"lockstep", "forge", "--arch", "qwen"}), (Words{"qwen2", "qwen3"}));
  EXPECT_EQ(offered({"lockstep", "forge", "--type", "q4_k"}), (Words{"q4_k", "q4_k_m", "q4_k_s"}));
  EXPECT_EQ(offered({"lockstep", "completion", ""}), (Words{"bash", "zsh"}));
  EXPECT_EQ(offered({"lockstep", "forge", "--seed", ""}), Words{});
}

TEST_F(Completion, BashOffersFilesWithSpacesInOnePiece) {
  const Words files = {"model one.gguf", "model_two.gguf"};
  EXPECT_EQ(offered({"lockstep", "forge", "--tokenizer", "mod"}), files);
  EXPECT_EQ(offered({"lockstep", "forge", "--force", "mod"}), files);
}

TEST_F(Completion, ZshAcceptsTheScript) {
  if (shell("command -v zsh").status != 0) GTEST_SKIP() << "zsh is not installed";
  const Output output = shell("zsh -n script.zsh 2>&1");
  EXPECT_EQ(output.status, 0) << output.text;
  EXPECT_EQ(output.text, "");
}

TEST_F(Completion, ZshListsCommandsAndChoices) {
  const std::string script = zsh_completion(root_);
  EXPECT_TRUE(script.starts_with("#compdef lockstep\n"));
  EXPECT_NE(script.find("'forge:Write a model"), std::string::npos);
  EXPECT_NE(script.find(":value:(gpt2 llama qwen2"), std::string::npos);
  EXPECT_NE(script.find("'*--tokenizer[Take the tokenizer of this GGUF file]:file:_files'"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::cli
