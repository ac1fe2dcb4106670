// Work that is done in parts, on machines that know nothing of each other.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep {

struct Part {
  int64_t index = 1;  // from 1
  int64_t of = 1;
  bool operator==(const Part&) const = default;
};

// By item: the part, from 1, that it belongs to. Each part gets neighbours with about the same
// work; where there are as many parts as items, one item each.
std::vector<int64_t> deal(std::span<const double> work, int64_t parts);

// An error unless the files `sources` hold each part of the same number of parts once.
// `partial`: some may be missing.
Result<void> check_parts(std::span<const Part> parts, std::span<const std::string> sources,
                         bool partial = false);

}  // namespace lockstep
