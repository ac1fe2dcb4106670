#include "rewrite.h"

#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/float16.h"

namespace lockstep::engines {
namespace {

void append(std::string& out, DType dtype, double value) {
  const auto put = [&](const auto& number) {
    out.append(reinterpret_cast<const char*>(&number), sizeof number);
  };
  const auto single = static_cast<float>(value);
  if (dtype == DType::kF64) put(value);
  if (dtype == DType::kF32) put(single);
  if (dtype == DType::kF16) put(float_to_half(single));
  if (dtype == DType::kBF16) put(float_to_bfloat(single));
}

}  // namespace

void rewrite(const trace::Trace& trace, const std::string& folder, DType dtype,
             const std::function<bool(Tensor&)>& alter,
             const std::function<void(trace::Manifest&)>& alter_manifest) {
  std::filesystem::create_directories(folder);
  trace::Manifest manifest = trace.manifest();
  constexpr const char* kNames[] = {"F64", "F32", "F16", "BF16"};
  for (trace::CheckpointInfo& info : manifest.checkpoints) info.dtype = dtype;
  for (size_t s = 0; s < manifest.steps.size(); ++s) {
    nlohmann::ordered_json header = nlohmann::ordered_json::object();
    std::string data;
    for (trace::CheckpointInfo& info : manifest.checkpoints) {
      const auto view = trace.value(s, info.name);
      if (!view) continue;
      Tensor tensor{info.name, view->shape, {}};
      for (int64_t i = 0; i < view->size(); ++i) tensor.values.push_back(view->at(i));
      if (!alter(tensor)) continue;
      if (tensor.shape.size() == 2) info.width = tensor.shape[1];
      const size_t begin = data.size();
      for (const double value : tensor.values) append(data, dtype, value);
      header[fmt::format("{}/{}", manifest.steps[s].index, info.name)] = {
          {"dtype", kNames[static_cast<int>(dtype)]},
          {"shape", tensor.shape},
          {"data_offsets", {begin, data.size()}}};
    }
    std::string text = header.dump();
    text.append((8 - text.size() % 8) % 8, ' ');
    manifest.steps[s].shard = fmt::format("{:06}.safetensors", s);
    std::ofstream out(folder + "/" + manifest.steps[s].shard, std::ios::binary);
    const uint64_t size = text.size();
    out.write(reinterpret_cast<const char*>(&size), sizeof size);
    out << text << data;
    LS_CHECK(out.good());
  }
  if (alter_manifest) alter_manifest(manifest);
  std::ofstream(folder + "/manifest.json") << trace::to_json(manifest);
}

}  // namespace lockstep::engines
