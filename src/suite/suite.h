// A suite: which engines run which models on which prompts, and what is known to be wrong.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep::suite {

enum class EngineKind {
  kDevice,   // one of our executors, in this process
  kCapture,  // an engine that `lockstep capture` records
  kCommand,  // any program that writes a trace
  kTrace,    // a trace that is there
};

struct Engine {
  std::string name;
  EngineKind kind = EngineKind::kDevice;
  std::string target;                // the device, the captured engine, or the path of the trace
  std::vector<std::string> command;  // with placeholders; of a shell: one text
  bool shell = false;
  std::vector<std::string> options;  // further ones of a capture
  std::string folder;                // of a capture: the model that it reads
  std::string python;                // of a capture
  std::string kv;                    // of a device; empty: its own
  int64_t threads = 0;               // of a device; 0: all cores
  double timeout = 600;              // seconds that one run may take
  double memory_gb = 0;              // 0: what the machine has
};

struct Prompt {
  enum class Kind { kText, kTokens, kFile } kind = Kind::kText;
  std::string text;  // or the path of the file
  std::vector<int32_t> tokens;
};

struct Case {
  std::string name;
  std::string model;  // as written: a name or a file
  std::vector<Prompt> prompts;
  int64_t n = 16;
  std::string reference = "reference";
  std::vector<std::string> suspects;
  std::string checkpoints = "ops";
};

// A defect that is known. Patterns (*, ?); an empty one matches everything.
struct Known {
  std::string suspect;
  std::string checkpoint;
  std::string model;
  std::string case_name;
  std::string reason;
  int64_t line = 0;
};

struct Suite {
  std::string name;
  std::string folder;  // that paths of the file are relative to; empty: the current one
  std::vector<Engine> engines;
  std::vector<Case> cases;
  std::vector<Known> known;

  // One of the file, or else a device or a captured engine of that name; null where there is none.
  std::optional<Engine> engine(std::string_view name) const;
  // A path of the file, from here.
  std::string path(const std::string& written) const;
};

// The engines that can be captured.
inline constexpr std::string_view kCaptures[] = {"llama.cpp", "transformers"};

// One comparison of a suite.
struct Job {
  std::string id;      // such as "haiku/0/llama": a folder's name too
  std::string key;     // of all that its result depends on in the suite
  int64_t index = 0;   // in the suite
  int64_t group = 0;   // jobs with the same reference trace
  size_t case_at = 0;  // in Suite::cases
  size_t prompt = 0;   // in Case::prompts
  std::string suspect;
};

// All of them, in the order of the suite.
std::vector<Job> jobs_of(const Suite& suite);
// By job: the part, from 1, that runs it. Jobs with the same reference trace stay together, and
// prompts of the same model as far as parts have about as many jobs.
std::vector<int64_t> deal_jobs(const Suite& suite, const std::vector<Job>& jobs, int64_t parts);
// A key of all jobs: results of one suite have the same.
std::string key_of(const std::vector<Job>& jobs);

inline constexpr int64_t kMostJobs = 100'000;
inline constexpr int64_t kMostTokens = 1 << 20;  // of a prompt, and of n

// `source` is for messages: "suite.toml:3:1: ...". Nothing but the text is read.
Result<Suite> parse_suite(std::string_view text, const std::string& source);
// The file, with patterns of models as the files that there are.
Result<Suite> read_suite(const std::string& path);

// Whether a text can name a case or an engine: files are named after them.
bool is_plain_name(std::string_view text);
std::string plain_name(std::string_view text);

// A command as a shell would split it; quotes and backslashes, nothing else.
Result<std::vector<std::string>> split_command(std::string_view text);

}  // namespace lockstep::suite
