#include "trace/checkpoints.h"

#include <algorithm>
#include <string>

#include <fmt/ranges.h>
#include <fnmatch.h>

#include "lockstep/detail/checkpoints.h"

namespace lockstep::trace {
namespace {

// What a set is chosen from.
struct Candidate {
  std::string_view name;
  bool checkpoint = true;  // not an inner value
};

// The sets that have names; globs are matched against names, inner values included.
bool in_set(const Candidate& value, const std::string& set) {
  if (std::ranges::find(detail::kCheckpointSets, set) == std::end(detail::kCheckpointSets))
    return glob_matches(set, value.name);
  if (const detail::CheckpointRow* row = detail::find_checkpoint(value.name))
    return detail::has_word(row->sets, set);
  // An engine's own name says nothing of its place: what it recorded counts as the result of an op.
  return value.checkpoint && (set == "ops" || set == "all");
}

// Which candidates a set has.
Result<std::vector<bool>> choose(const std::vector<Candidate>& candidates, std::string_view set) {
  std::vector<bool> chosen(candidates.size());
  while (true) {
    const size_t comma = set.find(',');
    const std::string part(set.substr(0, comma));
    bool any = false;
    for (size_t i = 0; i < candidates.size(); ++i)
      if (in_set(candidates[i], part)) any = chosen[i] = true;
    if (!any)
      return error(
          "no checkpoint matches '{}'; sets are {}; names are such as embedding, blk.0.q, "
          "blk.*.ffn_out, logits",
          part, fmt::join(checkpoint_sets(), ", "));
    if (comma == std::string_view::npos) return chosen;
    set.remove_prefix(comma + 1);
  }
}

}  // namespace

std::span<const std::string_view> checkpoint_sets() {
  return detail::kCheckpointSets;
}

bool in_checkpoints(std::string_view set, std::string_view name) {
  const size_t comma = set.find(',');
  if (comma != std::string_view::npos)
    return in_checkpoints(set.substr(0, comma), name) ||
           in_checkpoints(set.substr(comma + 1), name);
  return in_set({name}, std::string(set));
}

bool glob_matches(std::string_view glob, std::string_view name) {
  return fnmatch(std::string(glob).c_str(), std::string(name).c_str(), 0) == 0;
}

Result<std::vector<op::ValueId>> select_checkpoints(const op::Program& program,
                                                    std::string_view set) {
  std::vector<Candidate> candidates;
  for (const op::Value& value : program.values)
    candidates.push_back({value.name, value.checkpoint});
  LS_TRY(const std::vector<bool> chosen, choose(candidates, set));
  std::vector<op::ValueId> ids;
  for (size_t i = 0; i < chosen.size(); ++i)
    if (chosen[i]) ids.push_back(static_cast<op::ValueId>(i));
  return ids;
}

Result<std::vector<std::string>> select_names(const std::vector<std::string>& names,
                                              std::string_view set) {
  std::vector<Candidate> candidates;
  for (const std::string& name : names) candidates.push_back({name});
  LS_TRY(const std::vector<bool> chosen, choose(candidates, set));
  std::vector<std::string> selected;
  for (size_t i = 0; i < chosen.size(); ++i)
    if (chosen[i]) selected.push_back(names[i]);
  return selected;
}

}  // namespace lockstep::trace
