// The executors that there are, fastest first.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"
#include "exec/executor.h"

namespace lockstep::exec {

struct Options {
  int threads = 0;  // 0: all cores
  // Of the cpu executor: what the KV cache holds (f16 or f32), and whether weights are laid out
  // anew for speed or used as they lie in the file.
  DType kv = DType::kF16;
  bool repack = true;
};

struct Device {
  std::string_view name;  // for --device
  std::string_view summary;
  // The program must outlive the executor. Memory that will not do is an error before allocation.
  Result<std::unique_ptr<Executor>> (*create)(const op::Program& program, const Options& options);
};

std::span<const Device> devices();

// An unknown name is an error that lists the known ones; an empty one means the fastest.
Result<const Device*> find_device(std::string_view name);

}  // namespace lockstep::exec
