// Which format each tensor should have, so that a model of a given size costs the least.
//
// Costs of tensors are taken to add up, and to grow with the square of the error of the weights.
// So what was measured with one format tells what another would cost: estimated, and cheap.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "quality/quality.h"

namespace lockstep::quality {

struct Candidate {
  const quant::FormatInfo* format = nullptr;
  int64_t bytes = 0;
  double kl = 0;  // mean divergence that the tensor alone causes in this format
};

struct Item {
  std::string name;
  std::vector<Candidate> candidates;
};

// Which candidate of each item, so that all together have no more bytes and nearly the least
// divergence that is possible. Error where even the smallest have more.
Result<std::vector<size_t>> choose_candidates(const std::vector<Item>& items, int64_t bytes);

// `windows` are the sample that the ranking was measured on.
Result<Proposal> propose(const model::Model& reference, const model::Model& suspect,
                         const Ranking& ranking, const std::vector<Window>& windows,
                         const Setting& setting, int64_t bytes);

// As `quantize --recipe` reads it.
std::string recipe_text(const Proposal& proposal, const std::string& reference);

// The divergences that single tensors of `other` cause in the reference; the programs have the same
// shape.
Result<std::vector<Interval>> costs_alone(const op::Program& reference, const op::Program& other,
                                          const std::vector<std::string>& names,
                                          const std::vector<Window>& windows,
                                          const Setting& setting);

}  // namespace lockstep::quality
