#include "exec/cpu/kernels/targets.h"

#include <cstdlib>

#ifdef __x86_64__
#include <cpuid.h>
#endif

namespace lockstep::exec::cpu {

extern const Kernels kPortable;
#if defined(__x86_64__) && !defined(LOCKSTEP_PORTABLE_KERNELS)
extern const Kernels kAvx512Vnni, kAvx512, kAvx2Vnni, kAvx2;
#endif

namespace {

#if defined(__x86_64__) && !defined(LOCKSTEP_PORTABLE_KERNELS)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");  // F16C is older
}

[[maybe_unused]] bool has_avx2_vnni() {  // compilers do not know this one by name everywhere
  unsigned a = 0, b = 0, c = 0, d = 0;
  return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & (1u << 4)) != 0;
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

bool has_avx512_vnni() {
  return has_avx512() && __builtin_cpu_supports("avx512vnni");
}
#endif

constexpr Target kTargets[] = {
#if defined(__x86_64__) && !defined(LOCKSTEP_PORTABLE_KERNELS)
    {"avx512vnni", "AVX-512 (F, BW, VL, DQ) with VNNI", has_avx512_vnni, &kAvx512Vnni},
#ifndef LOCKSTEP_SANITIZED  // these are not compiled there
    {"avx512", "AVX-512 (F, BW, VL, DQ)", has_avx512, &kAvx512},
    {"avx2vnni", "AVX2, FMA, F16C and AVX-VNNI", has_avx2_vnni, &kAvx2Vnni},
#endif
    {"avx2", "AVX2, FMA and F16C", has_avx2, &kAvx2},
#endif
    {"portable", "nothing special", [] { return true; }, &kPortable},
};

}  // namespace

std::span<const Target> targets() {
  return kTargets;
}

Result<const Target*> choose_target() {
  const char* wanted = std::getenv("LOCKSTEP_CPU_TARGET");
  if (wanted == nullptr || *wanted == '\0') {
    for (const Target& target : kTargets)
      if (target.supported()) return &target;
  }
  std::string known;
  for (const Target& target : kTargets) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", target.name);
    if (target.name != wanted) continue;
    if (!target.supported())
      return error("LOCKSTEP_CPU_TARGET={}: this machine lacks what it needs: {}", wanted,
                   target.needs);
    return &target;
  }
  return error("LOCKSTEP_CPU_TARGET: no target '{}'; known: {}", wanted, known);
}

}  // namespace lockstep::exec::cpu
