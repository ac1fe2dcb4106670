// The judge: two traces side by side, and what is to be said of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/model.h"
#include "parity/align.h"
#include "parity/choices.h"
#include "parity/derived_choices.h"
#include "parity/explanation.h"
#include "parity/metrics.h"
#include "parity/prompts.h"
#include "parity/replay.h"
#include "parity/rows.h"
#include "trace/trace.h"

namespace lockstep::parity {

enum class Verdict {
  kExact,     // the same bits
  kRounding,  // the difference is what rounding of this op explains
  kDrift,     // this op's own error is rounding; the rest was inherited
  kClose,     // not judged; no more apart than the declared precision may explain
  kDefect,    // this op's own error is more than rounding explains
  kGarbage,   // numbers that no computation from its inputs gives
  kDiffers,   // not judged, and further apart than the declared precision may explain
  kMissing,   // one side does not have it
};
std::string_view name(Verdict verdict);

std::string_view name(Side side);

// One side's own errors at a checkpoint.
struct SideJudgement {
  int64_t judged = 0;                    // positions
  int64_t judged_shared = 0;             // of those, positions that were compared
  std::vector<int64_t> defects;          // of those that were judged: positions
  std::optional<OwnError> worst;         // by ratio
  std::optional<OwnError> first_defect;  // by position
  std::vector<RowError> rows;            // all, where CompareOptions::rows asks for them
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
  bool known = true;       // false: no checkpoint's name, so that nobody can judge it
  double share = 1;        // of a row's numbers that are there to be compared, where it is cut off
  std::optional<Beyond> first_beyond;
  SideJudgement reference;
  SideJudgement suspect;
  double seconds = 0;  // that the replay took
  RowsOfCheckpoint rows;
};

// Which elements are wrong, over all rows of a checkpoint that were judged.
struct ErrorShape {
  int64_t elements = 0;              // in a row
  int64_t wrong_elements = 0;        // in the first wrong row
  std::vector<int64_t> columns;      // wrong ones of the first wrong row; of scores: keys
  bool same_everywhere = false;      // all wrong rows have the same ones
  int64_t heads = 0;                 // that the row has; 0: it has none
  std::vector<int64_t> wrong_heads;  // over all rows
  int64_t rows = 0;                  // judged
  std::vector<int64_t> positions;    // of the wrong ones
};

// Where nothing could be replayed it is the first difference that is larger than the declared
// precision explains: then the side is undetermined, and `own` holds the difference.
struct Defect {
  std::string checkpoint;
  int64_t layer = -1;
  int64_t position = 0;
  Side side = Side::kUndetermined;
  OwnError own;
  // Set where checkpoints before this one were not recorded: the mistake lies between `after`
  // (empty: the tokens) and here.
  std::optional<std::string> after = {};
  std::optional<ErrorShape> shape = {};  // where it was judged
  std::optional<Choice> choice = {};  // the mistake is this choice; `checkpoint` is then "choice"
  int64_t followers =
      0;  // later checkpoints that differ, or are as wrong, only by what they inherit
};
inline constexpr const char* kChoice = "choice";

// The choice of a token where the two sides part.
struct Fork {
  int64_t position = 0;  // whose logits chose
  int32_t reference_token = 0;
  int32_t suspect_token = 0;
  double margin = 0;      // between the two tokens, in the reference
  double difference = 0;  // by which the sides differ on that
  bool tie = false;       // the margin is within the difference that rounding and drift explain
  bool sampled = false;   // the two sampled differently, or by chance: no sign of a mistake
  std::optional<Choice> reference;  // against its own logits, where they were recorded
  std::optional<Choice> suspect;
};

struct ChoiceStatistics {
  int64_t compared = 0;     // positions with whole logits on both sides
  int64_t same = 0;         // with the same largest logit
  int64_t divergences = 0;  // of those, with numbers that have a divergence: no NaN
  double sum_kl = 0;
  double worst_kl = 0;

  double mean_kl() const { return divergences > 0 ? sum_kl / static_cast<double>(divergences) : 0; }
};

// Names of one side that are no checkpoints.
struct UnknownNames {
  struct Name {
    std::string name;
    std::string nearest;  // checkpoint; empty: none is like it
  };
  std::vector<Name> recorded;             // in the trace
  std::vector<std::string> not_recorded;  // that its manifest says there are besides
};

// Parity needs logits on both sides wherever a token was sampled from them; where nothing was
// sampled, at nine tenths of the positions.
struct Evidence {
  bool asked = true;     // false: the user chose checkpoints without logits
  bool sampled = false;  // the positions needed are those that were sampled from
  int64_t needed = 0;    // positions
  int64_t found = 0;     // of those, with logits on both sides
  std::string missing;   // what is missing, a clause; empty: nothing
  bool enough() const { return missing.empty(); }
};

// What was judged of one side.
struct SideScopeSummary {
  bool judged = false;        // it was replayed
  int64_t positions = 0;      // replayed, on its own tokens
  int64_t beyond_shared = 0;  // of those, after a fork or beyond the other's end
  std::string assumed;        // its context, found out since it does not say
  std::string precision;      // the same of its arithmetic, where f32 does not fit
  SideChoices choices;
  DerivedChoices experts;
};

struct Comparison {
  bool parity = false;
  std::string verdict;  // the worst of all, or inconclusive, fork, different prompts, ...
  std::optional<Defect> first_defect;
  int64_t defects = 0;  // checkpoints with one
  double coverage = 0;  // rows compared, of those that either side has
  double judged = 0;    // rows replayed on both sides, of those compared
  int64_t positions_compared = 0;
  int64_t positions_judged = 0;   // of those; a sample adds to them the worst of each checkpoint
  bool positions_chosen = false;  // by the user
  TokenAgreement tokens;
  std::optional<PromptDifference> prompts;  // where they differ
  Evidence evidence;
  SideScopeSummary reference;
  SideScopeSummary suspect;
  std::string unproved;                // why nothing was replayed, a clause; empty: something was
  std::string doubt;                   // why a side that fits is not proved right, a clause
  std::string other_settings;          // where the forward passes are not the same: how, a clause
  std::string other_models;            // where the sides ran different files: which, a clause
  std::optional<double> min_coverage;  // that was asked for and not reached
  double seconds = 0;
  std::optional<Fork> fork;
  ChoiceStatistics choices;
  std::vector<CheckpointResult> checkpoints;  // in order of execution
  std::optional<Explanation> explanation;     // where each side has a file of its own
  UnknownNames unknown_in_reference;          // not part of the coverage
  UnknownNames unknown_in_suspect;
  std::vector<std::string> notes;
  // Where CompareOptions::rows asks for them:
  std::vector<PositionLogits> logits;
  std::vector<OpenedRow> opened;  // the worst first
  int64_t not_opened = 0;         // rows that are wrong and that were left out
  SideTokens reference_tokens;
  SideTokens suspect_tokens;
};

struct Findings;  // part.h

struct CompareOptions {
  std::string checkpoints = "all";  // set, names or globs (trace/checkpoints.h)
  std::vector<int64_t> positions;   // to replay; empty: all
  double budget = 0;                // seconds for which positions are sampled; 0: no limit
  double min_coverage = 0;          // less is inconclusive
  TokenKnowledge tokens;            // of the model's tokenizer
  std::string no_model = "no model file was given (-m)";  // why there is none, a clause
  int threads = 0;                                        // 0: all cores
  // Of the suspect where it ran another file than the reference; null: it did not.
  const model::Model* suspect_model = nullptr;
  std::shared_ptr<Products> device = {};  // what multiplies; null: the CPU
  bool rows = false;                      // keep what there is to say of single rows
  int64_t opened_bytes = 0;               // of rows that are opened, about
  // Of all parts of this comparison: their work is not done again. Null: there are none.
  const std::vector<Findings>* parts = nullptr;

  Products& products() const { return device != nullptr ? *device : exec::f64::cpu_products(); }
};

struct Scope;  // scope.h

// `model` may be null: then nothing is proved, and differences are only measured.
// `scope` gets what was judged by what, for those who look further; it refers to the traces.
Result<Comparison> compare(const trace::Trace& reference, const trace::Trace& suspect,
                           const model::Model* model, const CompareOptions& options,
                           Scope* scope = nullptr);

}  // namespace lockstep::parity
