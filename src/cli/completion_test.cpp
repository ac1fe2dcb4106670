#include "cli/completion.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "cli/command.h"
#include "cli/program.h"
#include "cli/value_kinds.h"

namespace lockstep::cli {
namespace {

using Words = std::vector<std::string>;

class Completion : public testing::Test {
 protected:
  Completions ask(Words words) const {
    words.insert(words.begin(), "lockstep");
    return complete(program_.app(), words);
  }
  // What begins with what is there.
  Words offered(const Words& words) const {
    const Completions found = ask(words);
    Words out;
    for (const Candidate& candidate : found.candidates)
      if (candidate.word.starts_with(found.value)) out.push_back(candidate.word);
    return out;
  }
  std::string paths(const Words& words) const { return ask(words).paths; }

  const Program program_;
};

TEST_F(Completion, Commands) {
  EXPECT_EQ(offered({""}), names_of_commands());
  EXPECT_EQ(offered({"comp"}), (Words{"compare", "completion"}));
  EXPECT_EQ(offered({"x"}), Words{});
  EXPECT_EQ(offered({"--v"}), Words{"--version"});
  EXPECT_EQ(offered({"models", ""}), Words{"pull"});
  EXPECT_EQ(offered({"demo", ""}), Words{"bug"});
  for (const Candidate& candidate : ask({""}).candidates) EXPECT_NE(candidate.help, "");
}

TEST_F(Completion, Options) {
  EXPECT_EQ(offered({"forge", "--rope"}),
            (Words{"--rope-base", "--rope-dims", "--rope-factors", "--rope-scaling"}));
  EXPECT_EQ(offered({"forge", "--like", "gpt2", "--unt"}), Words{"--untied"});
  EXPECT_EQ(offered({"completion", "--"}), Words{"--help"});
  EXPECT_EQ(offered({"run", "--", "--tem"}), Words{});
  EXPECT_EQ(offered({"models", "pull", "--st"}), Words{"--stall"});
  EXPECT_EQ(offered({"capture", "llama.cpp", "--flash"}), Words{"--flash-attn"});
  // Where nothing else can come.
  EXPECT_FALSE(offered({"run", ""}).empty());
  EXPECT_EQ(offered({"no-command", ""}), Words{});
}

TEST_F(Completion, ValuesAreThoseOfTheKinds) {
  EXPECT_EQ(offered({"forge", "--arch", "qwen"}),
            (Words{"qwen2", "qwen3", "qwen2moe", "qwen3moe"}));
  EXPECT_EQ(offered({"forge", "--arch=qwen"}), (Words{"qwen2", "qwen3", "qwen2moe", "qwen3moe"}));
  EXPECT_EQ(ask({"forge", "--arch=qwen"}).value, "qwen");
  EXPECT_EQ(offered({"forge", "--type", "q4_k"}), (Words{"q4_k_m", "q4_k_s", "q4_k"}));
  EXPECT_EQ(offered({"forge", "--like", ""}), kForgedLike.words());
  EXPECT_EQ(offered({"quantize", "--type", ""}), kRecipe.words());
  EXPECT_EQ(offered({"quantize", "a", "b", "Q4_K"}), (Words{"Q4_K_M", "Q4_K_S"}));
  EXPECT_EQ(offered({"completion", ""}), (Words{"bash", "zsh"}));
  EXPECT_EQ(offered({"capture", ""}), (Words{"llama.cpp", "transformers"}));
  EXPECT_EQ(offered({"capture", "--dtype", "float"}), (Words{"float32", "float64", "float16"}));
  EXPECT_EQ(offered({"serve", "--log", ""}), (Words{"text", "json"}));
  for (const char* command : {"run", "serve", "bench", "tensor"})
    EXPECT_EQ(offered({command, "--device", ""}), kDevice.words()) << command;
  EXPECT_EQ(offered({"compare", "--device", ""}), (Words{"cuda", "cpu"}));
  EXPECT_EQ(offered({"run", "-n", ""}), Words{});
  EXPECT_EQ(offered({"run", "--json=", ""}), offered({"run", ""}));
}

TEST_F(Completion, CheckpointSetsAlsoAfterAComma) {
  for (const char* command : {"run", "serve", "compare", "export", "capture"}) {
    EXPECT_EQ(offered({command, "--checkpoints", "l"}), (Words{"logits", "layers"})) << command;
    EXPECT_EQ(offered({command, "--checkpoints", "blk.*.q,la"}), Words{"blk.*.q,layers"});
    EXPECT_EQ(offered({command, "--checkpoints=ops,"}),
              (Words{"ops,logits", "ops,layers", "ops,ops", "ops,all"}));
  }
}

TEST_F(Completion, Models) {
  const TemporaryFolder cache = TemporaryFolder::create().value();
  std::filesystem::create_directories(cache.path() / "lockstep/models");
  std::ofstream(cache.path() / "lockstep/models/downloaded-one.gguf") << "x";
  ::setenv("XDG_CACHE_HOME", cache.path().c_str(), 1);
  for (const Words& before :
       {Words{"run", "-m"}, Words{"run", "--model"}, Words{"inspect"}, Words{"compare", "-m"},
        Words{"quantize"}, Words{"demo", "bug", "-m"}, Words{"capture", "llama.cpp", "-m"}}) {
    Words words = before;
    words.push_back("down");
    EXPECT_EQ(offered(words), Words{"downloaded-one"}) << before[0];
    EXPECT_EQ(paths(words), "*.gguf");
  }
  EXPECT_EQ(offered({"run", "-m", "hai"})[0], "haiku");
  const Words known = offered({"models", "pull", "tiny"});
  ASSERT_EQ(known.size(), 1u);
  EXPECT_TRUE(known[0].starts_with("tinyllama"));
}

TEST_F(Completion, FilesAndFolders) {
  EXPECT_EQ(paths({"export", ""}), "/");
  EXPECT_EQ(paths({"compare", "x"}), "*.jsonl");
  EXPECT_EQ(paths({"compare", "x", ""}), "*.jsonl");
  EXPECT_EQ(paths({"compare", "x", "y", ""}), "");
  EXPECT_EQ(paths({"scan", "a", "b", "c", ""}), "*.jsonl");
  EXPECT_EQ(paths({"import", ""}), "*.jsonl");
  EXPECT_EQ(paths({"import", "log", ""}), "/");
  EXPECT_EQ(paths({"run", "-f", ""}), "*");
  EXPECT_EQ(paths({"run", "--trace", ""}), "/");
  EXPECT_EQ(paths({"compare", "--html=", "a"}), "*.jsonl");
  EXPECT_EQ(paths({"compare", "--html=a"}), "*");
  EXPECT_EQ(paths({"forge", "--force", "x"}), "*.gguf");
  EXPECT_EQ(paths({"run", "-p", ""}), "");
}

TEST_F(Completion, HelpOffersCommandsAndTheirs) {
  EXPECT_EQ(offered({"help", ""}), names_of_commands());
  EXPECT_EQ(offered({"help", "comp"}), (Words{"compare", "completion"}));
  EXPECT_EQ(offered({"help", "models", ""}), Words{"pull"});
  EXPECT_EQ(offered({"help", "run", ""}), Words{});
  EXPECT_EQ(offered({"help", "nothing", ""}), Words{});
}

TEST(ShellWords, AreReadAsAShellReadsThem) {
  EXPECT_EQ(shell_words("lockstep run -m "), (Words{"lockstep", "run", "-m", ""}));
  EXPECT_EQ(shell_words("lockstep  run\t-m ha"), (Words{"lockstep", "run", "-m", "ha"}));
  EXPECT_EQ(shell_words("a 'b c' \"d \\\" e\" f\\ g"), (Words{"a", "b c", "d \" e", "f g"}));
  EXPECT_EQ(shell_words("a '' x"), (Words{"a", "", "x"}));
  EXPECT_EQ(shell_words("a 'open quote"), (Words{"a", "open quote"}));
  EXPECT_EQ(shell_words("a --x=1:2 'b'c"), (Words{"a", "--x=1:2", "bc"}));
  EXPECT_EQ(shell_words("cd x && lockstep ru"), (Words{"lockstep", "ru"}));
  EXPECT_EQ(shell_words("cat y | lockstep scan "), (Words{"lockstep", "scan", ""}));
  EXPECT_EQ(shell_words("A=1 B='x y' lockstep r"), (Words{"lockstep", "r"}));
  EXPECT_EQ(shell_words("a \\"), (Words{"a", ""}));
  EXPECT_EQ(shell_words(""), Words{""});
}

}  // namespace
}  // namespace lockstep::cli
