#include "forensics/detectors.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace lockstep::forensics {
namespace {

constexpr std::array<KindInfo, 23> kKinds = {{
    {Kind::kFreeList, "free-list", "links of the allocator's free list: freed memory was read",
     true},
    {Kind::kAddress, "address", "addresses of user space", true},
    {Kind::kDevicePointer, "device-pointer", "pointers to device memory", true},
    {Kind::kPoison, "poison", "a fill pattern of fresh or freed memory", true},
    {Kind::kHalfPairs, "fp16-pairs", "fp16 numbers, two at a time read as one f32", true},
    {Kind::kBfloatPairs, "bf16-pairs", "bf16 numbers, two at a time read as one f32", true},
    {Kind::kDouble, "f64", "f64 numbers, each read as two f32", true},
    {Kind::kInt8, "int8", "8-bit integers, four at a time read as one f32", true},
    {Kind::kInt16, "int16", "16-bit integers, two at a time read as one f32", true},
    {Kind::kInt32, "int32", "integers read as floats", true},
    {Kind::kText, "text", "text read as floats", true},
    {Kind::kByteSwapped, "byte-swapped", "floats with their bytes in reverse order", true},
    {Kind::kStaleRow, "stale-row", "a copy of an earlier position's row", true},
    {Kind::kRepeatedRows, "repeated-rows", "the same row at many positions", true},
    {Kind::kZeros, "zeros", "zeros where the model has numbers: not computed or not written", true},
    {Kind::kSaturated, "fp16-limit", "numbers at the overflow limit of fp16 (65504)", true},
    {Kind::kOverflow, "overflow", "a real overflow: infinity grown from large numbers", true},
    {Kind::kNoise, "noise", "looks like uninitialized memory: exponents all over", true},
    {Kind::kNonFinite, "non-finite", "NaN or infinity of unknown origin", true},
    {Kind::kUnknown, "unknown", "numbers far beyond the rest, of unknown origin", true},
    {Kind::kMassive, "massive-activations", "large but plausible: outlier channels of the model",
     false},
    {Kind::kMasked, "masked", "masked entries: positions that attention must not see", false},
    {Kind::kHonestZeros, "zeros-perhaps-right", "zeros that may be in order", false},
}};

// What is left when nothing better explains it.
std::optional<Match> detect_leftover(const Exhibit& exhibit) {
  Match match;
  int64_t non_finite = 0, odd = 0, first = -1;
  for (int64_t i = 0; i < exhibit.row.count(); ++i) {
    if (exhibit.odd[static_cast<size_t>(i)] == 0) continue;
    // One number too small to be normal is no case by itself.
    const double value = exhibit.row.at(i);
    if (std::isfinite(value) && !is_huge(value, exhibit.scale)) continue;
    non_finite += !std::isfinite(value);
    ++odd;
    if (first < 0) first = i;
    if (!match.ranges.empty() && match.ranges.back().end == i)
      ++match.ranges.back().end;
    else
      match.ranges.push_back({i, i + 1});
  }
  if (odd == 0) return std::nullopt;
  match.kind = non_finite > 0 ? Kind::kNonFinite : Kind::kUnknown;
  match.score = non_finite > 0 ? 0.5 : 0.3;
  match.inherited = non_finite > 0 && exhibit.earlier_non_finite;
  match.evidence =
      match.inherited
          ? fmt::format("value {} is {}; '{}' has such at the same position already", first,
                        exhibit.row.at(first), exhibit.earlier_non_finite_checkpoint)
          : fmt::format("value {} is {:g}; the others are about {:g}", first, exhibit.row.at(first),
                        exhibit.scale);
  return match;
}

constexpr Detector kDetectors[] = {
    detect_free_list,    detect_addresses, detect_poison,   detect_format, detect_text,
    detect_byte_swapped, detect_saturated, detect_overflow, detect_noise,  detect_leftover,
};

bool touches_odd(const Exhibit& exhibit, const Match& match) {
  for (const Range& range : match.ranges)
    for (int64_t i = range.begin; i < range.end; ++i)
      if (exhibit.odd[static_cast<size_t>(i)] != 0) return true;
  return false;
}

}  // namespace

const KindInfo& info(Kind kind) {
  return kKinds[static_cast<size_t>(kind)];
}

std::span<const Detector> detectors() {
  return kDetectors;
}

bool masks(std::string_view checkpoint) {
  return checkpoint.ends_with("attn_scores");
}

bool reaches_zero(std::string_view checkpoint) {
  return checkpoint.ends_with("ffn_act") || checkpoint.find("prob") != std::string_view::npos ||
         checkpoint.find("softmax") != std::string_view::npos;
}

std::vector<uint8_t> find_odd(std::string_view checkpoint, const Row& row, const RowStats& stats,
                              double scale) {
  std::vector<uint8_t> odd(static_cast<size_t>(row.count()));
  // Logits may be masked too: then minus infinity is all that is not finite.
  const bool masked = masks(checkpoint) || (checkpoint.ends_with("logits") && stats.nans == 0 &&
                                            stats.plus_infinities == 0 && stats.finite > 0);
  const bool denormals = row.dtype != DType::kF16 && !reaches_zero(checkpoint);
  for (int64_t i = 0; i < row.count(); ++i) {
    const double value = row.at(i);
    if (masked && is_mask_value(value)) continue;
    odd[static_cast<size_t>(i)] = std::isnan(value) ||
                                  (std::isinf(value) && (value > 0 || !masked)) ||
                                  (std::isfinite(value) && is_huge(value, scale)) ||
                                  (denormals && is_denormal(row.dtype, value));
  }
  return odd;
}

std::vector<Match> explain(Exhibit exhibit) {
  std::vector<Match> found;
  bool first = true;
  while (found.size() < 16) {
    std::optional<Match> best;
    for (const Detector detect : detectors()) {
      std::optional<Match> match = detect(exhibit);
      if (!match || (best && match->score <= best->score)) continue;
      // Some see what size alone does not show; that is worth saying once.
      if (!first && !touches_odd(exhibit, *match)) continue;
      best = std::move(match);
    }
    if (!best) break;
    for (const Range& range : best->ranges)
      std::fill(exhibit.odd.begin() + range.begin, exhibit.odd.begin() + range.end, uint8_t{0});
    found.push_back(*std::move(best));
    first = false;
  }
  return found;
}

}  // namespace lockstep::forensics
