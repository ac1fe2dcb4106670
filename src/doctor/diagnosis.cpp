#include "doctor/diagnosis.h"

#include <algorithm>

namespace lockstep::doctor {

void add_in_order(std::vector<int64_t>& list, int64_t number) {
  const auto at = std::ranges::lower_bound(list, number);
  if (at == list.end() || *at != number) list.insert(at, number);
}

void add_checkpoint(Diagnosis& diagnosis, const parity::CheckpointResult& result,
                    const std::vector<int64_t>& positions) {
  if (diagnosis.checkpoint.empty()) diagnosis.checkpoint = result.name;
  diagnosis.checkpoints.push_back(result.name);
  if (result.layer >= 0) add_in_order(diagnosis.layers, result.layer);
  for (const int64_t position : positions) add_in_order(diagnosis.positions, position);
}

}  // namespace lockstep::doctor
