// For the tests of this folder: tensors made of floats, and files made of tensors.
#pragma once

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "audit/audit.h"
#include "audit/tensors.h"
#include "base/random.h"
#include "gguf/file.h"
#include "quant/encode.h"

namespace lockstep::audit::test {

using Floats = std::vector<float>;

inline uint64_t fresh_seed() {
  return std::random_device{}();
}

inline Floats gaussian(Random& random, int64_t n, double scale = 1) {
  Floats out;
  for (int64_t i = 0; i < n; ++i) out.push_back(static_cast<float>(scale * random.gaussian()));
  return out;
}

// What a file has to say, put together tensor by tensor.
struct Model {
  struct Made {
    std::string name;
    std::vector<int64_t> dims;
    quant::Format format;
    std::vector<std::byte> data;
  };
  std::vector<gguf::Entry> metadata = {{"general.architecture", {std::string("llama")}},
                                       {"llama.embedding_length", {uint32_t{64}}},
                                       {"llama.attention.head_count", {uint32_t{4}}}};
  std::vector<Made> tensors;

  void add(const std::string& name, std::vector<int64_t> dims, const Floats& values,
           quant::Format format = quant::Format::kF32) {
    const auto n = static_cast<int64_t>(values.size());
    std::vector<std::byte> data(static_cast<size_t>(quant::size_bytes(quant::info(format), n)));
    quant::encode(format, values.data(), n, data.data());
    add_bytes(name, std::move(dims), format, std::move(data));
  }
  void add_bytes(const std::string& name, std::vector<int64_t> dims, quant::Format format,
                 std::vector<std::byte> data) {
    tensors.push_back({name, std::move(dims), format, std::move(data)});
  }
};

// Files in memory: disks take long to write hundreds of them.
class Files {
 public:
  gguf::File open(const Model& model) {
    constexpr size_t kAlignment = 32;
    const auto pad = [](std::string& text) {
      text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment);
    };
    const auto number = [](std::string& text, auto value) {
      text.append(reinterpret_cast<const char*>(&value), sizeof value);
    };
    std::string header = "GGUF", data;
    number(header, uint32_t{3});
    number(header, uint64_t{model.tensors.size()});
    number(header, uint64_t{model.metadata.size()});
    for (const gguf::Entry& entry : model.metadata) {
      gguf::append_text(header, entry.key);
      gguf::append_value(header, entry.value);
    }
    for (const Model::Made& made : model.tensors) {
      gguf::append_text(header, made.name);
      number(header, static_cast<uint32_t>(made.dims.size()));
      for (const int64_t dim : made.dims) number(header, dim);
      number(header, static_cast<uint32_t>(made.format));
      number(header, uint64_t{data.size()});
      data.append(reinterpret_cast<const char*>(made.data.data()), made.data.size());
      pad(data);
    }
    pad(header);
    bytes_.push_back(header + data);
    auto file = gguf::File::parse(std::as_bytes(std::span(bytes_.back())),
                                  fmt::format("{}.gguf", bytes_.size()));
    LS_CHECK(file.ok(), "{}", file.error().message);
    return std::move(*file);
  }

 private:
  std::deque<std::string> bytes_;  // none moves when others come
};

inline std::map<std::string, TensorAudit> tensors_of(const Model& a, const Model& b) {
  Files files;
  const gguf::File file_a = files.open(a), file_b = files.open(b);
  auto found = audit_tensors(file_a, file_b, [](int64_t) {});
  LS_CHECK(found.ok(), "{}", found.error().message);
  std::map<std::string, TensorAudit> out;
  for (TensorAudit& tensor : *found) out[tensor.name] = std::move(tensor);
  return out;
}

// One tensor against another, by the name of a matrix that has heads.
inline TensorAudit pair_of(std::vector<int64_t> dims_a, const Floats& a, quant::Format format_a,
                           std::vector<int64_t> dims_b, const Floats& b, quant::Format format_b) {
  Model model_a, model_b;
  model_a.add("blk.0.attn_q.weight", std::move(dims_a), a, format_a);
  model_b.add("blk.0.attn_q.weight", std::move(dims_b), b, format_b);
  return tensors_of(model_a, model_b).at("blk.0.attn_q.weight");
}

inline std::vector<quant::Format> written_formats() {
  std::vector<quant::Format> out;
  for (const quant::FormatInfo& info : quant::all_formats())
    if (quant::encodable(info.format())) out.push_back(info.format());
  return out;
}

// "wrong permuted", "quantized"
inline std::string verdict_of(const TensorAudit& tensor) {
  return fmt::format("{}{}{}", name(tensor.verdict), tensor.how == How::kNone ? "" : " ",
                     name(tensor.how));
}

}  // namespace lockstep::audit::test
