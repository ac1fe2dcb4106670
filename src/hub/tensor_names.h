// From the name of a tensor on the hub to that of a GGUF file. Within this folder.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "hub/families.h"

namespace lockstep::hub {

struct Place {
  std::string name;  // "blk.3.attn_q.weight"; empty: no part of the forward pass
  int64_t layer = -1;
  Change change = Change::kNone;
  int64_t head = -1;  // of a norm for each head: which one
};

// Nothing where the family has no such tensor.
std::optional<Place> place_of(const Family& family, std::string_view name);

}  // namespace lockstep::hub
