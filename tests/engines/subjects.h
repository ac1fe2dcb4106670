// Test-only: the models that bugs are tried on.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "forge/spec.h"

namespace lockstep::engines {

struct Subject {
  std::string name;
  forge::Spec spec;  // where it is forged
  std::string file;  // where it is shipped
  int bugs = 0;      // that its architecture can have
  // Too small to be seen: "SET: BUG", each followed by a line's end.
  std::string drowned;
};
void PrintTo(const Subject& subject, std::ostream* out);

inline constexpr const char* kThin = "embedding,blk.*.attn_out,blk.*.ffn_*act,final_norm,logits";

std::vector<Subject> subjects();
std::vector<Subject> routed_subjects();  // with experts, sinks, latent attention

// LOCKSTEP_THOROUGH=1 tries every set and engine on the shipped models too, for some minutes.
bool thorough();

}  // namespace lockstep::engines
