#include "model/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

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

void FileWeights::report_unused() {
  for (const gguf::Tensor& tensor : file_.tensors())
    if (!used_.contains(tensor.name))
      problems_.push_back(fmt::format("tensor {} {} has no place in this architecture", tensor.name,
                                      tensor.shape()));
}

}  // namespace lockstep::model
