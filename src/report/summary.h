// What every report says, before it is put into its form.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/report.h"

namespace lockstep::report {

// "0", "0.031", "123", "3.1e-07", "inf".
std::string short_number(double value);
std::string percent(double share);  // "100%", "99.98%"; never rounded up to 100

// An own error beside the bound that it was judged by: the row's root mean square, or one element.
struct BoundedError {
  enum class Measure { kRow, kElement, kNonFinite } measure = Measure::kRow;
  double error = 0;
  double bound = 0;
};
BoundedError bounded(const parity::OwnError& own);
std::string_view name(BoundedError::Measure measure);

// "Not in parity: the suspect is wrong at blk.1.ffn_act, position 3".
std::string headline(const parity::Comparison& comparison);
// The evidence of the headline, a sentence or two; empty where there is nothing to add.
std::string evidence(const parity::Comparison& comparison, const Subject& subject);

// A sentence for each cause that was found, with what to look at in the engine.
std::vector<std::string> causes(const Subject& subject);

// Where each side ran a file of its own: what the difference comes from. Empty elsewhere.
std::vector<std::string> explanation_sentences(const parity::Comparison& comparison);
// Tensors by what their difference does to what they compute, the most first.
std::vector<const parity::ExplainedValue*> explained_tensors(const parity::Comparison& comparison);
// "ffn_down.weight (F16, Q4_K)", the tensors of a value.
std::string tensor_names(const parity::ExplainedValue& value);
std::string tensor_formats(const parity::ExplainedValue& value);

std::string token_sentence(const TokenPair& pair);
std::string fork_sentence(const parity::Comparison& comparison);  // where there is a fork
// Whether all positions that were compared were replayed too.
bool all_judged(const parity::Comparison& comparison);

struct Fact {
  std::string label;
  std::string text;
};
std::vector<Fact> facts(const parity::Comparison& comparison, const Subject& subject);

// The stations of a forward pass that were compared: embedding, layer outputs, final_norm, logits.
std::vector<const parity::CheckpointResult*> stations(const parity::Comparison& comparison);

// Checkpoints that are not exact, the worst first, by what the verdict is about.
std::vector<const parity::CheckpointResult*> worst(const parity::Comparison& comparison,
                                                   size_t most);
inline constexpr size_t kWorst = 10;  // as many as texts list

// Numbers in rising order, as ranges from first to last.
std::vector<std::pair<int64_t, int64_t>> ranges_of(std::span<const int64_t> numbers);

// Error over bound of the side that is worse; 0 where neither was judged, infinity for a NaN.
double worst_ratio(const parity::CheckpointResult& result);

// "blk.3.q" as text that XML and HTML accept, whatever it holds.
std::string markup(std::string_view text);

// Text that no renderer takes for markup, and that people can still read: what Markdown gives a
// meaning has a backslash before it, and HTML's signs, bars and backticks, which some renderers
// take even so, are entities. Nothing here begins a line, so that signs which mean something only
// there stay as they are.
std::string markdown_text(std::string_view text);

}  // namespace lockstep::report
