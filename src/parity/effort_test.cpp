#include "parity/effort.h"

#include "parity/test_judging.h"

namespace lockstep::parity {
namespace {

class Effort : public JudgingTest {};

// Whatever positions are judged: attention reads the keys and values of those before, and whether
// another trace has the same numbers is asked of all.
TEST_F(Effort, AllPositionsOfWhatAnOpReadsAreCounted) {
  const op::Program program = traced.model().program(std::ssize(kTokens)).value();
  const auto id_of = [&](const std::string& name) {
    for (size_t id = 0; id < program.values.size(); ++id)
      if (program.values[id].name == name) return static_cast<op::ValueId>(id);
    throw std::runtime_error("no value " + name);
  };
  const auto numbers = [&](std::initializer_list<const char*> names) {
    size_t count = 0;
    for (const char* name : names) count += original.values.at(name).numbers.size();
    return count * sizeof(double);
  };
  const trace::Trace all = traced.write(original);
  EXPECT_EQ(bytes_of(program, all, id_of("blk.1.attn_mix")),
            numbers({"blk.1.q_rope", "blk.1.k_rope", "blk.1.v", "blk.1.attn_mix",
                     "blk.1.attn_scores", "blk.1.attn_probs"}));
  // A product reads its weight too, and what it lacks is computed from what lies before.
  const auto weight = [&](const char* name) {
    return traced.model().file().tensor(name)->data.size();
  };
  EXPECT_EQ(bytes_of(program, all, id_of("blk.0.ffn_up")),
            numbers({"blk.0.ffn_norm", "blk.0.ffn_up"}) + weight("blk.0.ffn_up.weight"));
  const trace::Trace fewer =
      traced.write(only(original, [](const std::string& name) { return name != "blk.0.ffn_up"; }));
  EXPECT_EQ(bytes_of(program, fewer, id_of("blk.0.ffn_act")),
            numbers({"blk.0.ffn_norm", "blk.0.ffn_gate", "blk.0.ffn_act"}) +
                weight("blk.0.ffn_up.weight"));
}

}  // namespace
}  // namespace lockstep::parity
