// A recipe that somebody wrote: which format each tensor gets, in lines of text.
//
//   # what follows is no part of it
//   * Q4_K                     all matrices, unless a later line fits them too
//   blk.*.attn_v.weight Q6_K   * stands for any text
//
// docs/quantization.md has the details.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "quant/format.h"

namespace lockstep::quant {

class TensorRecipe {
 public:
  struct Line {
    std::string pattern;
    const FormatInfo* format = nullptr;
    int64_t number = 0;  // in the text, from 1
  };

  // `path` is for messages. Errors: a line that is not a pattern and a format, a format that is not
  // known or cannot be written, no line at all.
  static Result<TensorRecipe> parse(std::string_view text, const std::string& path);

  // Of the last line that fits; nullptr where none does.
  const FormatInfo* format_of(std::string_view tensor) const;

  // The first line that fits none of these; nullptr where each fits one.
  const Line* unused(const std::vector<std::string_view>& tensors) const;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::vector<Line> lines_;
};

}  // namespace lockstep::quant
