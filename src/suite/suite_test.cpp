// The file of a suite: what it says, and what is wrong with it.
#include "suite/suite.h"

#include <set>

#include <gtest/gtest.h>

#include "base/random.h"
#include "suite/placeholders.h"

namespace lockstep::suite {
namespace {

constexpr const char* kExample = R"(
name = "my engine"

[engine.mine]
command = "my_engine --model {model} --tokens '{tokens}' -n {n} --trace={trace}"
timeout = 2.5
memory_gb = 4
[engine.llama]
capture = "llama.cpp"
options = ["--kv", "f32"]
[engine.ours]
device = "cpu"
threads = 3

[[case]]
model = "haiku"
prompts = ["GPU haiku with word seven: ", "Write a haiku about rain"]
tokens = [[1, 2, 3]]
n = 7
suspects = ["mine", "llama"]

[[case]]
model = ["haiku", "a/b/haiku.gguf"]
prompt_file = "text"
reference = "ours"
suspects = ["transformers"]
checkpoints = "logits,blk.*.q"

[[known]]
suspect = "llama"
checkpoint = "blk.*.ffn_act"
reason = "half-precision GELU table"
)";

TEST(Suite, SaysWhatTheFileSays) {
  const auto read = parse_suite(kExample, "x.toml");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->name, "my engine");
  const Engine mine = read->engine("mine").value();
  EXPECT_EQ(mine.kind, EngineKind::kCommand);
  EXPECT_EQ(mine.command, (std::vector<std::string>{"my_engine", "--model", "{model}", "--tokens",
                                                    "{tokens}", "-n", "{n}", "--trace={trace}"}));
  EXPECT_EQ(mine.timeout, 2.5);
  EXPECT_EQ(mine.memory_gb, 4);
  EXPECT_EQ(read->engine("llama")->kind, EngineKind::kCapture);
  EXPECT_EQ(read->engine("llama")->options, (std::vector<std::string>{"--kv", "f32"}));
  EXPECT_EQ(read->engine("ours")->threads, 3);
  EXPECT_EQ(read->engine("ours")->target, "cpu");
  EXPECT_EQ(read->engine("reference")->kind, EngineKind::kDevice);
  EXPECT_EQ(read->engine("transformers")->kind, EngineKind::kCapture);
  EXPECT_FALSE(read->engine("other"));

  ASSERT_EQ(read->cases.size(), 3u);
  EXPECT_EQ(read->cases[0].name, "haiku");
  EXPECT_EQ(read->cases[1].name, "haiku-2");
  EXPECT_EQ(read->cases[2].name, "haiku-3");
  EXPECT_EQ(read->cases[0].prompts.size(), 3u);
  EXPECT_EQ(read->cases[0].prompts[2].tokens, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(read->cases[0].n, 7);
  EXPECT_EQ(read->cases[0].reference, "reference");
  EXPECT_EQ(read->cases[0].checkpoints, "ops");
  EXPECT_EQ(read->cases[2].model, "a/b/haiku.gguf");
  EXPECT_EQ(read->cases[2].prompts[0].kind, Prompt::Kind::kFile);
  EXPECT_EQ(read->cases[2].checkpoints, "logits,blk.*.q");
  ASSERT_EQ(read->known.size(), 1u);
  EXPECT_EQ(read->known[0].checkpoint, "blk.*.ffn_act");
}

TEST(Suite, JobsHaveStableNames) {
  const auto suite = parse_suite(kExample, "x.toml");
  const std::vector<Job> jobs = jobs_of(*suite);
  ASSERT_EQ(jobs.size(), 3u * 2 + 2);
  EXPECT_EQ(jobs[0].id, "haiku/0/mine");
  EXPECT_EQ(jobs[5].id, "haiku/2/llama");
  EXPECT_EQ(jobs[5].group, 2);
  EXPECT_EQ(jobs[7].id, "haiku-3/0/transformers");
  std::set<std::string> ids, keys;
  for (size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_EQ(jobs[i].index, static_cast<int64_t>(i));
    ids.insert(jobs[i].id);
    keys.insert(jobs[i].key);
  }
  EXPECT_EQ(ids.size(), jobs.size());
  EXPECT_EQ(keys.size(), jobs.size());
  EXPECT_EQ(key_of(jobs), key_of(jobs_of(*parse_suite(kExample, "elsewhere.toml"))));
  // What a result depends on changes its key, and that of no other job.
  Suite other = *suite;
  other.cases[1].n = 8;
  const std::vector<Job> changed = jobs_of(other);
  for (size_t i = 0; i < jobs.size(); ++i)
    EXPECT_EQ(changed[i].key == jobs[i].key, jobs[i].case_at != 1) << i;
  EXPECT_NE(key_of(changed), key_of(jobs));
}

struct WrongSuite {
  const char* text;
  const char* message;
};

class WrongSuites : public testing::TestWithParam<WrongSuite> {};

TEST_P(WrongSuites, SayWhatIsWrongAndWhere) {
  const auto read = parse_suite(GetParam().text, "x.toml");
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().message, GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongSuites,
    testing::Values(
        WrongSuite{"", "x.toml:1:1: the suite has no [[case]], expected one at least"},
        WrongSuite{"nam = 'x'", "x.toml:1:1: the suite: unknown key 'nam', expected perhaps name"},
        WrongSuite{"[engine.a]\ndevice = 'gpu'",
                   "x.toml:2:10: [engine.a] device: found 'gpu', expected one of cuda, cpu, "
                   "reference, reference-cpu"},
        WrongSuite{"[engine.a]\ndevice = 'cpu'\ntimeout = 3",
                   "x.toml:1:1: [engine.a]: 'timeout' says nothing of a device; expected kv, "
                   "threads"},
        WrongSuite{
            "[engine.a]\n",
            "x.toml:1:1: [engine.a]: found none of command, capture, device, trace, expected "
            "one"},
        WrongSuite{"[engine.a]\ndevice='cpu'\ncommand='x {trace}'",
                   "x.toml:1:1: [engine.a]: found several of command, capture, device, trace, "
                   "expected one"},
        WrongSuite{"[engine.'a/b']\ndevice='cpu'",
                   "x.toml:1:1: [engine.a/b]: expected a name of letters, digits and . _ - (files "
                   "are called after it)"},
        WrongSuite{"[engine.a]\ncommand = 'x {tarce}'",
                   "x.toml:1:1: [engine.a]: command: unknown placeholder {tarce}, expected perhaps "
                   "{trace}"},
        WrongSuite{"[engine.a]\ncommand = 'x'",
                   "x.toml:1:1: [engine.a]: command: expected {trace}, the folder that the program "
                   "writes its trace to"},
        WrongSuite{"[engine.a]\ncommand = 'x {trace} | y'",
                   "x.toml:1:1: [engine.a]: command: found | at character 11, which needs a shell: "
                   "quote it, or set shell = true"},
        WrongSuite{"[engine.a]\ncommand = '{model} {trace}'",
                   "x.toml:1:1: [engine.a]: command: a placeholder stands where the program's name "
                   "is expected"},
        WrongSuite{"[engine.a]\ncapture = 'vllm'",
                   "x.toml:2:11: [engine.a] capture: found 'vllm', expected llama.cpp or "
                   "transformers"},
        WrongSuite{"[case]\nmodel='a'",
                   "x.toml:1:1: case: found a table, expected [[case]], with two brackets on each "
                   "side"},
        WrongSuite{"[[case]]\nprompts='x'\nsuspects='cpu'",
                   "x.toml:1:1: [case]: 'model' is missing, expected the name of a model or a GGUF "
                   "file"},
        WrongSuite{"[[case]]\nmodel='a'\nsuspects='cpu'",
                   "x.toml:1:1: [case]: no prompt, expected prompts, tokens or prompt_file"},
        WrongSuite{"[[case]]\nmodel='a'\nprompts='x'",
                   "x.toml:1:1: [case]: 'suspects' is missing, expected the engines in question"},
        WrongSuite{"[[case]]\nmodel='a'\nprompts='x'\nsuspects=['cpu', 'cpu']",
                   "x.toml:1:1: [case]: suspects: 'cpu' stands there twice"},
        WrongSuite{"[engine.mine]\ndevice='cpu'\n[[case]]\nmodel='a'\nprompts='x'\nsuspects='mien'",
                   "x.toml:3:1: [case]: suspects: no engine is called 'mien', expected perhaps "
                   "mine"},
        WrongSuite{"[[case]]\nmodel='a'\nprompts='x'\nsuspects='cpu'\nn=-1",
                   "x.toml:5:3: [case] n: found -1, expected a whole number from 0 to 1048576"},
        WrongSuite{"[[case]]\nmodel='a'\ntokens=[[1, -2]]\nsuspects='cpu'",
                   "x.toml:3:13: [case] tokens: found -2, expected a token id"},
        WrongSuite{"[[case]]\nmodel='a'\ntokens=[1]\nsuspects='cpu'",
                   "x.toml:3:9: [case] tokens: found 1, expected lists of token ids: [[1, 2, 3]]"},
        WrongSuite{"[[case]]\nmodel='a'\nprompts=[]\nsuspects='cpu'",
                   "x.toml:3:9: [case] prompts: the list is empty, expected a text at least"},
        WrongSuite{"[[case]]\nmodel='a'\nprompts='x'\nsuspects='cpu'\ncheckpoints='a,,b'",
                   "x.toml:5:13: [case] checkpoints: found 'a,,b', expected logits, layers, ops, "
                   "all, or names and patterns separated by commas"},
        WrongSuite{
            "[[case]]\nname='s'\nmodel='a'\nprompts='x'\nsuspects='cpu'\n[[case]]\nname='s'\n"
            "model='a'\nprompts='x'\nsuspects='cpu'",
            "x.toml:6:1: [case]: name: another case is called 's' too"},
        WrongSuite{"[[case]]\nmodel='a'\nprompts='x'\nsuspects='cpu'\n[[known]]\nsuspect='cpu'",
                   "x.toml:5:1: [known]: 'reason' is missing, expected why the defect is there"}));

TEST(Suite, TomlThatIsNoneSaysWhere) {
  const auto read = parse_suite("a = 1\nb = [", "x.toml");
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().message.find("x.toml:2:"), 0u) << read.error().message;
  EXPECT_FALSE(parse_suite(std::string(100000, '['), "x.toml").ok());
  for (const char* wrong : {"[+a]\nb = 1", "[[+]]", "[ =]", "a.+ = 1", "= 1", "[a", "a", "[\"",
                            "\x01", "[ü]", "ҍ = 1", "a = ü", "[a]ü"})
    EXPECT_FALSE(parse_suite(wrong, "x.toml").ok()) << wrong;
  EXPECT_FALSE(parse_suite(std::string("a = '\xff'"), "x.toml").ok());
}

TEST(Suite, TextsHoldAnyCharacter) {
  const auto read = parse_suite(
      "# ü\n[[case]]\nmodel = 'ü'\nprompts = [\"\"\"\\\n  ü ҍ \u3000日本\"\"\"]\nsuspects = 'cpu'  "
      "# 日本",
      "x.toml");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->cases[0].prompts[0].text, "ü ҍ \u3000日本");
  EXPECT_EQ(read->cases[0].name, "__");  // two bytes that no file's name should have
}

TEST(Suite, CasesThatAreCalledAlikeGetFoldersOfTheirOwn) {
  const auto read = parse_suite(
      "[[case]]\nmodel = ['a/m.gguf', 'b/m.gguf']\nname = 'x'\nprompts = 'p'\nsuspects = 'cpu'\n"
      "[[case]]\nmodel = ['a/m.gguf', 'c/m.gguf']\nprompts = ['p', 'q']\nsuspects = 'cpu'",
      "x.toml");
  ASSERT_TRUE(read.ok()) << read.error().message;
  std::vector<std::string> ids;
  for (const Job& job : jobs_of(*read)) ids.push_back(job.id);
  EXPECT_EQ(ids, (std::vector<std::string>{"x.m/0/cpu", "x.m-2/0/cpu", "m/0/cpu", "m/1/cpu",
                                           "m-2/0/cpu", "m-2/1/cpu"}));
}

TEST(Suite, PromptsOfAModelStayInOnePart) {
  const auto read = parse_suite(
      "[[case]]\nmodel = ['a', 'b']\nprompts = ['1', '2', '3', '4']\nsuspects = ['cpu', 'cuda']\n"
      "[[case]]\nname = 'more'\nmodel = 'a'\nprompts = ['5', '6', '7', '8']\n"
      "suspects = ['cpu', 'cuda']",
      "x.toml");
  ASSERT_TRUE(read.ok()) << read.error().message;
  const std::vector<Job> jobs = jobs_of(*read);
  ASSERT_EQ(jobs.size(), 24u);
  const auto models_of = [&](int64_t parts) {
    const std::vector<int64_t> owners = deal_jobs(*read, jobs, parts);
    std::vector<std::set<std::string>> out(static_cast<size_t>(parts));
    std::vector<int64_t> count(static_cast<size_t>(parts));
    for (size_t i = 0; i < jobs.size(); ++i) {
      out[static_cast<size_t>(owners[i] - 1)].insert(read->cases[jobs[i].case_at].model);
      ++count[static_cast<size_t>(owners[i] - 1)];
      if (i > 0 && jobs[i].group == jobs[i - 1].group) {
        EXPECT_EQ(owners[i], owners[i - 1]);
      }
    }
    EXPECT_LE(std::ranges::max(count) - std::ranges::min(count), 2) << parts;
    return out;
  };
  using Models = std::vector<std::set<std::string>>;
  EXPECT_EQ(models_of(3), (Models{{"a"}, {"a"}, {"b"}}));
  EXPECT_EQ(models_of(6), (Models{{"a"}, {"a"}, {"a"}, {"a"}, {"b"}, {"b"}}));
  EXPECT_EQ(models_of(1), (Models{{"a", "b"}}));
  EXPECT_EQ(models_of(12).size(), 12u);
  // More parts than prompts: some have nothing to do.
  const std::vector<int64_t> owners = deal_jobs(*read, jobs, 255);
  EXPECT_EQ(std::set<int64_t>(owners.begin(), owners.end()).size(), 12u);
}

TEST(SplitCommand, AsAShellWould) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(*split_command("a b"), (Words{"a", "b"}));
  EXPECT_EQ(*split_command("  a\t'b  c'\n\"d\"e\\ f '' "), (Words{"a", "b  c", "de f", ""}));
  EXPECT_EQ(*split_command(R"(a "\"\\\n" '\')"), (Words{"a", R"("\\n)", "\\"}));
  EXPECT_EQ(*split_command("a '|&;<>()$`'"), (Words{"a", "|&;<>()$`"}));
  for (const char* wrong : {"", "  ", "''", "a 'b", "a \"b", "a \\", "a > b", "a $HOME"})
    EXPECT_FALSE(split_command(wrong).ok()) << wrong;
}

TEST(Placeholders, ValuesAreNotLookedAtAgain) {
  const std::map<std::string, std::string> values = {{"n", "{trace}"}, {"trace", "a b'; rm"}};
  EXPECT_EQ(fill("x{n}y{trace}{other}{}{N}{", values, false), "x{trace}ya b'; rm{other}{}{N}{");
  EXPECT_EQ(fill("{trace}", values, true), "'a b'\\''; rm'");
  EXPECT_EQ(words_in_braces("{a}{b_c}{ d}{e"), (std::vector<std::string>{"a", "b_c"}));
}

}  // namespace
}  // namespace lockstep::suite
