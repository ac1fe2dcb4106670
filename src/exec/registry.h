// The executors that there are, fastest first.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/bandwidth.h"
#include "base/result.h"
#include "exec/executor.h"

namespace lockstep::exec {

struct Options {
  int threads = 0;  // 0: all cores
  // Of cpu and cuda: what the KV cache holds, f16 or f32. Without it: what cache_type.h says.
  std::optional<DType> kv = {};
  bool pin = true;     // of cpu: threads stay on cores that no other process of ours has taken
  bool repack = true;  // of cpu: weights are laid out anew for speed, or used as in the file
};

struct Device {
  std::string_view name;  // for --device
  std::string_view summary;
  bool has_threads;  // that Options can number
  // Why it cannot run on this machine, or nothing.
  Result<void> (*available)();
  // The program must outlive the executor. Memory that will not do is an error before allocation.
  Result<std::unique_ptr<Executor>> (*create)(const op::Program& program, const Options& options);
  // How fast its memory can be read, by so many threads where it has any.
  Result<Bandwidth> (*read_bandwidth)(int threads);
};

std::span<const Device> devices();

// An unknown name is an error that lists the known ones; an empty one means the fastest that this
// machine can run.
Result<const Device*> find_device(std::string_view name);

}  // namespace lockstep::exec
