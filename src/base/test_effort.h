// Test-only: how much of a long test runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>

namespace lockstep {

// All of it: `make test-slow` sets LOCKSTEP_SLOW.
inline bool runs_slow_tests() {
  return std::getenv("LOCKSTEP_SLOW") != nullptr;
}

// Of so many random rounds, a tenth under sanitizers: these look at the code that runs, and all
// rounds run the same.
inline int rounds(int all) {
#ifdef LOCKSTEP_SANITIZED
  return std::max(1, all / 10);
#else
  return all;
#endif
}

// Of many cases, whether this one is taken: a third under sanitizers, others in each run. All of
// them by `make test-slow`.
inline bool takes([[maybe_unused]] size_t number) {
#ifdef LOCKSTEP_SANITIZED
  static const size_t first = std::random_device{}() % 3;
  return runs_slow_tests() || number % 3 == first;
#else
  return true;
#endif
}

// Searches among many hypotheses are right nearly always, not always. Tests that hold them to it
// take the same numbers each time, or fresh ones where that is asked for: LOCKSTEP_FRESH=1, or the
// seed that a failure tells.
inline uint64_t search_seed() {
  const char* const fresh = std::getenv("LOCKSTEP_FRESH");
  if (fresh == nullptr) return 20'261;
  const uint64_t seed = std::strtoull(fresh, nullptr, 10);
  return seed > 1 ? seed : std::random_device{}();
}

}  // namespace lockstep
