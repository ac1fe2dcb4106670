// How large a model may be: bits a weight, or bytes.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "gguf/file.h"

namespace lockstep::cli {

struct ModelSize {
  double bits = 0;    // a weight; 0: `bytes` counts
  int64_t bytes = 0;  // of all tensors

  int64_t bytes_of(const gguf::File& file) const;
};

// "4.5" is bits; "1665856", "1.6M" and "4GB" are bytes: a number above 32, or with k, M, G or T.
Result<ModelSize> parse_model_size(const std::string& text);

}  // namespace lockstep::cli
