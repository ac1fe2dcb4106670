// Models for the tests of the fast executors.
#pragma once

#include <string>
#include <vector>

#include "base/random.h"
#include "exec/executor.h"
#include "forge/forge.h"
#include "model/archs.h"

namespace lockstep {

inline constexpr const char* kTypes[] = {"f32",  "f16",    "bf16",   "q4_0", "q4_1", "q5_0",
                                         "q5_1", "q8_0",   "q2_k",   "q3_k", "q4_k", "q5_k",
                                         "q6_k", "iq4_nl", "iq4_xs", "mxfp4"};

// Formats belong to products, which are the same ops in every architecture: one has them all,
// others have floats and some of the rest.
inline std::vector<std::string> some_types(std::string_view arch, Random& random) {
  std::vector<std::string> out(std::begin(kTypes), std::end(kTypes));
  constexpr size_t kFloats = 3, kOthers = 2;
  while (arch != "llama" && out.size() > kFloats + kOthers)
    out.erase(out.begin() + static_cast<std::ptrdiff_t>(kFloats) +
              random.below(std::ssize(out) - static_cast<std::ptrdiff_t>(kFloats)));
  return out;
}

inline std::vector<exec::TokenId> random_tokens(Random& random, int64_t vocabulary, int64_t count) {
  std::vector<exec::TokenId> out;
  for (int64_t i = 0; i < count; ++i)
    out.push_back(static_cast<exec::TokenId>(random.below(vocabulary)));
  return out;
}

inline forge::Spec small_spec(std::string_view arch, const std::string& type, uint64_t seed) {
  forge::Spec spec;
  spec.arch = arch;
  spec.width = 256;
  spec.heads = 8;
  spec.kv_heads = arch == "gpt2" ? 8 : 2;
  spec.feed_forward = 512;
  spec.vocabulary = 131;
  spec.window = arch == "phi3" ? 9 : 0;
  // All experts: another choice, which rounding may lead to, would be no small difference. Choices
  // have op cases of their own.
  if (model::find_architecture(arch)->experts) spec.experts = spec.experts_used = 3;
  // Rows of whole blocks for every weight, that of keys, which is transposed, among them.
  if (model::find_architecture(arch)->latent) {
    spec.head_size = 96;
    spec.rope_dims = 32;
    spec.query_latent = 256;
  }
  spec.type = type;
  spec.pure = true;
  spec.seed = seed;
  return spec;
}

}  // namespace lockstep
