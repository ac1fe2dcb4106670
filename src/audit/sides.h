// The tensors of two files under the same names, where one file has several tensors in one.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "gguf/file.h"

namespace lockstep::audit {

// A file's tensors. One that the other file has in parts is cut, and its parts have their names.
struct Side {
  std::string path;
  std::vector<gguf::Tensor> tensors;
  std::unordered_map<std::string, size_t> places;        // by name
  std::unordered_map<std::string, std::string> origins;  // of parts: what they were cut from
  std::deque<std::vector<std::byte>> memory;             // of tensors that had to be laid out anew

  const gguf::Tensor* find(const std::string& name) const;
};

struct Sides {
  Side a, b;
};

// Parts lie in the files; only what latent.h lays out anew is copied.
Sides side_by_side(const gguf::File& a, const gguf::File& b);

}  // namespace lockstep::audit
