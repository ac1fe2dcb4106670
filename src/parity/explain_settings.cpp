// Numbers of two forward passes that are not weights and not the same.
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "parity/explain.h"

namespace lockstep::parity {
namespace {

// The numbers of an op that a file decides, besides weights.
std::vector<std::pair<const char*, double>> numbers_of(const op::What& what) {
  if (const auto* norm = std::get_if<op::Norm>(&what))
    return {{"an epsilon", norm->epsilon},
            {"numbers normalized together", static_cast<double>(norm->group)}};
  if (const auto* rope = std::get_if<op::Rope>(&what)) {
    std::vector<std::pair<const char*, double>> out = {
        {"a rope base", rope->base},
        {"a rope scale", rope->position_scale},
        {"rotated numbers in a head", static_cast<double>(rope->dims)},
        {"a pairing of the rope (0: neighbours, 1: halves)",
         rope->pairing == op::Rope::Pairing::kHalves ? 1.0 : 0.0},
        {"a magnitude of the rope", rope->magnitude},
        {"YaRN's original context",
         rope->yarn ? static_cast<double>(rope->yarn->original_context) : 0.0}};
    // Factors are a tensor, of which one number stands for all.
    double factors = 0;
    for (size_t i = 0; i < rope->factors.size(); ++i)
      factors += static_cast<double>(rope->factors[i]) * static_cast<double>(i + 1);
    out.emplace_back("a sum of rope factors", factors);
    return out;
  }
  if (const auto* attention = std::get_if<op::Attention>(&what))
    return {{"an attention scale", attention->scale},
            {"a cap of the scores", attention->soft_cap},
            {"a window", static_cast<double>(attention->window)},
            {"heads of keys and values", static_cast<double>(attention->kv_heads)}};
  if (const auto* scale = std::get_if<op::Scale>(&what)) return {{"a factor", scale->factor}};
  if (const auto* cap = std::get_if<op::SoftCap>(&what)) return {{"a cap", cap->cap}};
  if (const auto* activate = std::get_if<op::Activate>(&what))
    return {{"a kind of activation", static_cast<double>(activate->kind)}};
  if (const auto* choose = std::get_if<op::Choose>(&what))
    return {{"a scoring of experts (0: softmax, 1: sigmoid)", static_cast<double>(choose->scoring)},
            {"groups of experts", static_cast<double>(choose->groups)},
            {"groups of experts that are used", static_cast<double>(choose->groups_used)}};
  if (const auto* weigh = std::get_if<op::Weigh>(&what))
    return {{"a scoring of experts (0: softmax, 1: sigmoid)", static_cast<double>(weigh->scoring)},
            {"normalized weights of experts (1: yes)", weigh->normalize ? 1.0 : 0.0},
            {"a scale of the experts' weights", weigh->scale}};
  return {};
}

}  // namespace

std::vector<std::string> other_settings_of(const op::Program& reference,
                                           const op::Program& suspect) {
  // What is the same in all layers is said once.
  std::vector<std::string> order;
  std::map<std::string, std::pair<std::string, int64_t>> found;  // the first place, and how many
  for (size_t i = 0; i < std::min(reference.ops.size(), suspect.ops.size()); ++i) {
    const std::string& place = reference.value(reference.ops[i].outputs[0]).name;
    std::vector<std::string> clauses;
    if (reference.ops[i].what.index() != suspect.ops[i].what.index()) {
      clauses.push_back("another operation");
    } else {
      const auto a = numbers_of(reference.ops[i].what);
      const auto b = numbers_of(suspect.ops[i].what);
      for (size_t n = 0; n < std::min(a.size(), b.size()); ++n)
        if (a[n].second != b[n].second)
          clauses.push_back(fmt::format("{} of {:.9g} in the reference and {:.9g} in the suspect",
                                        a[n].first, a[n].second, b[n].second));
    }
    for (const std::string& clause : clauses) {
      const auto [at, fresh] = found.try_emplace(clause, place, 0);
      if (fresh) order.push_back(clause);
      ++at->second.second;
    }
  }
  std::vector<std::string> out;
  for (const std::string& clause : order) {
    const auto& [place, count] = found.at(clause);
    out.push_back(count == 1 ? fmt::format("{} ({})", clause, place)
                             : fmt::format("{} ({} and {} more places)", clause, place, count - 1));
  }
  return out;
}

}  // namespace lockstep::parity
