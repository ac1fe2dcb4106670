// Records what ik_llama.cpp computes on a CPU, through the callback of its graph evaluation, for
// suites/peers.toml. Its graphs name few values as llama.cpp does, so that checkpoints are found by
// the weights that a node reads.
//
//   tests/peer/build_ik_llama builds ik_llama.cpp and this
//   ik_llama MODEL TOKENS N TRACE
#include <algorithm>
#include <optional>
#include <thread>

#include <llama.h>
#include <lockstep/recorder.h>

#include "../../examples/llama_cpp_nodes.h"

namespace {

int fail(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  return 2;
}

// The checkpoint that a product with a weight is, or its sum with the bias.
const std::map<std::string, std::string> kOfWeights = {{"attn_norm", "attn_norm"},
                                                       {"attn_q_norm", "q"},
                                                       {"attn_k_norm", "k"},
                                                       {"attn_q", "q"},
                                                       {"attn_k", "k"},
                                                       {"attn_v", "v"},
                                                       {"attn_qkv", "qkv"},
                                                       {"attn_output", "attn_out"},
                                                       {"ffn_norm", "ffn_norm"},
                                                       {"ffn_gate", "ffn_gate"},
                                                       {"ffn_up", "ffn_up"},
                                                       {"ffn_down", "ffn_out"},
                                                       {"output_norm", "final_norm"}};

struct IkCapture {
  Capture nodes;
  int64_t width = 0;  // of the residual stream
  int layers = 0;
  bool gate_in_up = false;

  static int see(ggml_tensor* node, bool asking, void* self) {
    auto* capture = static_cast<IkCapture*>(self);
    if (asking) {
      capture->nodes.ask(node);  // notes types of weights
      return 1;                  // all of them are looked at
    }
    capture->take(node);
    return 1;
  }

  void take(const ggml_tensor* node) {
    int layer = -1;
    if (node->op == GGML_OP_ROPE && std::sscanf(node->name, "Qcur_roped-%d", &layer) == 1) {
      // Where a model scales its scores, the engine may scale the queries instead: those are no
      // checkpoint.
      const ggml_tensor* from = node->src[0];
      while (from->op == GGML_OP_RESHAPE || from->op == GGML_OP_VIEW) from = from->src[0];
      if (from->op != GGML_OP_SCALE) put("q_rope", layer, node);
      return;
    }
    if (node->op == GGML_OP_ROPE && std::sscanf(node->name, "Kcur_roped-%d", &layer) == 1)
      return put("k_rope", layer, node);
    for (int i = 0; i < GGML_MAX_SRC; ++i)
      if (node->src[i] != nullptr && node->src[i]->op == GGML_OP_NONE)
        if (const std::string of = of_weight(node->src[i]->name, &layer); !of.empty())
          return take_product(of, layer, node);
  }

  // "blk.3.attn_q.weight": what a node that reads it is.
  static std::string of_weight(const std::string& name, int* layer) {
    *layer = -1;
    std::string rest = name;
    int length = 0;
    if (std::sscanf(name.c_str(), "blk.%d.%n", layer, &length) == 1 && length > 0)
      rest = name.substr(static_cast<size_t>(length));
    const size_t dot = rest.find('.');
    if (dot == std::string::npos || (rest.substr(dot) != ".weight" && rest.substr(dot) != ".bias"))
      return "";
    const auto found = kOfWeights.find(rest.substr(0, dot));
    return found != kOfWeights.end() ? found->second : "";
  }

  void take_product(const std::string& checkpoint, int layer, const ggml_tensor* node) {
    const bool product = node->op == GGML_OP_MUL_MAT;
    const ggml_tensor* input = node->src[product ? 1 : 0];
    // What a norm reads is the residual stream, and what the last product reads the activation:
    // neither has a name of its own everywhere.
    if (checkpoint.find("norm") != std::string::npos) {
      const bool plain = input->op == GGML_OP_NORM || input->op == GGML_OP_RMS_NORM;
      if (plain) input = input->src[0];
      const bool first = plain || node->op == GGML_OP_FUSED_RMS_NORM;
      if (first && checkpoint == "ffn_norm") put("attn_residual", layer, input);
      if (first && checkpoint == "attn_norm" && layer == 0) put("embedding", -1, input);
      if (first && checkpoint == "attn_norm" && layer > 0) put("output", layer - 1, input);
      if (first && checkpoint == "final_norm") put("output", layers - 1, input);
    }
    if (product && checkpoint == "ffn_out") put("ffn_act", layer, input);
    if (product && checkpoint == "attn_out") put("attn_mix", layer, input);
    if (checkpoint == "qkv") {
      const std::vector<float> data = read(node);
      const int64_t all = std::ssize(data) / nodes.tokens;
      const int64_t other = (all - width) / 2;
      put_part("q", layer, data, all, 0, width);
      put_part("k", layer, data, all, width, other);
      put_part("v", layer, data, all, width + other, other);
    } else if (checkpoint == "ffn_up" && gate_in_up) {
      const std::vector<float> data = read(node);
      const int64_t all = std::ssize(data) / nodes.tokens;
      put_part("ffn_gate", layer, data, all, 0, all / 2);
      put_part("ffn_up", layer, data, all, all / 2, all / 2);
    } else {
      put(checkpoint, layer, node);
    }
  }

  void put(const std::string& checkpoint, int layer, const ggml_tensor* node) {
    if (node->type != GGML_TYPE_F32) return;
    std::vector<float> data = read(node);
    const int64_t all = std::ssize(data) / nodes.tokens;
    put_part(checkpoint, layer, std::move(data), all, 0, all);
  }

  void put_part(const std::string& checkpoint, int layer, std::vector<float> data, int64_t all,
                int64_t begin, int64_t count) {
    nodes.put(checkpoint, layer, std::move(data), {nodes.tokens, count}, {all * 4, 4}, begin);
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return fail("usage: ik_llama MODEL TOKENS N TRACE");
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_backend_init();
  llama_model_params model_params = llama_model_default_params();
  model_params.n_gpu_layers = 0;
  llama_model* model = llama_model_load_from_file(argv[1], model_params);
  if (model == nullptr) return fail(std::string(argv[1]) + ": ik_llama.cpp cannot load it");
  const int32_t vocabulary = llama_n_vocab(model);

  lockstep::TraceInfo info;
  for (const char* at = argv[2]; *at != 0; at += *at == ',' ? 1 : 0) {
    char* end = nullptr;
    info.tokens.push_back(static_cast<int32_t>(std::strtol(at, &end, 10)));
    if (end == at) return fail("expected token ids separated by commas");
    at = end;
  }
  const auto found = static_cast<int32_t>(info.tokens.size());
  const int32_t positions = found + std::max(1, std::atoi(argv[3])) - 1;
  if (found < 1) return fail("expected a prompt");
  char architecture[64] = "";
  llama_model_meta_val_str(model, "general.architecture", architecture, sizeof architecture);
  IkCapture capture;
  capture.gate_in_up = std::strcmp(architecture, "phi3") == 0;
  capture.width = llama_model_n_embd(model);
  capture.layers = llama_n_layer(model);

  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>(positions);
  params.n_batch = params.n_ubatch = static_cast<uint32_t>(found);
  params.n_threads = params.n_threads_batch = std::max(1u, std::thread::hardware_concurrency());
  params.flash_attn = false;
  params.fused_up_gate = false;  // with it, gate and up do not exist
  params.graph_reuse = false;
  params.cb_eval = IkCapture::see;
  params.cb_eval_user_data = &capture;
  llama_context* context = llama_init_from_model(model, params);
  if (context == nullptr) return fail("ik_llama.cpp cannot make a context");

  std::optional<lockstep::TraceRecorder> trace;
  std::vector<llama_token> tokens = info.tokens;
  for (int32_t first = 0; first < positions;) {
    const int32_t count = static_cast<int32_t>(tokens.size()) - first;
    llama_batch batch = llama_batch_init(count, 0, 1);
    batch.n_tokens = count;
    for (int32_t i = 0; i < count; ++i) {
      batch.token[i] = tokens[static_cast<size_t>(first + i)];
      batch.pos[i] = first + i;
      batch.n_seq_id[i] = 1;
      batch.seq_id[i][0] = 0;
      batch.logits[i] = true;
    }
    capture.nodes.values.clear();
    capture.nodes.first = first;
    capture.nodes.tokens = count;
    if (llama_decode(context, batch) != 0) return fail("ik_llama.cpp fails");
    llama_batch_free(batch);
    if (!trace) {  // only now it is known what the engine computes with
      info.engine = "ik_llama.cpp";
      info.device = "cpu";
      info.compute = "f32";
      info.kv = "f16";
      capture.nodes.describe_weights(&info);
      info.model_file = std::filesystem::path(argv[1]).filename().string();
      info.model_path = std::filesystem::absolute(argv[1]).string();
      info.context_length = llama_n_ctx(context);
      info.architecture = architecture;
      info.sampling = {{"temperature", 0}, {"seed", 0}};
      info.notes = {"flash attention and fused feed-forward off"};
      trace.emplace(argv[4], info);
    }
    const float* logits = llama_get_logits(context);
    trace->begin_step(first, count);
    for (const auto& [place, value] : capture.nodes.values)
      trace->record(value.name, {value.data.data() + value.begin, lockstep::NumberType::kF32,
                                 value.shape, value.strides_bytes});
    trace->record("logits", logits, vocabulary);
    trace->end_step();
    first += count;
    if (first < static_cast<int32_t>(tokens.size())) continue;
    const float* last = logits + int64_t{count - 1} * vocabulary;
    tokens.push_back(static_cast<llama_token>(std::max_element(last, last + vocabulary) - last));
    trace->add_token(tokens.back());
    if (llama_token_is_eog(model, tokens.back())) break;
  }
  llama_free(context);
  llama_free_model(model);
  return trace->finish() ? 0 : fail(trace->error());
}
