// What the values of options can be. A kind is in one place what the help calls a value, what is
// accepted, and what completion offers.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep::cli {

struct ValueKind {
  const char* name;      // in the help; options are of the kind that their type is called after
  const char* expected;  // for errors: "found 'x', expected ..."
  // What is wrong with a value that is not empty; null: nothing can be. The message follows the
  // option's name.
  Result<void> (*check)(const std::string& value) = nullptr;
  // Words that completion offers.
  std::vector<std::string> (*words)() = nullptr;
  // Whether a value must be one of these words, in any letter case.
  bool closed = false;
  bool list = false;  // words may be separated by commas
  // Globs of the files that completion offers, beside folders; "/": only folders; null: neither.
  const char* paths = nullptr;
  bool may_be_empty = false;
};

extern const ValueKind kText;
extern const ValueKind kPromptText;  // may be empty
extern const ValueKind kWholeNumber;
extern const ValueKind kRealNumber;
extern const ValueKind kTokenIds;
extern const ValueKind kCounts;
extern const ValueKind kNumberList;
extern const ValueKind kSlice;
extern const ValueKind kModel;
extern const ValueKind kCapturedModel;
extern const ValueKind kWellKnownModel;
extern const ValueKind kInputFile;
extern const ValueKind kInputFileOrStdin;
extern const ValueKind kOutputFile;
extern const ValueKind kOutputModel;
extern const ValueKind kProgram;
extern const ValueKind kTrace;
extern const ValueKind kLog;
extern const ValueKind kTraceOrLog;
extern const ValueKind kNewFolder;
extern const ValueKind kHistory;
extern const ValueKind kCheckpointSet;
extern const ValueKind kPart;
extern const ValueKind kSuspect;
extern const ValueKind kDevice;
extern const ValueKind kJudgingDevice;
extern const ValueKind kRecipe;
extern const ValueKind kModelSize;
extern const ValueKind kForgedType;
extern const ValueKind kForgedLike;
extern const ValueKind kArchitecture;
extern const ValueKind kRopeFactors;
extern const ValueKind kRopeScaling;
extern const ValueKind kKvType;
extern const ValueKind kLogFormat;
extern const ValueKind kLogitRows;
extern const ValueKind kEngine;
extern const ValueKind kCapturedKv;
extern const ValueKind kTorchType;
extern const ValueKind kTorchDevice;
extern const ValueKind kShell;
extern const ValueKind kCommandName;

std::span<const ValueKind* const> value_kinds();
// The kind that is called so; null where there is none.
const ValueKind* find_value_kind(std::string_view name);

// What is wrong with `value`: emptiness, a word that is none of the kind's, or what its check says.
Result<void> check_value(const ValueKind& kind, const std::string& value);

}  // namespace lockstep::cli
