// Records a forward pass as a Lockstep trace, from any engine. Header-only, C++17, the standard
// library alone.
//
//   lockstep::TraceInfo info;
//   info.engine = "my engine";
//   info.compute = "f32";
//   info.tokens = prompt_ids;
//   lockstep::TraceRecorder trace("mine.trace", info);
//   trace.begin_step(0, prompt_ids.size());
//   trace.record("embedding", x, width);  // const float* [tokens, width]
//   ...
//   trace.end_step();
//   if (!trace.finish()) std::fprintf(stderr, "%s\n", trace.error().c_str());
//
// Then: lockstep compare reference.trace mine.trace -m model.gguf
//
// The names of values, from embedding over blk.0.q to logits, are in detail/checkpoints.h, each
// with its formula and shape. Record what there is, in order of execution, in the type in which it
// was computed.
//
// - Values are copied in record(): the engine may free or reuse its buffer at once.
// - Any thread may record at any time within a step.
// - No call throws or ends the process. The first failure ends the recording: calls return false
//   from then on and error() says why; steps from before stay.
// - A process that dies leaves a trace that opens and is not `complete`: files get their names when
//   they are whole. Only finish() completes it. What survives a power failure is up to the
//   system, but for `durable` recordings. One without any step that fails leaves nothing.
// - Nothing is global: no static object, no atexit, no thread. It may itself be a static object.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "detail/json.h"
#include "detail/limits.h"
#include "detail/precision.h"
#include "detail/trace_files.h"
#include "detail/values.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "traces hold little-endian numbers"
#endif

namespace lockstep {

// What the manifest says; only `engine` is needed. Bytes that are no UTF-8 become U+FFFD.
struct TraceInfo {
  std::string engine, version, device;
  // The arithmetic of sums and functions, of what ops hand on or products read, of the cache, of
  // weights that the engine rounds itself, and of sums of products of f16 numbers: f32, bf16,
  // e4m3:row,
  // ... (detail/precision.h has all names); empty where it is not known. What counts as rounding is
  // computed from it.
  std::string compute, activations, kv, weights, sums;
  // `model_path`: where the file lies, so that `compare` finds it again.
  std::string model_file, model_path, architecture, fingerprint, quantization;
  // What the forward pass depends on besides the file; 0: not said. Positions that there is room
  // for, a rope base and a scale of positions that were set by hand.
  int64_t context_length = 0;
  double rope_base = 0, rope_scale = 0;
  std::string prompt;
  std::vector<int32_t> tokens;  // all ids, the prompt's first; add_token() adds the chosen ones
  int64_t prompt_tokens = -1;   // how many of them are the prompt's; -1: those that are given here
  std::vector<std::pair<std::string, double>> sampling;  // {"temperature", 0}, ...
  std::vector<std::string> notes;     // what else is to be known; `compare` shows them
  std::vector<std::string> unmapped;  // values that the engine has besides, by its own names
  int64_t memory_bytes = 256 << 20;   // for a step; a larger one goes to the disk as it comes
  bool durable =
      false;  // syncs every file and the folder: what is written outlasts a power failure
};

class TraceRecorder {
 public:
  // Makes the folder, which must not hold anything yet.
  TraceRecorder(const std::string& folder, TraceInfo info)
      : folder_(folder), info_(std::move(info)), files_(folder, info_.durable) {
    if (!guarded([&] { return start(); })) give_up();
  }

  // Writes the steps that are whole. Without finish() the trace says that it is not complete; where
  // it has no step then, nothing is left.
  ~TraceRecorder() {
    if (!started_ || (finished_ && error_.empty())) return;
    if (!finished_ && files_.has_steps()) attempt([&] { return write(); });
    give_up();
  }
  TraceRecorder(const TraceRecorder&) = delete;
  TraceRecorder& operator=(const TraceRecorder&) = delete;

  // One call of the forward pass: `tokens` tokens from the absolute position `first_position` on.
  bool begin_step(int64_t first_position, int64_t tokens) {
    return guarded([&] { return begin(first_position, tokens); });
  }

  // A value of the open step: [tokens of the step, width], dense.
  bool record(std::string_view name, const float* data, int64_t width) {
    return record(name, {data, NumberType::kF32, {open_tokens(), width}, {}});
  }
  bool record(std::string_view name, const double* data, int64_t width) {
    return record(name, {data, NumberType::kF64, {open_tokens(), width}, {}});
  }
  // Of any type, shape and strides; `copy` where it lies in the memory of a device.
  bool record(std::string_view name, const Values& values, const CopyToHost& copy = {}) {
    detail::Grid grid;
    int64_t step = 0;
    size_t slot = 0;
    // A place is taken, then filled: threads copy at the same time, and the order stays.
    if (!guarded([&] { return claim(std::string(name), values, &grid, &step, &slot); }))
      return false;
    std::unique_ptr<char[]> data;
    const std::string problem = attempt([&] {
      std::string wrong;
      data = detail::dense_copy(values.data, grid, copy, &wrong);
      return wrong;
    });
    return guarded([&] {
      return problem.empty() ? put(step, slot, std::move(data))
                             : std::string(name) + ": cannot copy: " + problem;
    });
  }

  // `whole` false: the forward pass failed; the step is forgotten.
  bool end_step(bool whole = true) {
    return guarded([&] { return end(whole); });
  }

  // A token that was chosen.
  bool add_token(int32_t id) {
    return guarded([&] {
      if (id < 0) return "add_token: found " + std::to_string(id) + ", expected 0 or more";
      info_.tokens.push_back(id);
      return std::string();
    });
  }

  // Steps that are whole go to the disk now.
  bool flush() {
    return guarded([&] { return finished_ ? std::string() : write(); });
  }

  // All is there: the trace is complete, and takes nothing more.
  bool finish() {
    return guarded([&] {
      if (finished_) return std::string();
      if (open_) return "finish: step " + std::to_string(step_.index) + " is still open";
      std::string problem = files_.flush();
      finished_ = problem.empty();
      return finished_ ? files_.write_manifest(manifest()) : problem;
    });
  }

  bool ok() const { return error().empty(); }
  // Why the recording ended; "" where it did not.
  std::string error() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return error_;
  }

 private:
  struct Checkpoint {
    std::string name;
    NumberType type;
    int64_t width;
    int64_t last_step;  // in which it was recorded
  };

  // What `body` returns or throws as wrong. Engines may be built without exceptions.
  template <class Body>
  static std::string attempt(const Body& body) {
#if defined(__cpp_exceptions)
    try {
      return body();
    } catch (const std::exception& problem) {
      return problem.what();
    } catch (...) {
      return "an unknown exception";
    }
#else
    return body();
#endif
  }

  template <class Body>
  bool guarded(const Body& body) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!error_.empty()) return false;
    const std::string problem = attempt(body);
    if (problem.empty()) return true;
    error_ = folder_ + ": " + problem;
    files_.drop_large();
    return false;
  }

  void give_up() {
    attempt([&] {
      files_.give_up();
      return std::string();
    });
  }

  int64_t open_tokens() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return open_ ? step_.tokens : 1;
  }

  std::string start() {
    if (info_.engine.empty()) return "the engine has no name";
    for (const auto& [field, name] : precision()) {
      detail::PrecisionName known;
      if (!name.empty() && !detail::read_precision_name(field, name, &known))
        return std::string(field) + ": found '" + name + "', expected one of " +
               detail::known_precision_names(field);
    }
    for (const int32_t id : info_.tokens)
      if (id < 0) return "tokens: found " + std::to_string(id) + ", expected 0 or more";
    const auto count = static_cast<int64_t>(info_.tokens.size());
    if (info_.prompt_tokens < -1 || info_.prompt_tokens > count)
      return "prompt_tokens: found " + std::to_string(info_.prompt_tokens) + " of " +
             std::to_string(count) + " tokens";
    if (info_.prompt_tokens < 0) info_.prompt_tokens = count;
    const std::string problem = files_.make_folder();
    if (!problem.empty()) return problem;
    const std::string taken = files_.take_folder(manifest());
    started_ = taken.empty();
    return taken;
  }

  std::string begin(int64_t first_position, int64_t tokens) {
    if (finished_) return "begin_step: the trace is finished";
    if (open_) return "begin_step: step " + std::to_string(step_.index) + " is still open";
    if (first_position < next_position_ || first_position >= detail::kMostPositions)
      return "begin_step: found position " + std::to_string(first_position) + ", expected " +
             std::to_string(next_position_) + " to " + std::to_string(detail::kMostPositions - 1);
    if (!detail::in_positions(first_position, tokens))
      return "begin_step: found " + std::to_string(tokens) + " tokens, expected 1 to " +
             std::to_string(detail::kMostPositions - first_position);
    step_ = detail::Step();
    step_.index = steps_++;
    step_.first_position = first_position;
    step_.tokens = tokens;
    open_ = true;
    return "";
  }

  // A place for a value, once it is checked against its step and what its name held before.
  std::string claim(const std::string& name, const Values& values, detail::Grid* grid,
                    int64_t* step, size_t* slot) {
    if (!detail::is_name(name)) return std::string("found a name that is not ") + detail::kNameRule;
    if (!open_) return name + ": recorded outside of a step";
    if (step_.values.size() >= detail::kMostCheckpoints ||
        (checkpoints_.size() >= detail::kMostCheckpoints && checkpoint_of_.count(name) == 0))
      return name + ": a trace has at most " + std::to_string(detail::kMostCheckpoints) +
             " checkpoints";
    if (const std::string problem = read_grid(values, grid); !problem.empty())
      return name + ": " + problem;
    detail::Stored value;
    value.name = name;
    value.type = values.type;
    value.shape = values.shape;
    value.bytes = grid->bytes;
    if (value.shape.size() == 1) value.shape.insert(value.shape.begin(), 1);
    const bool scores = value.shape.size() == 3;
    const int64_t rows = value.shape[scores ? 1 : 0];
    const bool last_rows = name == "logits" && !scores && rows < step_.tokens;
    if (rows != step_.tokens && !last_rows)
      return name + ": shape " + detail::json_array(value.shape) + " has " + std::to_string(rows) +
             " rows in a step of " + std::to_string(step_.tokens) + " tokens";
    const Checkpoint found{name, value.type, value.shape[scores ? 0 : 1], -1};
    const auto [known, is_new] = checkpoint_of_.emplace(name, checkpoints_.size());
    if (is_new) checkpoints_.push_back(found);
    Checkpoint& before = checkpoints_[known->second];
    if (before.last_step == step_.index) return name + ": recorded twice in a step";
    if (found.type != before.type || found.width != before.width)
      return name + ": found " + text(found) + ", before it had " + text(before);
    before.last_step = *step = step_.index;
    *slot = step_.values.size();
    step_.values.push_back(std::move(value));
    return "";
  }

  std::string put(int64_t step, size_t slot, std::unique_ptr<char[]> data) {
    if (!open_ || step_.index != step) return "a step ended while a value of it was copied";
    detail::Stored& value = step_.values[slot];
    value.data = std::move(data);
    value.copied = true;
    step_.bytes += static_cast<int64_t>(value.bytes);
    if (files_.has_large()) return files_.spill(step_, slot);
    if (step_.bytes <= info_.memory_bytes) return "";
    std::string problem = write();  // the steps before
    for (size_t i = 0; i < step_.values.size() && problem.empty(); ++i)
      if (step_.values[i].data != nullptr) problem = files_.spill(step_, i);
    return problem;
  }

  std::string end(bool whole) {
    if (!open_) return "end_step: no step is open";
    open_ = false;
    if (!whole) {
      files_.drop_large();
      return "";
    }
    if (step_.values.empty())
      return "end_step: step " + std::to_string(step_.index) + " has no values";
    for (const detail::Stored& value : step_.values)
      if (!value.copied) return "end_step: " + value.name + " is still being copied";
    next_position_ = step_.first_position + step_.tokens;
    bool flushed = false;
    std::string problem = files_.add(std::move(step_), &flushed);
    return problem.empty() && flushed ? files_.write_manifest(manifest()) : problem;
  }

  std::string write() {
    std::string problem = files_.flush();
    return problem.empty() ? files_.write_manifest(manifest()) : problem;
  }

  std::string manifest() const {
    using detail::json_object;
    using detail::json_text;
    const auto given = [](const std::string& value) {
      return value.empty() ? std::string() : json_text(value);
    };
    const auto set = [](bool is_set, const std::string& value) {
      return is_set ? value : std::string();
    };
    detail::JsonFields names;
    for (const auto& [field, name] : precision()) names.emplace_back(field, given(name));
    detail::JsonFields sampling;
    for (const auto& [key, value] : info_.sampling)
      sampling.emplace_back(key, detail::json_number(value));
    std::vector<std::string> checkpoints, steps;
    for (const Checkpoint& c : checkpoints_)
      checkpoints.push_back(json_object({{"name", json_text(c.name)},
                                         {"dtype", json_text(detail::find_type(c.type)->name)},
                                         {"width", std::to_string(c.width)}}));
    for (const detail::Step& s : files_.written())
      steps.push_back(json_object({{"index", std::to_string(s.index)},
                                   {"first_pos", std::to_string(s.first_position)},
                                   {"n_tokens", std::to_string(s.tokens)},
                                   {"shard", json_text(s.shard)}}));
    const auto texts = [](const std::vector<std::string>& items) {
      std::vector<std::string> quoted;
      for (const std::string& item : items) quoted.push_back(json_text(item));
      return items.empty() ? std::string() : detail::json_list(quoted);
    };
    return detail::json_document(
        {{"format", "\"lockstep-trace\""},
         {"version", "1"},
         {"complete", finished_ ? "true" : "false"},
         {"engine", json_object({{"name", json_text(info_.engine)},
                                 {"version", given(info_.version)},
                                 {"device", given(info_.device)},
                                 {"precision", json_object(names)}})},
         {"model", json_object({{"file", given(info_.model_file)},
                                {"path", given(info_.model_path)},
                                {"architecture", given(info_.architecture)},
                                {"fingerprint", given(info_.fingerprint)},
                                {"quantization", given(info_.quantization)}})},
         {"forward",
          json_object(
              {{"context_length",
                set(info_.context_length > 0, std::to_string(info_.context_length))},
               {"rope_base", set(info_.rope_base > 0, detail::json_number(info_.rope_base))},
               {"rope_scale", set(info_.rope_scale > 0, detail::json_number(info_.rope_scale))}})},
         {"prompt", json_text(info_.prompt)},
         {"tokens", detail::json_array(info_.tokens)},
         {"n_prompt", std::to_string(info_.prompt_tokens)},
         {"sampling", json_object(sampling)},
         {"checkpoints", detail::json_list(checkpoints)},
         {"steps", detail::json_list(steps)},
         {"notes", texts(info_.notes)},
         {"unmapped", texts(info_.unmapped)}});
  }

  std::vector<std::pair<std::string_view, std::string>> precision() const {
    return {{"compute", info_.compute},
            {"activations", info_.activations},
            {"kv", info_.kv},
            {"weights", info_.weights},
            {"sums", info_.sums}};
  }

  static std::string text(const Checkpoint& checkpoint) {
    return std::string(detail::find_type(checkpoint.type)->name) + " and width " +
           std::to_string(checkpoint.width);
  }

  const std::string folder_;
  mutable std::mutex mutex_;  // of all that follows
  std::string error_;
  TraceInfo info_;
  detail::TraceFiles files_;
  bool started_ = false, finished_ = false;
  std::vector<Checkpoint> checkpoints_;  // in the order in which they were first given
  std::unordered_map<std::string, size_t> checkpoint_of_;
  detail::Step step_;  // the open one
  bool open_ = false;
  int64_t steps_ = 0, next_position_ = 0;
};

}  // namespace lockstep
