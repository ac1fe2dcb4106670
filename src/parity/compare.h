// The judge: two traces side by side, and what is to be said of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/model.h"
#include "parity/align.h"
#include "parity/metrics.h"
#include "parity/replay.h"
#include "trace/trace.h"

namespace lockstep::parity {

enum class Verdict {
  kExact,     // the same bits
  kRounding,  // the difference is what rounding of this op explains
  kDrift,     // this op's own error is rounding; the rest was inherited
  kDefect,    // this op's own error is more than rounding explains
  kGarbage,   // numbers that no computation from its inputs gives
  kDiffers,   // not judged: no model file, or the inputs were not recorded
  kMissing,   // one side does not have it
};
std::string_view name(Verdict verdict);

enum class Side { kReference, kSuspect, kBoth, kUndetermined };
std::string_view name(Side side);

// One side's own errors at a checkpoint.
struct SideJudgement {
  int64_t judged = 0;                    // positions
  std::optional<OwnError> worst;         // by ratio
  std::optional<OwnError> first_defect;  // by position
};

// A row whose difference is larger than the declared precision explains.
struct Beyond {
  int64_t position = 0;
  Metrics metrics;
};

struct CheckpointResult {
  std::string name;
  int64_t layer = -1;
  Verdict verdict = Verdict::kMissing;
  int64_t positions = 0;       // compared
  Metrics metrics;             // over all of them
  int64_t worst_position = 0;  // by relative L2
  double worst_relative_l2 = 0;
  bool in_reference = false;
  bool in_suspect = false;
  bool comparable = true;  // false: of another width on the two sides
  std::optional<Beyond> first_beyond;
  SideJudgement reference;
  SideJudgement suspect;
};

// Where nothing could be replayed it is the first difference that is larger than the declared
// precision explains: then the side is undetermined, and `own` holds the difference.
struct Defect {
  std::string checkpoint;
  int64_t layer = -1;
  int64_t position = 0;
  Side side = Side::kUndetermined;
  OwnError own;
};

// The choice of a token where the two sides part.
struct Fork {
  int64_t position = 0;  // whose logits chose
  int32_t reference_token = 0;
  int32_t suspect_token = 0;
  double margin = 0;      // between the two tokens, in the reference
  double difference = 0;  // by which the sides differ on that
  bool tie = false;       // the margin is within the difference that rounding and drift explain
};

struct ChoiceStatistics {
  int64_t compared = 0;  // positions with logits on both sides
  int64_t same = 0;      // with the same largest logit
  double mean_kl = 0;
  double worst_kl = 0;
};

// Names of one side that are no checkpoints.
struct UnknownNames {
  std::vector<std::string> recorded;      // in the trace
  std::vector<std::string> not_recorded;  // that its manifest says there are besides
};

struct Comparison {
  bool parity = false;
  std::string verdict;  // the worst of all, or why there was no comparison
  std::optional<Defect> first_defect;
  int64_t defects = 0;  // checkpoints with one
  double coverage = 0;  // rows compared, of those that either side has
  double judged = 0;    // rows replayed on both sides, of those compared
  int64_t positions_compared = 0;
  int64_t positions_judged = 0;   // of those; a sample adds to them the worst of each checkpoint
  bool positions_chosen = false;  // by the user
  TokenAgreement tokens;
  std::optional<Fork> fork;
  ChoiceStatistics choices;
  std::vector<CheckpointResult> checkpoints;  // in order of execution
  UnknownNames unknown_in_reference;          // not part of the coverage
  UnknownNames unknown_in_suspect;
  std::vector<std::string> notes;
};

struct CompareOptions {
  std::string checkpoints = "all";  // set, names or globs (trace/checkpoints.h)
  std::vector<int64_t> positions;   // to replay; empty: all where cheap, else a sample
  int threads = 0;                  // 0: all cores
};

// `model` may be null: then nothing is proved, and differences are only measured.
Result<Comparison> compare(const trace::Trace& reference, const trace::Trace& suspect,
                           const model::Model* model, const CompareOptions& options);

}  // namespace lockstep::parity
