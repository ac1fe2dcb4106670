// Records what llama.cpp computes on a CPU, from C++, through the callback of its graph evaluation:
// the same trace, bit for bit, as `lockstep capture llama.cpp`.
//
//   c++ -std=c++17 -I include -I $L/include examples/llama_cpp.cpp -L $L/lib -lllama -lggml-base
//   ./a.out model.gguf 'The sky is' 16 theirs.trace
#include <algorithm>
#include <optional>
#include <thread>

#include <llama.h>
#include <lockstep/recorder.h>

#include "llama_cpp_nodes.h"

namespace {

int fail(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return fail("usage: a.out MODEL PROMPT TOKENS TRACE");
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_model_params model_params = llama_model_default_params();
  model_params.n_gpu_layers = 0;
  model_params.use_extra_bufts = false;  // weights as the file has them
  llama_model* model = llama_model_load_from_file(argv[1], model_params);
  if (model == nullptr) return fail(std::string(argv[1]) + ": llama.cpp cannot load it");
  const llama_vocab* vocab = llama_model_get_vocab(model);
  const int32_t width = llama_vocab_n_tokens(vocab);

  lockstep::TraceInfo info;
  info.prompt = argv[2];
  info.tokens.resize(info.prompt.size() + 16);
  const auto room = static_cast<int32_t>(info.tokens.size());
  const int32_t found =
      llama_tokenize(vocab, argv[2], room - 16, info.tokens.data(), room, true, true);
  const int32_t positions = found + std::atoi(argv[3]) - 1;
  if (found < 1 || positions < found) return fail("expected a prompt, and tokens to generate");
  info.tokens.resize(static_cast<size_t>(found));
  char architecture[64] = "";
  llama_model_meta_val_str(model, "general.architecture", architecture, sizeof architecture);
  Capture capture;
  capture.phi3 = std::strcmp(architecture, "phi3") == 0;

  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>(positions);
  params.n_batch = params.n_ubatch = std::min(512u, static_cast<uint32_t>(found));
  params.n_threads = params.n_threads_batch =
      static_cast<int32_t>(std::thread::hardware_concurrency());
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;  // with it, scores do not exist
  params.offload_kqv = params.op_offload = false;
  params.swa_full = params.no_perf = true;
  params.cb_eval = Capture::see;
  params.cb_eval_user_data = &capture;
  llama_context* context = llama_init_from_model(model, params);
  if (context == nullptr) return fail("llama.cpp cannot make a context");

  std::optional<lockstep::TraceRecorder> trace;
  std::vector<llama_token> tokens = info.tokens;
  for (int32_t first = 0; first < positions;) {
    const int32_t count = std::min<int32_t>(512, static_cast<int32_t>(tokens.size()) - first);
    llama_batch batch = llama_batch_init(count, 0, 1);
    batch.n_tokens = count;
    for (int32_t i = 0; i < count; ++i) {
      batch.token[i] = tokens[static_cast<size_t>(first + i)];
      batch.pos[i] = first + i;
      batch.n_seq_id[i] = 1;
      batch.seq_id[i][0] = 0;
      batch.logits[i] = true;
    }
    capture.values.clear();
    capture.first = first;
    capture.tokens = count;
    if (llama_decode(context, batch) != 0) return fail("llama.cpp fails");
    llama_batch_free(batch);
    if (!trace) {  // only now it is known what the engine computes with
      info.engine = "llama.cpp";
      info.device = "cpu";
      info.compute = "f32";
      info.kv = "f16";
      capture.describe_weights(&info);
      info.model_file = std::filesystem::path(argv[1]).filename().string();
      info.model_path = std::filesystem::absolute(argv[1]).string();
      info.context_length = llama_n_ctx(context);
      info.architecture = architecture;
      info.sampling = {{"temperature", 0}, {"seed", 0}};
      info.notes = {"flash attention off"};
      info.unmapped.assign(capture.unmapped.begin(), capture.unmapped.end());
      trace.emplace(argv[4], info);
    }
    const float* logits = llama_get_logits(context);
    trace->begin_step(first, count);
    for (const auto& [place, value] : capture.values)
      if (value.name != "logits")
        trace->record(value.name, {value.data.data() + value.begin, lockstep::NumberType::kF32,
                                   value.shape, value.strides_bytes});
    trace->record("logits", logits, width);
    trace->end_step();
    first += count;
    if (first < static_cast<int32_t>(tokens.size())) continue;
    const float* last = logits + int64_t{count - 1} * width;
    tokens.push_back(static_cast<llama_token>(std::max_element(last, last + width) - last));
    trace->add_token(tokens.back());
    if (llama_vocab_is_eog(vocab, tokens.back())) break;
  }
  llama_free(context);
  llama_model_free(model);
  return trace->finish() ? 0 : fail(trace->error());
}
