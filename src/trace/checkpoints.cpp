#include "trace/checkpoints.h"

#include <string>

#include <fnmatch.h>

namespace lockstep::trace {
namespace {

bool is_scores(const op::Value& value) {
  return value.shape == op::Value::Shape::kScores;
}

// The sets that have names; globs are matched against names, inner values included.
bool in_set(const op::Value& value, const std::string& set) {
  if (set == "all") return value.checkpoint;
  if (set == "ops") return value.checkpoint && !is_scores(value);
  if (set == "logits") return value.name == "logits";
  if (set == "layers")
    return value.name == "embedding" || value.name == "final_norm" || value.name == "logits" ||
           glob_matches("blk.*.output", value.name);
  return glob_matches(set, value.name);
}

}  // namespace

bool in_checkpoints(std::string_view set, std::string_view name) {
  const size_t comma = set.find(',');
  if (comma != std::string_view::npos)
    return in_checkpoints(set.substr(0, comma), name) ||
           in_checkpoints(set.substr(comma + 1), name);
  if (set == "all") return true;
  if (set == "ops") return !name.ends_with(".attn_scores") && !name.ends_with(".attn_probs");
  if (set == "layers")
    return name == "embedding" || name == "final_norm" || name == "logits" ||
           glob_matches("blk.*.output", name);
  return glob_matches(set, name);
}

bool glob_matches(std::string_view glob, std::string_view name) {
  return fnmatch(std::string(glob).c_str(), std::string(name).c_str(), 0) == 0;
}

Result<std::vector<op::ValueId>> select_checkpoints(const op::Program& program,
                                                    std::string_view set) {
  std::vector<bool> chosen(program.values.size());
  while (true) {
    const size_t comma = set.find(',');
    const std::string part(set.substr(0, comma));
    bool any = false;
    for (size_t i = 0; i < program.values.size(); ++i)
      if (in_set(program.values[i], part)) any = chosen[i] = true;
    if (!any)
      return error(
          "no checkpoint matches '{}'; sets are logits, layers, ops, all; names are such as "
          "embedding, blk.0.q, blk.*.ffn_out, logits",
          part);
    if (comma == std::string_view::npos) break;
    set.remove_prefix(comma + 1);
  }
  std::vector<op::ValueId> ids;
  for (size_t i = 0; i < chosen.size(); ++i)
    if (chosen[i]) ids.push_back(static_cast<op::ValueId>(i));
  return ids;
}

}  // namespace lockstep::trace
