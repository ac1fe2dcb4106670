// A model file in other formats: what each tensor becomes, and the writing of it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "gguf/file.h"
#include "gguf/imatrix.h"
#include "gguf/writer.h"
#include "quant/recipe.h"
#include "quant/tensor_recipe.h"

namespace lockstep::gguf {

struct QuantizeOptions {
  const quant::Recipe* recipe = nullptr;
  bool pure = false;            // every weight in the recipe's base format (or what its rows allow)
  bool requantize = false;      // quantized sources are fine: decoded exactly, then encoded again
  bool keep_quantized = false;  // what is quantized stays as it is
  const quant::TensorRecipe* tensors = nullptr;  // in place of the recipe
  const Imatrix* imatrix = nullptr;              // what errors of a tensor's columns count
};

// The header of the new file. Tensors stand in the order of the source.
struct QuantizePlan {
  std::vector<Entry> metadata;
  std::vector<TensorPlan> tensors;
  // Of each tensor, what errors of its columns count [matrices, columns]; empty: all the same.
  std::vector<std::vector<float>> importance;
};

// An error where a tensor cannot be decoded, or is quantized already and must not be again; where a
// recipe for single tensors does not fit the file.
Result<QuantizePlan> plan_quantization(const File& source, const QuantizeOptions& options);

// How far the written values of a tensor are from those of the source.
struct QuantizeError {
  double squares = 0;        // of the source's values, added up
  double square_errors = 0;  // of the differences

  // Root mean square of the differences, relative to that of the values. 0 where nothing differs;
  // infinite where a value is written that is not finite, or all values should be 0.
  double relative() const;
};

// Writes the file, a piece of a tensor at a time, on all cores. `advance` is told the bytes of the
// source that were done. A value that is not finite is an error, and no file is left. Gives the
// error of each tensor, in the order of the plan.
Result<std::vector<QuantizeError>> quantize(const File& source, const QuantizePlan& plan,
                                            const std::string& path,
                                            const std::function<void(int64_t)>& advance);

}  // namespace lockstep::gguf
