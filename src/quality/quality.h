// What a file costs against another of the same model: how far its predictions of a text are from
// those of the file that is trusted, and which tensors are to blame.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "base/terminal.h"
#include "exec/registry.h"
#include "model/model.h"
#include "quality/statistics.h"
#include "quality/text_windows.h"

namespace lockstep::quality {

struct Cost {
  int64_t tokens = 0;  // that were scored
  int64_t blocks = 0;
  Interval perplexity_reference = {};
  Interval perplexity_suspect = {};
  Interval perplexity_ratio = {};  // suspect over reference
  Interval kl_mean = {};
  Interval kl_median = {};
  Interval kl_p99 = {};
  Interval same = {};  // share of tokens where both hold the same token the likeliest
};

// One tensor of the file in question.
struct TensorCost {
  std::string name;
  const quant::FormatInfo* format_reference = nullptr;
  const quant::FormatInfo* format_suspect = nullptr;
  int64_t values = 0;
  int64_t bytes_reference = 0;
  int64_t bytes_suspect = 0;
  bool equal = false;   // the same bytes in both files: nothing was measured, both costs are 0
  Interval alone = {};  // mean divergence of the reference with this tensor of the suspect
  Interval saved =
      {};  // what the suspect's mean divergence loses with this tensor of the reference
};

struct Ranking {
  int64_t tokens = 0;  // that were scored
  int64_t blocks = 0;
  int64_t windows = 0;
  int64_t window = 0;                    // tokens
  int64_t context = 0;                   // tokens before each that was scored, at least
  Interval kl = {};                      // of the whole suspect on the same tokens
  std::vector<TensorCost> tensors = {};  // the largest cost alone first
};

// A format for each matrix, so that a model of a given size costs the least.
struct Proposal {
  struct Line {
    std::string name;
    const quant::FormatInfo* format = nullptr;
    double kl = 0;  // estimated
  };
  std::vector<Line> lines;  // in the order of the reference
  int64_t bytes = 0;        // of all tensors, norms and the like included
  int64_t values = 0;
  double kl = 0;       // estimated: the sum of the lines
  int64_t probed = 0;  // tensors that are not quantized in the suspect: a 4-bit form was measured
};

struct Report {
  std::string reference, suspect;  // files
  std::string device;
  int64_t text_tokens = 0;
  int64_t window = 0;
  int64_t context = 0;
  int64_t values = 0;                              // of all tensors
  int64_t bytes_reference = 0, bytes_suspect = 0;  // the same
  Cost cost = {};
  bool ranked = false;
  Ranking ranking = {};
  std::optional<Proposal> proposal = {};
  std::string recipe_path = {};
};

struct Setting {
  // Weights are what is measured: both models have the same cache, whatever their weights, and one
  // that costs nothing beside these, unless another was asked for.
  Setting(const exec::Device* on, const exec::Options& given) : device(on), options(given) {
    if (!options.kv) options.kv = DType::kF32;
  }

  const exec::Device* device;
  exec::Options options;
};

// Told how much of how much was done: tokens of the text, or tensors.
using Advance = std::function<void(int64_t done, int64_t all)>;

// Errors where these are not two files of one model: other shapes, other ops.
Result<void> check_same_shape(const model::Model& reference, const model::Model& suspect);

Result<Cost> measure_cost(const model::Model& reference, const model::Model& suspect,
                          const std::vector<Window>& windows, const Setting& setting,
                          const Advance& advance);

Result<Ranking> rank_tensors(const model::Model& reference, const model::Model& suspect,
                             const std::vector<Window>& windows, const Setting& setting,
                             const Advance& advance);

// docs/quantization.md
nlohmann::ordered_json to_json(const Report& report);
// For people, in lines of `width` characters. `all`: every tensor.
std::string to_text(const Report& report, int64_t width, const Paint& paint, bool all);

}  // namespace lockstep::quality
