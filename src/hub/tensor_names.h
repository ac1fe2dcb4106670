// From the name of a tensor on the hub to that of a GGUF file. Within this folder.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hub/config.h"

namespace lockstep::hub {

struct Place {
  std::string name;  // "blk.3.attn_q.weight"; empty: no part of the forward pass
  int64_t layer = -1;
  Change change = Change::kNone;
  // Of one for each head or each expert, which a GGUF file has in one: which one it is.
  int64_t head = -1;
  int64_t expert = -1;
};

// Two where a tensor becomes two; none where the family has no such tensor.
std::vector<Place> places_of(const Config& config, std::string_view name);

}  // namespace lockstep::hub
