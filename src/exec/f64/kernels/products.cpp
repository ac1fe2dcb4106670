#include "exec/f64/kernels/products.h"

#include <algorithm>

namespace lockstep::exec::f64 {

extern const Products kPortable;
#ifdef __x86_64__
extern const Products kAvx512, kAvx2;
#endif

namespace {
constexpr const Products* kAll[] = {
#ifdef __x86_64__
    &kAvx512, &kAvx2,
#endif
    &kPortable};
}  // namespace

std::span<const Products* const> all_products() {
  return kAll;
}

const Products& products() {
  static const Products& best =
      **std::ranges::find_if(kAll, [](const Products* each) { return each->supported(); });
  return best;
}

}  // namespace lockstep::exec::f64
