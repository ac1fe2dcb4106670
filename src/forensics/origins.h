// What the checkpoints of a model are computed from.
#pragma once

#include <string_view>
#include <vector>

namespace lockstep::forensics {

struct Origin {
  std::string_view leaf;  // last part of the checkpoint's name
  // Zero where all of one group are. `stream` is the output of the layer before, or the embedding.
  std::vector<std::vector<std::string_view>> groups;
};

// "q" of "blk.3.q".
std::string_view leaf_of(std::string_view name);

// nullptr for names that are none of ours.
const Origin* origin_of(std::string_view name);

}  // namespace lockstep::forensics
