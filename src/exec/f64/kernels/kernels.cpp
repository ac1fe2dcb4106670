#include "exec/f64/kernels/kernels.h"

#include <algorithm>

namespace lockstep::exec::f64 {

extern const Kernels kPortable;
#if defined(__x86_64__) && !defined(LOCKSTEP_PORTABLE_KERNELS)
extern const Kernels kAvx512, kAvx2;
#endif

namespace {
constexpr const Kernels* kAll[] = {
#if defined(__x86_64__) && !defined(LOCKSTEP_PORTABLE_KERNELS)
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
