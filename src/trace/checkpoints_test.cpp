// The sets of checkpoints, for programs and for the names of a trace.
#include "trace/checkpoints.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "lockstep/detail/checkpoints.h"

namespace lockstep::trace {
namespace {

op::Program program_of(const std::vector<std::string>& checkpoints,
                       const std::vector<std::string>& inner) {
  op::Program program;
  for (const std::string& name : checkpoints)
    program.values.push_back({name, 1, op::Value::Shape::kRows, true});
  for (const std::string& name : inner)
    program.values.push_back({name, 1, op::Value::Shape::kRows, false});
  return program;
}

std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const detail::CheckpointRow& row : detail::kCheckpointRows) {
    names.emplace_back(row.name);
    if (const size_t layer = names.back().find('N'); layer != std::string::npos)
      names.back().replace(layer, 1, "41");
  }
  return names;
}

TEST(CheckpointSets, AreThoseOfTheTable) {
  const std::vector<std::string> names = all_names();
  const op::Program program = program_of(names, {"blk.41.qkv", "token_embedding"});
  for (const std::string_view set : checkpoint_sets()) {
    std::vector<std::string> wanted;
    for (size_t i = 0; i < names.size(); ++i)
      if (detail::has_word(detail::kCheckpointRows[i].sets, set)) wanted.push_back(names[i]);
    EXPECT_EQ(select_names(names, set).value(), wanted) << set;
    std::vector<std::string> selected;
    const auto ids = select_checkpoints(program, set).value();
    for (const op::ValueId id : ids) selected.push_back(program.value(id).name);
    EXPECT_EQ(selected, wanted) << set;
    for (const std::string& name : names)
      EXPECT_EQ(in_checkpoints(set, name), std::ranges::count(wanted, name) == 1) << set << name;
  }
  EXPECT_EQ(select_names(names, "layers").value(),
            (std::vector<std::string>{"embedding", "blk.41.ffn_choice", "blk.41.output",
                                      "final_norm", "logits"}));
  EXPECT_EQ(select_names(names, "ops")->size(), names.size() - 2);
}

TEST(CheckpointSets, AnEnginesOwnNamesAreInOpsAndAll) {
  for (const char* name : {"norm-3", "blk.x.output", "model.output", "my.attn_scores", "my.logits"})
    for (const std::string_view set : checkpoint_sets())
      EXPECT_EQ(in_checkpoints(set, name), set == "ops" || set == "all") << set << " " << name;
}

TEST(CheckpointSets, InnerValuesAreTakenByName) {
  const op::Program program = program_of({"embedding", "blk.0.q"}, {"blk.0.qkv"});
  EXPECT_EQ(select_checkpoints(program, "all").value(), (std::vector<op::ValueId>{0, 1}));
  EXPECT_EQ(select_checkpoints(program, "blk.*.qkv,embedding").value(),
            (std::vector<op::ValueId>{0, 2}));
  EXPECT_FALSE(select_checkpoints(program, "logits").ok());
  EXPECT_FALSE(select_checkpoints(program, "all,").ok());
}

}  // namespace
}  // namespace lockstep::trace
