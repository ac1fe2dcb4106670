// What garbage can be: a table of small detectors, each of which looks at one row and says how sure
// it is, about which numbers, and why.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "forensics/row_stats.h"
#include "forensics/source.h"

namespace lockstep::forensics {

enum class Kind {
  kFreeList,
  kAddress,
  kDevicePointer,
  kPoison,
  kHalfPairs,
  kBfloatPairs,
  kDouble,
  kInt8,
  kInt16,
  kInt32,
  kText,
  kByteSwapped,
  kStaleRow,
  kRepeatedRows,
  kZeros,
  kSaturated,
  kOverflow,
  kNoise,
  kNonFinite,
  kUnknown,
  kMassive,      // no garbage: what real models have
  kMasked,       // no garbage: minus infinity on purpose
  kHonestZeros,  // no garbage, as far as one can tell
};

struct KindInfo {
  Kind kind;
  std::string_view name;   // for programs: "free-list"
  std::string_view title;  // for people
  bool garbage;
};
const KindInfo& info(Kind kind);

// A row under examination.
struct Exhibit {
  std::string_view checkpoint;
  int64_t position = 0;
  const Row& row;
  const RowStats& stats;
  double scale = 0;              // median magnitude of the checkpoint's rows
  std::optional<Format> format;  // what its numbers really are, where that is proven
  // By number: whether it cannot be what the model computed, going by its size alone.
  std::vector<uint8_t> odd;
  // The largest finite magnitude at the same position in an earlier checkpoint, and where it is.
  double earlier_largest = 0;
  std::string_view earlier_checkpoint;
  bool earlier_non_finite = false;  // some checkpoint before had NaN or infinities already
  std::string_view earlier_non_finite_checkpoint;
};

struct Match {
  Kind kind = Kind::kUnknown;
  double score = 0;  // 0 to 1
  std::vector<Range> ranges;
  std::string evidence;
  bool inherited = false;  // an earlier checkpoint has it already
};

using Detector = std::optional<Match> (*)(const Exhibit&);
std::span<const Detector> detectors();

// Whether minus infinity, and numbers near 0, are in order at a checkpoint.
bool masks(std::string_view checkpoint);
bool reaches_zero(std::string_view checkpoint);

// Marks the numbers that cannot be.
std::vector<uint8_t> find_odd(std::string_view checkpoint, const Row& row, const RowStats& stats,
                              double scale);

// Binades between the 10th and the 90th percentile of the numbers. Gaussian ones have 4, the
// heaviest tails of models 15, random bits of f32 200.
int spread_of(const Row& row, Range range);
inline constexpr int kAllOver = 40;

// The best explanation for each odd number: detectors are asked until nothing odd is left.
std::vector<Match> explain(Exhibit exhibit);

// Each in a file of its own kind.
std::optional<Match> detect_free_list(const Exhibit& exhibit);
std::optional<Match> detect_addresses(const Exhibit& exhibit);
std::optional<Match> detect_poison(const Exhibit& exhibit);
std::optional<Match> detect_format(const Exhibit& exhibit);
std::optional<Match> detect_text(const Exhibit& exhibit);
std::optional<Match> detect_byte_swapped(const Exhibit& exhibit);
std::optional<Match> detect_saturated(const Exhibit& exhibit);
std::optional<Match> detect_overflow(const Exhibit& exhibit);
std::optional<Match> detect_noise(const Exhibit& exhibit);

}  // namespace lockstep::forensics
