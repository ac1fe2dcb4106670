#include "exec/f64/kernels/kernels.h"

#include <algorithm>

namespace lockstep::exec::f64 {

extern const Kernels kPortable;
#ifdef __x86_64__
extern const Kernels kAvx512, kAvx2;
#endif

namespace {
constexpr const Kernels* kAll[] = {
#ifdef __x86_64__
    &kAvx512, &kAvx2,
#endif
    &kPortable};
}  // namespace

std::span<const Kernels* const> all_kernels() {
  return kAll;
}

const Kernels& kernels() {
  static const Kernels& best =
      **std::ranges::find_if(kAll, [](const Kernels* each) { return each->supported(); });
  return best;
}

}  // namespace lockstep::exec::f64
