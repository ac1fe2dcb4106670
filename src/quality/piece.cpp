#include "quality/piece.h"

#include <algorithm>

#include "base/check.h"

namespace lockstep::quality {

std::vector<Cut> cuts_of(const op::Program& program) {
  std::vector<size_t> last_use(program.values.size(), 0);
  for (size_t i = 0; i < program.ops.size(); ++i)
    for (const op::ValueId id : program.ops[i].inputs) last_use[static_cast<size_t>(id)] = i;
  std::vector<Cut> out;
  std::vector<op::ValueId> living;  // made before the op, and read by it or later
  for (size_t i = 0; i < program.ops.size(); ++i) {
    std::erase_if(living, [&](op::ValueId id) { return last_use[static_cast<size_t>(id)] < i; });
    const bool between = i > 0 && program.ops[i].layer != program.ops[i - 1].layer;
    if (between && living.size() == 1) out.push_back({i, living[0]});
    for (const op::ValueId id : program.ops[i].outputs) living.push_back(id);
  }
  return out;
}

Piece::Piece(const op::Program& whole, std::vector<op::Op> ops, op::ValueId input,
             const Setting& setting)
    : setting_(setting) {
  program_.values = whole.values;
  program_.layers = whole.layers;
  program_.context_length = whole.context_length;
  program_.ops = std::move(ops);
  if (input >= 0) {
    const int64_t width = whole.value(input).width;
    table_.resize(static_cast<size_t>(whole.context_length * width));
    const op::Weight table{.name = "input",
                           .format = &quant::info(quant::Format::kF32),
                           .rows = whole.context_length,
                           .columns = width,
                           .data = std::as_bytes(std::span(table_))};
    program_.ops.insert(program_.ops.begin(),
                        {op::Embed{table, op::Embed::Index::kPosition}, {}, {input}, -1});
  }
  const bool has_logits = program_.logits() == whole.logits();
  program_.head = has_logits ? whole.head : -1;
  program_.vocabulary = has_logits ? whole.vocabulary : program_.value(program_.logits()).width;
}

bool Piece::reads_anew(const exec::Device& device) {
  return device.name == "cpu" || device.name == "reference-cpu";
}

Result<exec::Executor*> Piece::with_input(std::span<const float> rows) {
  LS_CHECK(rows.size() <= table_.size());
  std::ranges::copy(rows, table_.begin());
  if (executor_ == nullptr || !(table_.empty() || reads_anew(*setting_.device))) {
    executor_.reset();
    LS_TRY(executor_, setting_.device->create(program_, setting_.options));
  }
  executor_->rewind(0);
  return executor_.get();
}

}  // namespace lockstep::quality
