// Every option of every command, with values that it must not take.
#include "cli/options.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "base/test_effort.h"
#include "cli/program.h"
#include "cli/words.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

using Words = std::vector<std::string>;

struct Outcome {
  int status;
  std::string text;
};

Outcome run_program(const Words& words) {
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  Program program;
  const int status = program.run(words);
  const std::string out = testing::internal::GetCapturedStdout();
  return {status, testing::internal::GetCapturedStderr() + out};
}

struct Declared {
  Words path;  // of its command
  const CLI::Option* option;
  const ValueKind* kind;
  const CLI::App* option_app;
};

void collect(const CLI::App& app, const Words& path, std::vector<Declared>& out) {
  for (const CLI::Option* option : app.get_options())
    if (takes_value(*option))
      out.push_back({path, option, find_value_kind(option->get_type_name()), &app});
  for (const CLI::App* sub : subcommands_of(app)) {
    Words below = path;
    below.push_back(sub->get_name());
    collect(*sub, below, out);
  }
}

std::string spoken(const Declared& declared) {
  return fmt::format("{} {}", fmt::join(declared.path, " "), declared.option->get_name());
}

TEST(Options, EachIsOfAKind) {
  const Program program;
  std::vector<Declared> all;
  collect(program.app(), {}, all);
  EXPECT_GT(all.size(), 100u);
  for (const Declared& declared : all)
    EXPECT_NE(declared.kind, nullptr)
        << spoken(declared) << " is declared without a kind of value (cli/options.h): its type is "
        << declared.option->get_type_name();
}

TEST(Options, EachHasAHelp) {
  const Program program;
  std::vector<Declared> all;
  collect(program.app(), {}, all);
  for (const Declared& declared : all)
    EXPECT_FALSE(declared.option->get_description().empty()) << spoken(declared);
}

TEST(Options, KindsHaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const ValueKind* kind : value_kinds()) {
    EXPECT_TRUE(names.insert(kind->name).second) << kind->name;
    EXPECT_EQ(find_value_kind(kind->name), kind);
    EXPECT_TRUE(!kind->closed || kind->words != nullptr) << kind->name;
    // What completion offers is accepted.
    const Words offered = kind->words != nullptr ? kind->words() : Words();
    for (const std::string& word : offered) EXPECT_TRUE(check_value(*kind, word).ok()) << word;
  }
}

// Values that no option of the kind takes.
Words wrong_values(const ValueKind& kind, const fs::path& folder) {
  const std::string file = (folder / "file").string();
  const std::string missing = (folder / "missing").string();
  const std::string deep = (folder / "missing/deep").string();
  const std::string in_file = (folder / "file/deep").string();
  Words out;
  if (!kind.may_be_empty) out.push_back("");
  const auto add = [&](Words words) { out.insert(out.end(), words.begin(), words.end()); };
  if (kind.closed) add({"nonsense", "-", "-1"});
  if (&kind == &kWholeNumber)
    add({"abc", "-1", "1.5", "1e3", "0x10", " 1", "1 ", "+1", "nan", "99999999999999999999999"});
  if (&kind == &kRealNumber)
    add({"abc", "-1", "nan", "NaN", "inf", "-inf", "infinity", "1e999", "1,5", "1x", " 1"});
  if (&kind == &kTokenIds || &kind == &kCounts)
    add({"abc", ",", "1,", ",1", "1,,2", "-1", "1,-2", "1.5", "99999999999", " "});
  if (&kind == &kNumberList) add({"abc", ",", "1,", "5-3", "-1", "99999999999"});
  if (&kind == &kCheckpointSet) add({",", "logits,", ",logits", "a,,b"});
  if (&kind == &kInputFile || &kind == &kLog) add({"-", folder.string(), missing, in_file});
  if (&kind == &kInputFileOrStdin) add({folder.string(), missing, in_file});
  if (&kind == &kOutputFile || &kind == &kOutputModel)
    add({"-", folder.string(), deep, in_file, missing + "/", "/dev/null"});
  if (&kind == &kTrace) add({"-", file, missing, folder.string()});
  if (&kind == &kTraceOrLog) add({"-", missing, in_file, folder.string()});
  if (&kind == &kNewFolder) add({"-", file});
  if (&kind == &kModel || &kind == &kCapturedModel) add({"-"});
  return out;
}

TEST(Options, EachRefusesWhatItsKindDoesNotTake) {
  const TemporaryFolder temporary = TemporaryFolder::create().value();
  std::ofstream(temporary.path() / "file") << "x";
  const Program program;
  std::vector<Declared> all;
  collect(program.app(), {}, all);
  size_t number = 0;
  for (const Declared& declared : all) {
    if (declared.kind == nullptr || declared.kind == &kCommandName || !takes(number++)) continue;
    const std::string name = declared.option->get_name();
    for (const std::string& value : wrong_values(*declared.kind, temporary.path())) {
      Words words = declared.path;
      if (!name.starts_with("--")) {
        words.push_back("--");
      } else {
        words.push_back(name);
      }
      words.push_back(value);
      const Outcome outcome = run_program(words);
      EXPECT_EQ(outcome.status, kWrongUse) << fmt::format("{}", fmt::join(words, " "));
      EXPECT_NE(outcome.text.find("lockstep " + declared.path[0]), std::string::npos)
          << outcome.text;
      // An earlier position takes the value where this one is no option.
      EXPECT_TRUE(!name.starts_with("--") || outcome.text.find(name + ": ") != std::string::npos)
          << fmt::format("{}: {}", fmt::join(words, " "), outcome.text);
    }
  }
}

TEST(Options, FlagsTakeNoValue) {
  for (const Words& words : {Words{"run", "--json=3"}, Words{"run", "--chat=false"},
                             Words{"models", "--json=x"}, Words{"forge", "--tied=1"}}) {
    const Outcome outcome = run_program(words);
    EXPECT_EQ(outcome.status, kWrongUse);
    EXPECT_NE(outcome.text.find("takes no value"), std::string::npos) << outcome.text;
  }
}

TEST(Options, AnEmptyValueAfterAnEqualsSignIsAValue) {
  const Outcome outcome = run_program({"run", "--trace=", "-p", "x"});
  EXPECT_EQ(outcome.status, kWrongUse);
  EXPECT_NE(outcome.text.find("--trace: found an empty text"), std::string::npos) << outcome.text;
  // Within the value of another option it is text.
  const Program program;
  EXPECT_EQ(words_for_cli11(program.app(), {"run", "-p", "--trace=", "--temp="}),
            (Words{"run", "-p", "--trace=", "--temp", ""}));
  EXPECT_EQ(words_for_cli11(program.app(), {"run", "--", "--trace="}),
            (Words{"run", "--", "--trace="}));
  EXPECT_EQ(words_for_cli11(program.app(), {"run", "--json=", "--none="}),
            (Words{"run", "--json=", "--none="}));
  EXPECT_EQ(words_for_cli11(program.app(), {"scan", "[a]", "--compare", "[b]", "[c", "[d,e]"}),
            (Words{"scan", "./[a]", "--compare", "[b]", "[c", "./[d,e]"}));
}

TEST(Options, TheFlagOfLlamaCppIsKnownByItsName) {
  const Program program;
  EXPECT_EQ(words_for_cli11(program.app(), {"capture", "llama.cpp", "-ngl", "99"}),
            (Words{"capture", "llama.cpp", "--gpu-layers", "99"}));
  // As the value of another option it is text, and other commands have no such flag.
  EXPECT_EQ(words_for_cli11(program.app(), {"capture", "llama.cpp", "-p", "-ngl", "-ngl", "1"}),
            (Words{"capture", "llama.cpp", "-p", "-ngl", "--gpu-layers", "1"}));
  EXPECT_EQ(words_for_cli11(program.app(), {"run", "-ngl", "9"}), (Words{"run", "-ngl", "9"}));
}

TEST(Options, MistakesAreToldInOurWords) {
  const auto told = [](const Words& words) {
    const Outcome outcome = run_program(words);
    EXPECT_EQ(outcome.status, kWrongUse) << fmt::format("{}", fmt::join(words, " "));
    return outcome.text.substr(0, outcome.text.find('\n'));
  };
  EXPECT_EQ(told({"run", "--tmp", "0.5"}), "lockstep run: no option '--tmp'; did you mean --temp?");
  EXPECT_EQ(told({"run", "-temp", "0.5"}), "lockstep run: no option '-temp'; did you mean --temp?");
  EXPECT_EQ(told({"run", "--sede=3"}), "lockstep run: no option '--sede'; did you mean --seed?");
  EXPECT_EQ(told({"compare", "--htlm", "x"}),
            "lockstep compare: no option '--htlm'; did you mean --html?");
  EXPECT_EQ(told({"capture", "llama.cpp", "--flash-atn"}),
            "lockstep capture: no option '--flash-atn'; did you mean --flash-attn?");
  EXPECT_EQ(told({"models", "pull", "--retrys", "3"}),
            "lockstep models pull: no option '--retrys'; did you mean --retries?");
  EXPECT_EQ(told({"comprae"}), "lockstep: no command 'comprae'; did you mean compare?");
  EXPECT_EQ(told({"help", "comprae"}),
            "lockstep: help: no command 'comprae'; did you mean compare?");
  EXPECT_EQ(told({"demo", "bgu"}), "lockstep demo: no command 'bgu'; did you mean bug?");
  EXPECT_EQ(told({"demo"}), "lockstep demo: expected one of: bug");
  EXPECT_EQ(told({"run", "-n", "abc"}),
            "lockstep run: --max-tokens: found 'abc', expected a whole number from 0 to "
            "1073741824");
  EXPECT_EQ(told({"run", "--seed", "-1"}),
            "lockstep run: --seed: found '-1', expected a whole number from 0 to "
            "18446744073709551615");
  EXPECT_EQ(told({"run", "--top-p", "0"}),
            "lockstep run: --top-p: found '0', expected a number above 0, at most 1");
  EXPECT_EQ(told({"run", "-n"}),
            "lockstep run: --max-tokens: the value is missing, expected a whole number");
  EXPECT_EQ(told({"run", "-n", "3", "-n", "4"}),
            "lockstep run: --max-tokens is given 2 times, expected once");
  EXPECT_EQ(told({"run", "-p", "x", "--tokens", "1"}),
            "lockstep run: --prompt and --tokens cannot be given together");
  EXPECT_EQ(told({"run", "-p", "x", "--system", "y"}), "lockstep run: --system needs --chat");
  EXPECT_EQ(told({"run", "-p", "x", "y"}),
            "lockstep run: found 'y', which no option and no position takes");
  EXPECT_EQ(told({"compare", "--part", "1/2"}), "lockstep compare: --part needs --output");
  EXPECT_EQ(told({"export"}),
            "lockstep export: TRACE is missing, expected the folder of a trace; usage: lockstep "
            "export TRACE");
  EXPECT_EQ(told({"scan"}),
            "lockstep scan: PATHS is missing, expected the folder of a trace, or a JSON Lines log; "
            "usage: lockstep scan PATHS...");
  EXPECT_EQ(told({"export", "/no/such"}),
            "lockstep export: TRACE: /no/such: no such file or folder; expected the folder of a "
            "trace");
  EXPECT_EQ(told({"run", "--device", "gpu"}),
            "lockstep run: --device: found 'gpu', expected a device: cuda, cpu, reference, "
            "reference-cpu");
}

TEST(Options, EachIsSuggestedForASlipOfIt) {
  const Program program;
  std::vector<Declared> all;
  collect(program.app(), {}, all);
  for (const Declared& declared : all) {
    const std::string name = declared.option->get_name();
    if (!name.starts_with("--") || name.size() < 6) continue;
    std::string dropped = name, swapped = name;
    dropped.erase(name.size() / 2 + 1, 1);
    std::swap(swapped[3], swapped[4]);
    for (const std::string& slip : {dropped, swapped}) {
      Words words = declared.path;
      words.push_back(slip);
      if (find_option(*declared.option_app, slip) != nullptr)
        continue;  // another option, or itself
      const Outcome outcome = run_program(words);
      EXPECT_EQ(outcome.status, kWrongUse);
      const size_t suggestion = outcome.text.find("did you mean");
      ASSERT_NE(suggestion, std::string::npos) << spoken(declared) << ": " << outcome.text;
      EXPECT_NE(outcome.text.find(name, suggestion), std::string::npos)
          << slip << ": " << outcome.text;
    }
  }
}

TEST(Options, NumbersAreReadWhole) {
  EXPECT_EQ(*parse_number("010", NumberRange<int64_t>{}), 10);
  EXPECT_EQ(*parse_number("-5", NumberRange<int64_t>{}), -5);
  EXPECT_EQ(*parse_number("18446744073709551615", NumberRange<uint64_t>{}), UINT64_MAX);
  EXPECT_EQ(*parse_number("1e-3", NumberRange<double>{0, 1}), 1e-3);
  EXPECT_EQ(*parse_number(".5", NumberRange<double>{0, 1}), 0.5);
  EXPECT_FALSE(parse_number("0", NumberRange<double>{0, 1, true}).ok());
  EXPECT_TRUE(parse_number("0", NumberRange<double>{0, 1}).ok());
  EXPECT_FALSE(parse_number("18446744073709551616", NumberRange<uint64_t>{}).ok());
}

TEST(Options, HelpIsShownWithoutACommand) {
  const Outcome bare = run_program({});
  EXPECT_EQ(bare.status, kDone);
  EXPECT_NE(bare.text.find("Usage: lockstep"), std::string::npos);
  EXPECT_EQ(run_program({"help"}).text, bare.text);
  EXPECT_EQ(run_program({"--help"}).text, bare.text);
  for (const std::string& name : names_of_commands()) {
    const Outcome asked = run_program({"help", name});
    EXPECT_EQ(asked.status, kDone);
    EXPECT_EQ(asked.text, run_program({name, "--help"}).text);
    EXPECT_NE(asked.text.find("Examples:"), std::string::npos) << name;
    EXPECT_NE(asked.text.find("Usage: lockstep " + name), std::string::npos) << asked.text;
  }
  EXPECT_EQ(run_program({"help", "models", "pull"}).text,
            run_program({"models", "pull", "--help"}).text);
}

}  // namespace
}  // namespace lockstep::cli
