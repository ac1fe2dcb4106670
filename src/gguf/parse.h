// The structure of one GGUF file, checked. Within this folder; others use File.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gguf/file.h"
#include "gguf/value.h"

namespace lockstep::gguf {

inline constexpr uint32_t kVersion = 3;
inline constexpr int64_t kDefaultAlignment = 32;
inline constexpr int64_t kMaxDims = 4;
inline constexpr char kMagic[] = {'G', 'G', 'U', 'F'};

// The format's text asks for a multiple of 8, the common readers for a power of two: both will do.
bool valid_alignment(int64_t alignment);

// The next multiple of the alignment; neither is negative, and the sum must fit.
int64_t align_up(int64_t offset, int64_t alignment);

// What is wrong with a tensor of these dimensions, or its size in bytes.
struct TensorSize {
  int64_t bytes = 0;
  int64_t bad_dim = -1;  // the dimension to blame, where there is one
  std::string found;     // empty: nothing is wrong
  std::string expected;
};
TensorSize tensor_size(const quant::FormatInfo& format, std::span<const int64_t> dims);

struct Contents {
  uint32_t version = 0;
  int64_t alignment = kDefaultAlignment;
  std::vector<Entry> metadata;
  std::vector<Tensor> tensors;
  // Positions in the vectors. The keys are views of the file's bytes. Trees, since a hostile file
  // can make every name fall into the same bucket of a hash table.
  std::map<std::string_view, size_t> metadata_index;
  std::map<std::string_view, size_t> tensor_index;
};

// Reads the header only; no byte of tensor data is touched.
Result<Contents> parse_contents(std::span<const std::byte> bytes, const std::string& path);

}  // namespace lockstep::gguf
