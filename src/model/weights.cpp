#include "model/weights.h"

#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "quant/decode.h"

namespace lockstep::model {
namespace {

// What a file may have in place of the tensor of all experts, and what to do about it.
std::string found_instead(const gguf::File& file, std::string_view name) {
  constexpr std::string_view kEnd = "_exps.weight";
  if (!name.ends_with(kEnd)) return "";
  const std::string stem(name.substr(0, name.size() - kEnd.size()));
  if (const std::string own = stem + ".0.weight"; file.tensor(own) != nullptr)
    return fmt::format(
        "; the file has {}, a tensor for each expert, as files of 2023 do: convert the model anew",
        own);
  const std::string fused =
      fmt::format("{}ffn_gate_up_exps.weight", stem.substr(0, stem.find("ffn_")));
  if (!stem.ends_with("ffn_down") && file.tensor(fused) != nullptr)
    return fmt::format(
        "; the file has {}, gate and up in one: convert the model anew without --fuse-gate-up-exps",
        fused);
  return "";
}

}  // namespace

op::Weight FileWeights::find(const std::string& name, const std::vector<int64_t>& dims) {
  const std::string expected = fmt::format("[{}]", fmt::join(dims, ", "));
  used_.insert(name);
  const gguf::Tensor* tensor = file_.tensor(name);
  if (tensor == nullptr) {
    problems_.push_back(fmt::format("tensor {} is missing; expected shape {}{}", name, expected,
                                    found_instead(file_, name)));
    return {};
  }
  // Trailing dimensions of 1 say nothing.
  std::vector<int64_t> actual = tensor->dims;
  while (actual.size() > dims.size() && actual.back() == 1) actual.pop_back();
  if (actual != dims) {
    problems_.push_back(
        fmt::format("tensor {} has shape {}; expected {}", name, tensor->shape(), expected));
    return {};
  }
  if (!tensor->format->decodable) {
    problems_.push_back(
        fmt::format("tensor {} has format {}, which is not supported", name, tensor->format->name));
    return {};
  }
  return op::Weight{
      .name = name,
      .format = tensor->format,
      .rows = dims.size() > 1 ? dims[1] : 1,
      .columns = dims[0],
      .data = tensor->data,
      .mapped = file_.is_mapped() && !tensor->made,
  };
}

op::Weight transposed(const op::Weight& matrix, int64_t count) {
  if (matrix.data.empty()) return matrix;  // what is wrong has been said
  const bool plain = matrix.format->block_values == 1;
  const auto size = static_cast<size_t>(plain ? matrix.format->block_bytes : 4);
  const auto rows = static_cast<size_t>(matrix.rows), columns = static_cast<size_t>(matrix.columns);
  const size_t all_rows = static_cast<size_t>(count) * rows;
  auto made = std::make_shared<std::vector<std::byte>>(all_rows * columns * size);
  std::vector<float> decoded(plain ? 0 : columns);
  for (size_t row = 0; row < all_rows; ++row) {
    const std::byte* from = matrix.row(static_cast<int64_t>(row));
    if (!plain) {
      quant::decode(matrix.format->format(), from, matrix.columns, decoded.data());
      from = reinterpret_cast<const std::byte*>(decoded.data());
    }
    std::byte* to = made->data() + (row / rows * rows * columns + row % rows) * size;
    for (size_t i = 0; i < columns; ++i) std::memcpy(to + i * rows * size, from + i * size, size);
  }
  op::Weight out = matrix;
  if (!plain) {
    out.format = &quant::info(quant::Format::kF32);
    out.engine_format = &matrix.format_in_engine();
  }
  out.rows = count * matrix.columns;
  out.columns = matrix.rows;
  out.data = *made;
  out.mapped = false;
  out.made = std::move(made);
  return out;
}

void FileWeights::report_unused() {
  for (const gguf::Tensor& tensor : file_.tensors())
    if (!used_.contains(tensor.name))
      problems_.push_back(fmt::format("tensor {} {} has no place in this architecture", tensor.name,
                                      tensor.shape()));
}

}  // namespace lockstep::model
