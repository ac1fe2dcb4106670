#include "op/observer.h"

#include <algorithm>

namespace lockstep::op {

void Observers::begin_step(int64_t first_position, int64_t tokens) {
  for (Observer* observer : list_) observer->begin_step(first_position, tokens);
}

bool Observers::wants(ValueId id) const {
  return std::ranges::any_of(list_, [&](const Observer* observer) { return observer->wants(id); });
}

void Observers::see(ValueId id, const View& view) {
  for (Observer* observer : list_)
    if (observer->wants(id)) observer->see(id, view);
}

void Observers::end_step(bool whole) {
  for (Observer* observer : list_) observer->end_step(whole);
}

}  // namespace lockstep::op
