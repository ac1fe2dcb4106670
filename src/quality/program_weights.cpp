#include "quality/program_weights.h"

#include <algorithm>
#include <cstring>
#include <map>

#include <fmt/format.h>

#include "base/check.h"

namespace lockstep::quality {
namespace {

template <class What, class Found>
void find_weights(What& what, Found found) {
  const auto maybe = [&](auto& weight) {
    if (weight) found(*weight);
  };
  if (auto* embed = std::get_if<op::Embed>(&what)) found(embed->table);
  if (auto* norm = std::get_if<op::Norm>(&what)) {
    found(norm->weight);
    maybe(norm->bias);
  }
  if (auto* linear = std::get_if<op::Linear>(&what)) {
    found(linear->weight);
    maybe(linear->bias);
  }
  if (auto* choose = std::get_if<op::Choose>(&what)) maybe(choose->bias);
  if (auto* experts = std::get_if<op::ExpertLinear>(&what)) {
    found(experts->weight);
    maybe(experts->bias);
  }
}

}  // namespace

std::vector<op::Weight*> weights_of(op::What& what) {
  std::vector<op::Weight*> out;
  find_weights(what, [&](op::Weight& weight) { out.push_back(&weight); });
  return out;
}

std::vector<const op::Weight*> weights_of(const op::What& what) {
  std::vector<const op::Weight*> out;
  find_weights(what, [&](const op::Weight& weight) { out.push_back(&weight); });
  return out;
}

bool Tensor::equal() const {
  return reference->format == suspect->format && reference->data.size() == suspect->data.size() &&
         std::memcmp(reference->data.data(), suspect->data.data(), reference->data.size()) == 0;
}

std::vector<Tensor> tensors_of(const op::Program& reference, const op::Program& suspect) {
  std::vector<Tensor> out;
  std::map<std::string_view, size_t> known;
  for (size_t i = 0; i < suspect.ops.size(); ++i) {
    const auto theirs = weights_of(reference.ops[i].what);
    const auto ours = weights_of(suspect.ops[i].what);
    LS_CHECK(theirs.size() == ours.size());
    for (size_t k = 0; k < ours.size(); ++k) {
      const auto [place, is_new] = known.emplace(ours[k]->name, out.size());
      if (is_new) out.push_back({theirs[k], ours[k], {}});
      auto& ops = out[place->second].ops;
      if (ops.empty() || ops.back() != i) ops.push_back(i);
    }
  }
  return out;
}

std::string shape_difference(const op::Program& reference, const op::Program& suspect) {
  if (reference.layers != suspect.layers)
    return fmt::format("{} layers, and {}", reference.layers, suspect.layers);
  if (reference.vocabulary != suspect.vocabulary)
    return fmt::format("vocabularies of {} and {} tokens", reference.vocabulary,
                       suspect.vocabulary);
  if (reference.ops.size() != suspect.ops.size())
    return fmt::format("forward passes of {} and {} operations", reference.ops.size(),
                       suspect.ops.size());
  for (size_t i = 0; i < reference.ops.size(); ++i) {
    const op::Op &a = reference.ops[i], &b = suspect.ops[i];
    const std::string& name = suspect.value(b.outputs[0]).name;
    if (a.what.index() != b.what.index() || a.inputs != b.inputs || a.outputs != b.outputs)
      return fmt::format("another operation at {}", name);
    const auto theirs = weights_of(a.what), ours = weights_of(b.what);
    if (theirs.size() != ours.size())
      return fmt::format("{} weights at {}, and {}", theirs.size(), name, ours.size());
    for (size_t k = 0; k < ours.size(); ++k)
      if (theirs[k]->rows != ours[k]->rows || theirs[k]->columns != ours[k]->columns)
        return fmt::format("{} of [{}, {}] and [{}, {}]", ours[k]->name, theirs[k]->columns,
                           theirs[k]->rows, ours[k]->columns, ours[k]->rows);
  }
  return "";
}

std::vector<op::Op> with_weights_of(const op::Program& program, const op::Program& other,
                                    const Tensor& tensor, size_t begin, size_t end) {
  std::vector<op::Op> out(program.ops.begin() + static_cast<std::ptrdiff_t>(begin),
                          program.ops.begin() + static_cast<std::ptrdiff_t>(end));
  for (const size_t op : tensor.ops) {
    if (op < begin || op >= end) continue;
    const auto mine = weights_of(out[op - begin].what);
    const auto theirs = weights_of(other.ops[op].what);
    // By place, not by name: one file may hold twice what the other shares.
    for (size_t k = 0; k < mine.size(); ++k)
      if (theirs[k]->name == tensor.name() || mine[k]->name == tensor.name()) *mine[k] = *theirs[k];
  }
  return out;
}

}  // namespace lockstep::quality
