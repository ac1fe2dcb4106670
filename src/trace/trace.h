// A recorded trace, opened for reading. Shards are mapped, never loaded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "base/view.h"
#include "trace/manifest.h"
#include "trace/name_map.h"
#include "trace/safetensors.h"

namespace lockstep::trace {

class Trace {
 public:
  // The manifest and every shard that it names, checked.
  static Result<Trace> open(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }

  // Checkpoints that the engine recorded under its own names get ours. One that a checkpoint of
  // that name exists for already stays as it is.
  void rename(const NameMap& map);

  bool has(std::string_view checkpoint) const;
  const CheckpointInfo* checkpoint(std::string_view name) const;  // nullptr where unknown

  // The whole value of a step (index into manifest().steps), as stored; nothing where the step
  // does not have it.
  std::optional<View> value(size_t step, std::string_view checkpoint) const;

  // One position's row: [width], or [heads, positions] with the given stride for attention scores.
  // Nothing where it was not recorded.
  struct Row {
    DType dtype = DType::kF32;
    const std::byte* data = nullptr;
    int64_t width = 0;        // numbers in a line
    int64_t lines = 1;        // heads, for attention scores
    int64_t line_stride = 0;  // numbers from one line to the next

    double at(int64_t line, int64_t index) const;
    // `count` numbers of a line from `first` on, as doubles.
    void read(int64_t line, int64_t first, int64_t count, double* out) const;
  };
  std::optional<Row> row(std::string_view checkpoint, int64_t position) const;

  // Memory that was touched goes back to the system: traces may be larger than it. Of all shards,
  // or of those that have positions from `first` to `last`.
  void release_pages() const;
  void release_pages(int64_t first, int64_t last) const;

  // Tells the system that the rows of positions from `first` to `last` will be wanted soon.
  void read_ahead(int64_t first, int64_t last) const;

  // Tells this trace from another, or from itself after a change: a hash of its manifest, of the
  // sizes of its shards and of a sample of their bytes, which is all of them in a small trace.
  std::string fingerprint() const;

  // Positions that any step covers.
  int64_t positions() const;

 private:
  Trace() = default;
  // A checkpoint of a step: [rows, width], or [width, rows, kv] for attention scores. Small, since
  // a long trace has millions.
  struct Stored {
    const std::byte* data = nullptr;  // null: not recorded
    int64_t rows = 0;
    int64_t kv = 0;  // 0: no scores
  };
  std::optional<size_t> step_of(int64_t position) const;
  const Stored* find(size_t step, std::string_view checkpoint) const;
  void index_names();
  Result<void> check_amount(const std::string& path, const Safetensors& file,
                            const std::vector<size_t>& steps);
  Result<void> open_shard(const std::string& name, const std::vector<size_t>& steps);

  std::string folder_;
  Manifest manifest_;
  std::vector<MappedFile> shards_;
  std::vector<size_t> shard_of_;                        // [step]
  std::unordered_map<std::string_view, size_t> index_;  // of a checkpoint in the manifest
  std::vector<std::vector<Stored>> stored_;             // [step][checkpoint]
  int64_t rows_told_ = 0, rows_held_ = 0;               // of the shards that are open
};

}  // namespace lockstep::trace
