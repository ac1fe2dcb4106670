// Writes GGUF version 3. The file appears under its name only when it is whole.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "gguf/file.h"
#include "gguf/value.h"

namespace lockstep::gguf {

struct TensorPlan {
  std::string name;
  const quant::FormatInfo* format = nullptr;
  std::vector<int64_t> dims;  // first dimension fastest
};

// A whole file in memory that has metadata and no tensors: what a model would say of itself.
std::string file_without_tensors(std::span<const Entry> metadata);

// Header first, then the tensors' data in the order of the plan, in pieces of any size: a file of
// any size is written in little memory.
class Writer {
 public:
  // Writes the header to a temporary file beside `path`. `general.alignment` is taken from the
  // metadata where it is there (default 32).
  static Result<Writer> create(const std::string& path, std::span<const Entry> metadata,
                               std::span<const TensorPlan> tensors);
  Writer(Writer&&) noexcept;
  Writer& operator=(Writer&&) noexcept;
  ~Writer();  // removes the temporary file unless finish() succeeded

  // The next bytes of the current tensor; padding between tensors is the writer's business.
  Result<void> write(std::span<const std::byte> bytes);

  // All tensors must be complete. Renames to the final path.
  Result<void> finish();

 private:
  struct State;
  explicit Writer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::gguf
