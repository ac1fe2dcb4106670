#include "cli/captured_engines.h"

namespace lockstep::cli {

const std::vector<CapturedEngine>& captured_engines() {
  static const std::vector<CapturedEngine> kEngines = {
      {"lockstep.capture.llama_cpp",
       true,
       {"llama.cpp",
        {"numpy", "llama_cpp"},
        {"numpy>=1.22", "llama-cpp-python==0.3.36"},
        "llama.cpp is built from source: minutes, and a C++ compiler"}},
      {"lockstep.capture.transformers",
       false,
       {"transformers",
        {"numpy", "torch", "transformers"},
        {"numpy>=1.22", "transformers>=5.0", "torch>=2.4"},
        "about 5 GB"}},
  };
  return kEngines;
}

const std::vector<CaptureFlag>& capture_flags() {
  static const std::vector<CaptureFlag> kFlags = {
      {"-o,--output", &kNewFolder, "The folder of the new trace"},
      {"-p,--prompt", &kText, "The prompt, read by the engine's own tokenizer"},
      {"--text-file", &kInputFileOrStdin, "File with the prompt; - is standard input"},
      {"--tokens", &kTokenIds, "The prompt as token ids: 1,2,3"},
      {"-n,--max-tokens", &kWholeNumber, "Tokens to generate (default 1; 0: none is chosen)"},
      {"--checkpoints", &kCheckpointSet,
       "logits, layers, ops, all (default), or names and globs separated by commas"},
      {"--batch", &kWholeNumber, "Most prompt tokens of one step (default 512)", nullptr, 1},
      {"--temp", &kRealNumber, "Temperature; 0 (default) always takes the largest logit"},
      {"--seed", &kWholeNumber, "Of the choice where --temp is not 0", nullptr, 0, INT64_MAX},
      {"--ignore-eos", nullptr, "Go on after an end-of-text token"},
      {"-t,--threads", &kWholeNumber, "Threads (default: all cores)", nullptr, 1, 4096},
      {"--kv", &kCapturedKv, "llama.cpp: numbers of the KV cache, f16 (default), f32 or bf16",
       "llama.cpp"},
      {"--flash-attn", nullptr, "llama.cpp: flash attention; there are no scores then",
       "llama.cpp"},
      {"--gpu-layers", &kWholeNumber,
       "llama.cpp: layers on the GPU (also -ngl; default 0; 99: all)", "llama.cpp"},
      {"--all-nodes", nullptr,
       "llama.cpp: also nodes that the name map does not know, under their own names", "llama.cpp"},
      {"--dtype", &kTorchType, "transformers: numbers to compute with (default float32)",
       "transformers"},
      {"--device", &kTorchDevice, "transformers: as torch has it: cpu (default), cuda, ...",
       "transformers"},
  };
  return kFlags;
}

}  // namespace lockstep::cli
