#include "quality/collect.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace lockstep::quality {
namespace {

using gguf::Imatrix;

// One product: where its input and, of experts, their choice are, and the sums of its tensor.
struct Product {
  op::ValueId input = -1;
  op::ValueId choice = -1;  // of experts; else -1
  Imatrix::Sums* sums = nullptr;
};

// Adds the squares of what products take in.
class Inputs : public op::Observer {
 public:
  Inputs(const op::Program& program, Imatrix& out) {
    std::set<std::string_view> looked_up;
    for (const op::Op& op : program.ops) {
      if (const auto* embed = std::get_if<op::Embed>(&op.what)) looked_up.insert(embed->table.name);
      const auto* linear = std::get_if<op::Linear>(&op.what);
      // An embedding that is the output matrix too: errors of what is looked up count as much.
      if (linear != nullptr && !looked_up.contains(linear->weight.name))
        add(op, linear->weight, 1, linear->weight.columns, -1, out);
      if (const auto* experts = std::get_if<op::ExpertLinear>(&op.what))
        add(op, experts->weight, experts->experts, experts->weight.columns, op.inputs[1], out);
    }
  }

  bool wants(op::ValueId id) const override {
    return std::ranges::any_of(products_, [&](const Product& product) {
      return product.input == id || product.choice == id;
    });
  }

  void see(op::ValueId id, const View& view) override {
    std::vector<float> rows(static_cast<size_t>(view.size()));
    for (int64_t i = 0; i < view.size(); ++i)
      rows[static_cast<size_t>(i)] = static_cast<float>(view.at(i));
    for (const Product& product : products_)
      if (product.choice < 0 && product.input == id) take(product, rows);
    // Of experts, the input may come before the choice or after it: the later one of both counts.
    const auto is_of_experts = [&](const Product& product) {
      return product.choice >= 0 && (product.input == id || product.choice == id);
    };
    if (std::ranges::none_of(products_, is_of_experts)) return;
    seen_[id] = std::move(rows);
    for (const Product& product : products_)
      if (is_of_experts(product) && seen_.contains(product.input) && seen_.contains(product.choice))
        take_experts(product, static_cast<size_t>(view.shape[0]));
  }

  void begin_step(int64_t, int64_t) override { seen_.clear(); }

 private:
  void add(const op::Op& op, const op::Weight& weight, int64_t matrices, int64_t columns,
           op::ValueId choice, Imatrix& out) {
    Imatrix::Sums& sums = out.tensors[weight.name];
    sums.squares.resize(static_cast<size_t>(matrices * columns));
    sums.counts.resize(static_cast<size_t>(matrices));
    products_.push_back({op.inputs[0], choice, &sums});
  }

  static void add_row(Imatrix::Sums& sums, const float* x, size_t matrix) {
    const auto columns = static_cast<size_t>(sums.columns());
    double* squares = sums.squares.data() + matrix * columns;
    for (size_t i = 0; i < columns; ++i)
      squares[i] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    sums.counts[matrix] += 1;
  }

  static void take(const Product& product, const std::vector<float>& rows) {
    const auto columns = static_cast<size_t>(product.sums->columns());
    for (size_t at = 0; at < rows.size(); at += columns)
      add_row(*product.sums, rows.data() + at, 0);
  }

  void take_experts(const Product& product, size_t tokens) const {
    const std::vector<float>& rows = seen_.at(product.input);
    const std::vector<float>& choices = seen_.at(product.choice);
    const auto columns = static_cast<size_t>(product.sums->columns());
    const size_t slots = choices.size() / tokens, width = rows.size() / tokens;
    for (size_t token = 0; token < tokens; ++token)
      for (size_t slot = 0; slot < slots; ++slot) {
        const size_t first = width == columns ? 0 : slot * columns;  // one for all slots, or each
        add_row(*product.sums, rows.data() + token * width + first,
                static_cast<size_t>(choices[token * slots + slot]));
      }
  }

  std::vector<Product> products_;
  std::map<op::ValueId, std::vector<float>> seen_;  // of this step
};

}  // namespace

Result<gguf::Imatrix> collect_imatrix(const model::Model& model, const std::vector<Window>& windows,
                                      const Setting& setting, const Advance& advance) {
  int64_t longest = 0, all = 0, done = 0;
  for (const Window& window : windows) {
    longest = std::max(longest, static_cast<int64_t>(window.tokens.size()));
    all += static_cast<int64_t>(window.tokens.size());
  }
  LS_TRY(const op::Program program, model.program(longest));
  LS_TRY(const auto executor, setting.device->create(program, setting.options));
  Imatrix out;
  Inputs inputs(program, out);
  for (const Window& window : windows) {
    executor->rewind(0);
    const auto tokens = std::span<const exec::TokenId>(window.tokens);
    for (size_t begin = 0; begin < tokens.size();) {
      const size_t count =
          std::min(tokens.size() - begin, static_cast<size_t>(executor->step_tokens()));
      LS_TRY_VOID(executor->run({.tokens = tokens.subspan(begin, count), .observer = &inputs}));
      begin += count;
    }
    advance(done += static_cast<int64_t>(tokens.size()), all);
  }
  for (const auto& [name, sums] : out.tensors)
    if (!std::ranges::all_of(sums.squares, [](double x) { return std::isfinite(x); }))
      return error("{}: the inputs of {} are not finite on this text", model.file().path(), name);
  out.chunks = static_cast<int64_t>(windows.size());
  out.chunk_size = longest;
  return out;
}

}  // namespace lockstep::quality
