#include "cli/value_kinds.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "base/lower.h"
#include "base/near_names.h"
#include "base/text.h"
#include "cli/captured_engines.h"
#include "cli/command.h"
#include "cli/model_size.h"
#include "cli/number_list.h"
#include "cli/path_checks.h"
#include "exec/registry.h"
#include "forge/formats.h"
#include "forge/known.h"
#include "model/archs.h"
#include "models/catalog.h"
#include "models/locate.h"
#include "quant/recipe.h"
#include "trace/checkpoints.h"

namespace lockstep::cli {
namespace {

using Words = std::vector<std::string>;

// The names of a table's rows.
template <class Table, class Row, class Name>
Words names_of(const Table& table, Name Row::*name) {
  Words words;
  for (const auto& row : table) words.emplace_back(row.*name);
  return words;
}

Words local_model_words() {
  Words words = {models::kDefaultModel};
  for (const models::LocalModel& model : models::local_models(models::model_folders()))
    words.push_back(model.name);
  return words;
}

Words captured_engine_words() {
  Words words;
  for (const CapturedEngine& engine : captured_engines()) words.push_back(engine.needs.name);
  return words;
}

// What can be told of a set before there is a model or a trace.
Result<void> check_set(const std::string& set) {
  for (size_t begin = 0; begin <= set.size();) {
    const size_t end = std::min(set.find(',', begin), set.size());
    if (begin == end)
      return error("found '{}' with an empty part, expected {}", printable(set, 100),
                   kCheckpointSet.expected);
    begin = end + 1;
  }
  return {};
}

Result<void> check_ids(const std::string& text) {
  LS_TRY_VOID(parse_token_ids(text));
  return {};
}

Result<void> check_counts(const std::string& text) {
  LS_TRY_VOID(parse_counts(text));
  return {};
}

Result<void> check_positions(const std::string& text) {
  LS_TRY_VOID(parse_number_list(text));
  return {};
}

Result<void> check_part(const std::string& text) {
  LS_TRY_VOID(parse_part(text));
  return {};
}

Result<void> check_model_size(const std::string& text) {
  LS_TRY_VOID(parse_model_size(text));
  return {};
}

Words suspect_words() {
  Words words = captured_engine_words();
  for (const exec::Device& device : exec::devices()) words.emplace_back(device.name);
  return words;
}

}  // namespace

const ValueKind kText = {"TEXT", "a text with something in it"};
const ValueKind kPromptText = {.name = "PROMPT", .expected = "a text", .may_be_empty = true};
const ValueKind kWholeNumber = {"N", "a whole number"};
const ValueKind kRealNumber = {"X", "a number"};
const ValueKind kTokenIds = {"IDS", "token ids such as 1,2,3", check_ids};
const ValueKind kCounts = {"COUNTS", "whole numbers such as 128,512", check_counts};
const ValueKind kNumberList = {"LIST", "positions such as 0,5,10-20", check_positions};
const ValueKind kSlice = {"A:B", "A:B with 0 <= A < B"};
const ValueKind kModel = {.name = "MODEL",
                          .expected =
                              "a GGUF file, a folder from the hub or the name of a model "
                              "('lockstep models' lists them)",
                          .check = check_no_dash,
                          .words = local_model_words,
                          .paths = "*.gguf"};
const ValueKind kCapturedModel = {.name = "SOURCE",
                                  .expected =
                                      "a GGUF file, the name of a model, or a folder or "
                                      "id of the hub",
                                  .check = check_no_dash,
                                  .words = local_model_words,
                                  .paths = "*.gguf"};
const ValueKind kWellKnownModel = {
    .name = "NAME", .expected = "the name of a model ('lockstep models' lists them)", .words = [] {
      return names_of(models::known_models(), &models::KnownModel::name);
    }};
const ValueKind kInputFile = {
    .name = "FILE", .expected = "a file", .check = check_input_file, .paths = "*"};
const ValueKind kInputFileOrStdin = {.name = "INPUT",
                                     .expected = "a file, or - for standard input",
                                     .check = check_input_file_or_stdin,
                                     .paths = "*"};
const ValueKind kOutputFile = {
    .name = "OUT", .expected = "a file to write", .check = check_output_file, .paths = "*"};
const ValueKind kOutputModel = {.name = "OUT.gguf",
                                .expected = "a GGUF file to write",
                                .check = check_output_file,
                                .paths = "*.gguf"};
const ValueKind kProgram = {
    .name = "PROGRAM", .expected = "a program", .check = check_no_dash, .paths = "*"};
const ValueKind kTrace = {
    .name = "TRACE", .expected = "the folder of a trace", .check = check_trace, .paths = "/"};
const ValueKind kLog = {
    .name = "LOG", .expected = "a JSON Lines log", .check = check_input_file, .paths = "*.jsonl"};
const ValueKind kTraceOrLog = {.name = "TRACE|LOG",
                               .expected = "the folder of a trace, or a JSON Lines log",
                               .check = check_trace_or_log,
                               .paths = "*.jsonl"};
const ValueKind kNewFolder = {
    .name = "FOLDER", .expected = "a folder to write", .check = check_new_folder, .paths = "/"};
const ValueKind kHistory = {
    .name = "HISTORY", .expected = "a folder that check --history wrote", .paths = "/"};
const ValueKind kCheckpointSet = {
    .name = "SET",
    .expected = "logits, layers, ops, all, or names and globs separated by commas",
    .check = check_set,
    .words =
        [] {
          const auto sets = trace::checkpoint_sets();
          return Words(sets.begin(), sets.end());
        },
    .list = true};
const ValueKind kPart = {"K/N", "a part such as 2/8", check_part};
const ValueKind kSuspect = {.name = "SUSPECT",
                            .expected = "llama.cpp, transformers, a device, a trace or a command",
                            .words = suspect_words,
                            .paths = "*"};
const ValueKind kDevice = {.name = "DEVICE",
                           .expected = "a device",
                           .words = [] { return names_of(exec::devices(), &exec::Device::name); },
                           .closed = true};
const ValueKind kJudgingDevice = {.name = "JUDGE",
                                  .expected = "a device",
                                  .words =
                                      [] {
                                        return Words{"cuda", "cpu"};
                                      },
                                  .closed = true};
const ValueKind kRecipe = {
    .name = "TYPE",
    .expected = "a type",
    .words = [] { return names_of(quant::all_recipes(), &quant::Recipe::name); },
    .closed = true};
const ValueKind kModelSize = {"SIZE", "bits a weight such as 4.5, or bytes such as 400M",
                              check_model_size};
const ValueKind kForgedType = {
    .name = "FORMAT", .expected = "a type", .words = forge::type_names, .closed = true};
const ValueKind kForgedLike = {
    .name = "LIKE",
    .expected = "a well-known model",
    .words = [] { return names_of(forge::known_models(), &forge::KnownModel::name); },
    .closed = true};
const ValueKind kArchitecture = {
    .name = "ARCH",
    .expected = "an architecture",
    .words = [] { return names_of(model::architectures(), &model::Architecture::name); },
    .closed = true};
const ValueKind kRopeFactors = {.name = "FACTORS", .expected = "factors", .words = [] {
                                  return Words{"none", "llama3", "long-short:"};
                                }};
const ValueKind kRopeScaling = {.name = "SCALING", .expected = "a scaling", .words = [] {
                                  return Words{"none", "linear:", "yarn:"};
                                }};
const ValueKind kKvType = {.name = "KV",
                           .expected = "a type",
                           .words =
                               [] {
                                 return Words{"f16", "f32"};
                               },
                           .closed = true};
const ValueKind kLogFormat = {.name = "STYLE",
                              .expected = "a style",
                              .words =
                                  [] {
                                    return Words{"text", "json"};
                                  },
                              .closed = true};
const ValueKind kLogitRows = {.name = "ROWS",
                              .expected = "rows",
                              .words =
                                  [] {
                                    return Words{"all", "last"};
                                  },
                              .closed = true};
const ValueKind kEngine = {
    .name = "ENGINE", .expected = "an engine", .words = captured_engine_words, .closed = true};
const ValueKind kCapturedKv = {.name = "CACHE",
                               .expected = "a type",
                               .words =
                                   [] {
                                     return Words{"f16", "f32", "bf16"};
                                   },
                               .closed = true};
const ValueKind kTorchType = {.name = "DTYPE",
                              .expected = "a type",
                              .words =
                                  [] {
                                    return Words{"float32", "float64", "bfloat16", "float16"};
                                  },
                              .closed = true};
const ValueKind kTorchDevice = {.name = "TORCH", .expected = "a device of torch", .words = [] {
                                  return Words{"cpu", "cuda"};
                                }};
const ValueKind kShell = {.name = "SHELL",
                          .expected = "a shell",
                          .words =
                              [] {
                                return Words{"bash", "zsh"};
                              },
                          .closed = true};
const ValueKind kCommandName = {
    .name = "COMMAND", .expected = "a command", .words = [] { return names_of_commands(); }};

std::span<const ValueKind* const> value_kinds() {
  static constexpr const ValueKind* kKinds[] = {
      &kText,
      &kPromptText,
      &kWholeNumber,
      &kRealNumber,
      &kTokenIds,
      &kCounts,
      &kNumberList,
      &kSlice,
      &kModel,
      &kCapturedModel,
      &kWellKnownModel,
      &kInputFile,
      &kInputFileOrStdin,
      &kOutputFile,
      &kOutputModel,
      &kProgram,
      &kTrace,
      &kLog,
      &kTraceOrLog,
      &kNewFolder,
      &kHistory,
      &kCheckpointSet,
      &kPart,
      &kSuspect,
      &kDevice,
      &kJudgingDevice,
      &kRecipe,
      &kModelSize,
      &kForgedType,
      &kForgedLike,
      &kArchitecture,
      &kRopeFactors,
      &kRopeScaling,
      &kKvType,
      &kLogFormat,
      &kLogitRows,
      &kEngine,
      &kCapturedKv,
      &kTorchType,
      &kTorchDevice,
      &kShell,
      &kCommandName,
  };
  return kKinds;
}

const ValueKind* find_value_kind(std::string_view name) {
  for (const ValueKind* kind : value_kinds())
    if (kind->name == name) return kind;
  return nullptr;
}

Result<void> check_value(const ValueKind& kind, const std::string& value) {
  const Words words = kind.closed ? kind.words() : Words();
  const std::string expected =
      kind.closed ? fmt::format("{}: {}", kind.expected, fmt::join(words, ", ")) : kind.expected;
  if (value.empty()) {
    if (kind.may_be_empty) return {};
    return error("found an empty text, expected {}", expected);
  }
  if (kind.closed) {
    const auto same = [&](const std::string& word) {
      return ascii_lower(word) == ascii_lower(value);
    };
    if (std::ranges::any_of(words, same)) return {};
    return error("found '{}', expected {}", printable(value, 100), expected);
  }
  return kind.check != nullptr ? kind.check(value) : Result<void>();
}

}  // namespace lockstep::cli
