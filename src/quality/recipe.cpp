#include "quality/recipe.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/parallel.h"
#include "base/text.h"
#include "quality/program_weights.h"
#include "quant/decode.h"
#include "quant/encode.h"
#include "quant/recipe.h"

namespace lockstep::quality {
namespace {

using quant::Format;

// Formats without a scale of their own for each block come last: a float's own format costs
// nothing.
constexpr Format kCandidates[] = {Format::kQ2_K, Format::kQ3_K, Format::kQ4_K, Format::kQ5_K,
                                  Format::kQ6_K, Format::kQ8_0, Format::kQ4_0, Format::kQ4_1,
                                  Format::kQ5_0, Format::kQ5_1, Format::kF16};

// Some rows of a tensor, spread over it, decoded.
class Rows {
 public:
  static constexpr int64_t kValues = 1 << 16;

  explicit Rows(const gguf::Tensor& like) : columns_(like.dims[0]) {
    const int64_t rows = like.values() / columns_;
    const int64_t count = std::clamp<int64_t>(kValues / columns_, 1, rows);
    for (int64_t i = 0; i < count; ++i) rows_.push_back((2 * i + 1) * rows / (2 * count));
  }

  std::vector<float> of(const gguf::Tensor& tensor) const {
    std::vector<float> out(rows_.size() * static_cast<size_t>(columns_));
    const int64_t row_bytes = quant::size_bytes(*tensor.format, columns_);
    for (size_t i = 0; i < rows_.size(); ++i)
      quant::decode(tensor.format->format(), tensor.data.data() + rows_[i] * row_bytes, columns_,
                    out.data() + i * static_cast<size_t>(columns_));
    return out;
  }

 private:
  int64_t columns_;
  std::vector<int64_t> rows_;
};

double square_error(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += difference * difference;
  }
  return sum;
}

std::vector<float> rounded(const std::vector<float>& values, Format format) {
  const auto n = static_cast<int64_t>(values.size());
  std::vector<std::byte> bytes(static_cast<size_t>(quant::size_bytes(quant::info(format), n)));
  quant::encode(format, values.data(), n, bytes.data());
  std::vector<float> out(values.size());
  quant::decode(format, bytes.data(), n, out.data());
  return out;
}

Result<void> check_values(const gguf::File& file, const gguf::Tensor& tensor,
                          const std::vector<float>& values) {
  if (!std::ranges::all_of(values, [](float x) { return std::isfinite(x); }))
    return error("{}: tensor {} has values that are not finite", file.path(), tensor.name);
  return {};
}

// The 4-bit form of a tensor, for tensors whose cost is not known from the suspect.
Format probe_format(int64_t row_length) {
  return quant::fit_row(Format::kQ4_K, row_length);
}

std::vector<std::byte> encoded(const gguf::Tensor& tensor, Format format) {
  const int64_t columns = tensor.dims[0], rows = tensor.values() / columns;
  const int64_t from = quant::size_bytes(*tensor.format, columns);
  const int64_t to = quant::size_bytes(quant::info(format), columns);
  std::vector<std::byte> out(static_cast<size_t>(rows * to));
  parallel_for(rows, 16, [&](int64_t begin, int64_t end) {
    std::vector<float> row(static_cast<size_t>(columns));
    for (int64_t i = begin; i < end; ++i) {
      quant::decode(tensor.format->format(), tensor.data.data() + i * from, columns, row.data());
      quant::encode(format, row.data(), columns, out.data() + i * to);
    }
  });
  return out;
}

// What a tensor costs for each squared error of its (sampled) weights.
struct Known {
  double kl = 0;
  double square_error = 0;
};

}  // namespace

Result<Proposal> propose(const model::Model& reference, const model::Model& suspect,
                         const Ranking& ranking, const std::vector<Window>& windows,
                         const Setting& setting, int64_t bytes) {
  Proposal out;
  std::vector<const gguf::Tensor*> matrices;
  for (const gguf::Tensor& tensor : reference.file().tensors()) {
    out.values += tensor.values();
    const bool plain = tensor.format->decodable && tensor.format->block_values == 1;
    if (quant::is_quantized_weight(tensor.name, tensor.dims)) {
      if (!plain)
        return error("{}: tensor {} is {} already; a recipe is made from an F32, F16 or BF16 file",
                     reference.file().path(), tensor.name, tensor.format->name);
      matrices.push_back(&tensor);
    } else {
      out.bytes += plain ? 4 * tensor.values() : static_cast<int64_t>(tensor.data.size());
    }
  }

  // What the suspect's formats cost is measured; where the suspect has the very weights, a 4-bit
  // form is tried in its place.
  std::map<std::string_view, Known> known;
  std::map<std::string_view, std::vector<std::byte>> probes;
  std::vector<std::string> probed;
  for (const gguf::Tensor* tensor : matrices) {
    const Rows rows(*tensor);
    const std::vector<float> truth = rows.of(*tensor);
    LS_TRY_VOID(check_values(reference.file(), *tensor, truth));
    const gguf::Tensor* other = suspect.file().tensor(tensor->name);
    const auto cost = std::ranges::find(ranking.tensors, tensor->name, &TensorCost::name);
    const double error =
        other != nullptr && other->dims == tensor->dims ? square_error(truth, rows.of(*other)) : 0;
    if (error > 0 && cost != ranking.tensors.end() && cost->format_suspect->block_values > 1) {
      known[tensor->name] = {cost->alone.value, error};
      continue;
    }
    const Format format = probe_format(tensor->dims[0]);
    probes[tensor->name] = encoded(*tensor, format);
    known[tensor->name] = {0, square_error(truth, rounded(truth, format))};
    probed.push_back(tensor->name);
  }
  if (!probed.empty()) {
    LS_TRY(const op::Program program, reference.program(ranking.window));
    op::Program other = program;
    for (op::Op& op : other.ops)
      for (op::Weight* weight : weights_of(op.what)) {
        const auto probe = probes.find(weight->name);
        if (probe == probes.end()) continue;
        weight->format = &quant::info(probe_format(weight->columns));
        weight->data = probe->second;
        weight->mapped = false;
      }
    LS_TRY(const auto costs, costs_alone(program, other, probed, windows, setting));
    for (size_t i = 0; i < probed.size(); ++i) known[probed[i]].kl = costs[i].value;
    out.probed = static_cast<int64_t>(probed.size());
  }

  std::vector<Item> items(matrices.size());
  parallel_for(static_cast<int64_t>(matrices.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const gguf::Tensor& tensor = *matrices[static_cast<size_t>(i)];
      Item& item = items[static_cast<size_t>(i)];
      item.name = tensor.name;
      const Known& of = known.at(tensor.name);
      const std::vector<float> truth = Rows(tensor).of(tensor);
      const auto add = [&](Format format) {
        const quant::FormatInfo& info = quant::info(format);
        if (tensor.dims[0] % info.block_values != 0) return;
        const double error = square_error(truth, rounded(truth, format));
        const double kl = of.square_error > 0 ? of.kl * error / of.square_error : 0;
        item.candidates.push_back({&info, quant::size_bytes(info, tensor.values()), kl});
      };
      for (const Format format : kCandidates) add(format);
      if (tensor.format->format() != Format::kF16) add(tensor.format->format());
    }
  });
  LS_TRY(const std::vector<size_t> chosen, choose_candidates(items, bytes - out.bytes));
  for (size_t i = 0; i < items.size(); ++i) {
    const Candidate& candidate = items[i].candidates[chosen[i]];
    out.lines.push_back({items[i].name, candidate.format, candidate.kl});
    out.bytes += candidate.bytes;
    out.kl += candidate.kl;
  }
  return out;
}

std::string recipe_text(const Proposal& proposal, const std::string& reference) {
  std::string out = fmt::format(
      "# Formats for the matrices of {}, for `lockstep quantize --recipe`.\n"
      "# {} bytes of tensors, {:.3f} bits a weight; mean KL by estimate {:.3g}.\n"
      "# A line: a tensor (* stands for any text) and its format. The last line that fits "
      "counts.\n",
      printable(reference), proposal.bytes,
      8 * static_cast<double>(proposal.bytes) / static_cast<double>(proposal.values), proposal.kl);
  for (const Proposal::Line& line : proposal.lines)
    out += fmt::format("{} {}\n", line.name, line.format->name);
  return out;
}

}  // namespace lockstep::quality
