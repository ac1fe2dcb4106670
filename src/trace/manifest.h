// manifest.json of a trace: what was run, by which engine, and where its values lie.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/dtype.h"
#include "base/result.h"

namespace lockstep::trace {

// The arithmetic that an engine says it uses; absent where it does not say. The names are those of
// include/lockstep/detail/precision.h.
struct Precision {
  std::optional<std::string> compute;      // sums and functions
  std::optional<std::string> activations;  // what ops hand on, or what products read
  std::optional<std::string> kv;           // the cache
  std::optional<std::string> weights{};    // where the engine rounds the file's itself
  std::optional<std::string> sums{};       // of products of f16 numbers, if less than `compute`

  bool operator==(const Precision&) const = default;
};

struct EngineInfo {
  std::string name;
  std::string version;
  std::string device;
  Precision precision;
};

struct ModelInfo {
  std::string file;  // its name
  std::string path;  // where it lay when it ran, so that it is found again; empty: not said
  std::string architecture;
  std::string fingerprint;
  std::string quantization;
};

// What the forward pass depended on besides the model file; absent where the engine does not say.
struct ForwardInfo {
  // Positions that there was room for. It decides between two sets of rope factors, where a model
  // has two.
  std::optional<int64_t> context_length;
  // The positions so far take its place: the engine decides anew in every step.
  bool context_grows = false;
  // What was set by hand instead of the file's own.
  std::optional<double> rope_base;
  std::optional<double> rope_scale;  // positions count as this part of themselves

  bool operator==(const ForwardInfo&) const = default;
};

struct CheckpointInfo {
  std::string name;
  DType dtype = DType::kF32;
  int64_t width = 0;  // heads, for attention scores and probabilities
  // Of the whole row, where only its first `width` numbers were kept (imported logs); 0: all were.
  int64_t full_width = 0;
};

// One call of the forward pass.
struct StepInfo {
  int64_t index = 0;
  int64_t first_position = 0;
  int64_t tokens = 0;
  std::string shard;  // file name in the trace's folder
};

struct Manifest {
  EngineInfo engine;
  ModelInfo model;
  ForwardInfo forward;
  std::string prompt;
  std::vector<int32_t> tokens;  // all ids, prompt first
  int64_t prompt_tokens = 0;
  nlohmann::ordered_json sampling = nlohmann::ordered_json::object();
  std::vector<CheckpointInfo> checkpoints;  // in order of execution
  std::vector<StepInfo> steps;              // by position
  int64_t dropped_steps = 0;
  std::vector<std::string> notes;     // what else is to be known of the run, sentences
  std::vector<std::string> unmapped;  // what the engine computes besides, by its own names
  bool complete = false;
};

std::string to_json(const Manifest& manifest);

// Every field is checked; `path` is for messages. Unknown fields are left alone: other engines may
// write more.
Result<Manifest> parse_manifest(std::string_view text, const std::string& path);

// The dtype of a manifest's name ("f32"); nothing where unknown.
std::optional<DType> find_dtype(std::string_view name);

}  // namespace lockstep::trace
