#include "op/op.h"

namespace lockstep::op {

std::string_view kind_name(const What& what) {
  constexpr std::string_view kNames[] = {"Embed",     "Norm",     "Linear", "Slice", "Rope",
                                         "Attention", "Activate", "Add",    "Scale"};
  static_assert(std::size(kNames) == std::variant_size_v<What>);
  return kNames[what.index()];
}

}  // namespace lockstep::op
