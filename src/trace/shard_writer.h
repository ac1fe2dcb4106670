// Puts the values of steps into shard files and keeps the manifest true.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/output_file.h"
#include "base/result.h"
#include "trace/buffers.h"
#include "trace/manifest.h"
#include "trace/safetensors.h"

namespace lockstep::trace {

// Small steps are gathered into one shard until it is large or old; a large step is
// written as it comes, a shard of its own. Where much waits, several shards are written at once:
// the system copies what one thread writes more slowly than a GPU makes it. A shard is written
// under another name and renamed when it is whole; the manifest names it only then.
class ShardWriter {
 public:
  // `durable`: also where the power fails, every file is whole that the manifest names.
  ShardWriter(std::string folder, Manifest manifest, bool durable = false);

  // Makes the folder, which must not hold anything, and writes the first manifest. Of several
  // writers that want a folder one gets it.
  Result<void> start();

  // The values of a step, announced together, come in any order, each once. One with another size
  // is an error, and so is a whole step that lacks one.
  Result<void> begin_step(const StepInfo& info, std::vector<StoredPlan> plans);
  Result<void> put(size_t plan, Buffer bytes);
  // `waiting`: bytes of the steps that come next and are there already.
  Result<void> end_step(bool whole, int64_t waiting = 0);

  Result<void> finish(const std::vector<int32_t>& tokens, int64_t dropped_steps,
                      bool complete = true);
  Result<void> flush();
  // After a failure: steps that are whole stay, if they can be written. Where there is none,
  // nothing is left, and no folder that was made for it.
  void give_up() noexcept;

  // What is written is given back here.
  BufferPool& buffers() { return *buffers_; }

 private:
  struct Step {
    StepInfo info;
    std::vector<StoredPlan> plans;
    std::vector<Buffer> data;   // by plan; unused where written directly
    std::vector<bool> arrived;  // by plan
    int64_t size_bytes = 0;
  };

  // A shard that is being written: steps of pending_, from `begin` on.
  struct Shard {
    std::string name;
    size_t begin;
    size_t end;
    std::optional<OutputFile> file = {};
    Result<void> written = {};
  };

  std::vector<Shard> pending_shards();
  Result<void> write(Shard& shard) const;
  std::string next_shard();
  std::string path(const std::string& name) const;
  Result<void> make_folder();
  Result<void> take_folder();
  Result<void> write_manifest();
  Result<void> publish(OutputFile& file);

  std::unique_ptr<BufferPool> buffers_ = std::make_unique<BufferPool>();
  std::string folder_;
  bool durable_;
  std::vector<std::string> made_folders_;  // the innermost first
  bool started_ = false;
  Manifest manifest_;
  std::optional<Step> current_;
  std::optional<OutputFile> direct_;    // of the current step, where it is large
  std::vector<int64_t> direct_places_;  // by plan: offset in that file
  std::vector<Step> pending_;
  int64_t pending_bytes_ = 0;
  int64_t shards_ = 0;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_flush_;
};

}  // namespace lockstep::trace
