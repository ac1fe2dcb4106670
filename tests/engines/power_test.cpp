// How small a mistake the judge still finds in a single-precision engine with `ops` recorded.
// LOCKSTEP_TABLE=1 prints what docs/numerics.md shows.
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lab.h"

namespace lockstep::engines {
namespace {

struct Mistake {
  std::string name;
  std::string value;  // in layer 1
  std::function<void(op::What&, double change)> make;
  double found_from;  // a relative change that must be found
};

std::vector<Mistake> mistakes() {
  return {
      {"rope base", "q_rope", [](op::What& w, double c) { std::get<op::Rope>(w).base *= 1 + c; },
       1e-4},
      {"rope position scale", "q_rope",
       [](op::What& w, double c) { std::get<op::Rope>(w).position_scale *= 1 + c; }, 1e-5},
      {"attention scale", "attn_mix",
       [](op::What& w, double c) { std::get<op::Attention>(w).scale *= 1 + c; }, 1e-4},
      {"norm epsilon", "attn_norm",
       [](op::What& w, double c) { std::get<op::Norm>(w).epsilon *= 1 + c; }, 10},
  };
}

void measure(const std::string& subject, Lab lab) {
  Job job;
  job.prompt = 8;
  job.tokens = random_tokens(77, 12, lab.model().config().vocabulary);
  const op::Program program = lab.program(job);
  const auto honest = lab.record(job, {.order = parity::Order::kPairwise}, program);
  for (const Mistake& mistake : mistakes()) {
    SCOPED_TRACE(fmt::format("{}, {}", subject, mistake.name));
    const auto finds = [&](double change) {
      Patient patient(program);
      op::Op* op = &patient.altered.op(*patient.find(mistake.value, 1));
      mistake.make(op->what, change);
      const auto suspect = lab.record(job, {.order = parity::Order::kLanes8}, patient);
      const auto found = lab.compare(honest, suspect);
      if (found.first_defect) {
        EXPECT_EQ(found.first_defect->checkpoint, "blk.1." + mistake.value);
      }
      return found.first_defect.has_value();
    };
    EXPECT_TRUE(finds(mistake.found_from));
    if (std::getenv("LOCKSTEP_TABLE") == nullptr) continue;
    double smallest = mistake.found_from;
    while (smallest > 1e-9 && finds(smallest / 2)) smallest /= 2;
    fmt::print("| {} | {} | {:.1g} |\n", subject, mistake.name, smallest);
  }
}

TEST(Power, SmallModel) {
  measure("forged, width 64", Lab::forged({.layers = 2, .type = "f32", .seed = 8}));
}

TEST(Power, ShippedModel) {
  measure("haiku-llama-q4_k_m", Lab::shipped("haiku-llama-q4_k_m.gguf"));
}

}  // namespace
}  // namespace lockstep::engines
