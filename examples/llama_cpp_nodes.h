// Of llama_cpp.cpp: which nodes of llama.cpp's graph are checkpoints, by the rules of
// python/lockstep/capture/names/llama.cpp.json, and their numbers.
#pragma once

#include <algorithm>
#include <map>
#include <regex>
#include <set>

#include <ggml-backend.h>
#include <lockstep/recorder.h>

// Checkpoints in order of execution, and the nodes that they are; those of a layer end in a dash
// and its number. Of several the last one counts: the product, its sum with the bias and the
// rotated keys are all called Kcur.
inline const std::string kOrder =
    " embedding attn_norm q k v q_rope k_rope attn_scores attn_probs attn_mix attn_out "
    "attn_residual ffn_norm ffn_gate ffn_up ffn_act ffn_out output final_norm logits ";
inline const std::string kNodes =
    " embd:embedding inpL:embedding attn_norm-:attn_norm Qcur-:q Qcur_normed-:q Kcur-:k "
    "Kcur_normed-:k Vcur-:v kq-:attn_scores kq_soft_max-:attn_probs kqv_out-:attn_mix "
    "ffn_inp-:attn_residual norm-:phi3_residual ffn_norm-:ffn_norm ffn_gate-:ffn_gate "
    "ffn_gate_b-:ffn_gate ffn_up-:ffn_up ffn_up_b-:ffn_up ffn_swiglu-:ffn_act ffn_geglu-:ffn_act "
    "ffn_gelu-:ffn_act ffn_silu-:ffn_act ffn_gate_par-:ffn_act ffn_out-:ffn_out l_out-:output "
    "result_norm:final_norm result_output:logits ";

// A checkpoint of a step: a part of what its node holds.
struct Value {
  std::string name;
  std::vector<float> data;
  std::vector<int64_t> shape, strides_bytes;
  int64_t begin = 0;
};

// All numbers of a node, dense, wherever it lies. What is recorded on a CPU is f32.
inline std::vector<float> read(const ggml_tensor* node) {
  std::vector<char> raw(ggml_nbytes(node));
  ggml_backend_tensor_get(node, raw.data(), 0, raw.size());
  std::vector<float> out(static_cast<size_t>(ggml_nelements(node)));
  float* to = out.data();
  for (size_t c = 0; c < static_cast<size_t>(node->ne[2]); ++c)
    for (size_t b = 0; b < static_cast<size_t>(node->ne[1]); ++b)
      for (size_t a = 0; a < static_cast<size_t>(node->ne[0]); ++a)
        std::memcpy(to++, &raw[a * node->nb[0] + b * node->nb[1] + c * node->nb[2]], sizeof *to);
  return out;
}

struct Capture {
  bool phi3 = false;
  int64_t first = 0, tokens = 0;                              // of the step
  std::map<std::pair<int, size_t>, Value> values;             // by layer and kOrder
  std::map<const ggml_tensor*, std::vector<float>> products;  // of queries and keys
  std::vector<std::pair<std::string, size_t>> weight_bytes;   // by type
  std::set<std::string> weights, unmapped;

  // For llama_context_params.cb_eval: asked before a node is computed whether we want it, called
  // after that with its numbers.
  static bool see(ggml_tensor* node, bool asking, void* self) {
    auto* capture = static_cast<Capture*>(self);
    if (asking) return capture->ask(node);
    capture->take(node);
    return true;
  }

  // The checkpoint that a node is, "" where it is none; layer -1 where it belongs to none.
  std::string find(const ggml_tensor* node, int* layer) const {
    char kind[8];
    for (const ggml_tensor* source : node->src)
      if (source != nullptr &&
          std::sscanf(source->name, "blk.%d.attn_output.%7s", layer, kind) == 2)
        return "attn_out";
    std::string name = node->name;
    const size_t digits = name.find_last_not_of("0123456789") + 1;
    const bool numbered = digits > 0 && digits < name.size() && name[digits - 1] == '-';
    *layer = numbered ? std::atoi(&name[digits]) : -1;
    if (numbered) name.resize(digits);
    const size_t found = kNodes.find(" " + name + ":");
    if (found == std::string::npos) return "";
    const size_t begin = found + name.size() + 2;
    const std::string checkpoint = kNodes.substr(begin, kNodes.find(' ', begin) - begin);
    if (checkpoint == "q" || checkpoint == "k") {
      if (node->op == GGML_OP_ROPE) return checkpoint + "_rope";
      return node->op == GGML_OP_SCALE ? "" : checkpoint;
    }
    if (checkpoint == "phi3_residual") return phi3 ? "attn_residual" : "";
    return phi3 && checkpoint == "attn_residual" ? "" : checkpoint;
  }

  bool ask(const ggml_tensor* node) {
    const ggml_tensor* source = node->src[0];
    if (node->op == GGML_OP_MUL_MAT && source->op == GGML_OP_NONE &&
        std::strstr(source->name, "weight") != nullptr && weights.insert(source->name).second) {
      const std::string type = ggml_type_name(source->type);
      const auto same = [&](const auto& entry) { return entry.first == type; };
      auto entry = std::find_if(weight_bytes.begin(), weight_bytes.end(), same);
      if (entry == weight_bytes.end()) entry = weight_bytes.insert(entry, {type, 0});
      entry->second += ggml_nbytes(source);
    }
    int layer;
    if (!find(node, &layer).empty()) return true;
    static const std::regex kNumber("([-_.l])[0-9]+");
    const bool unnamed = std::strncmp(node->name, "node_", 5) == 0;
    unmapped.insert(unnamed ? "(" + std::string(ggml_op_name(node->op)) + ")"
                            : std::regex_replace(node->name, kNumber, "$1{N}"));
    return node->op == GGML_OP_SOFT_MAX;
  }

  void take(const ggml_tensor* node) {
    int layer;
    const std::string checkpoint = find(node, &layer);
    if (checkpoint.empty()) return;
    // Phi-3 gives the sum no name: it is what the norm reads.
    std::vector<float> data = read(phi3 && checkpoint == "attn_residual" ? node->src[0] : node);
    const int64_t width = static_cast<int64_t>(data.size()) / tokens;
    if (checkpoint == "attn_scores") {
      products[node] = std::move(data);
    } else if (checkpoint == "attn_probs") {
      // The softmax scales and masks the scores: the same here. [heads, tokens, cells of the
      // cache], of which those up to the last of this step are positions.
      std::vector<float>& scores = products[node->src[0]];
      const std::vector<float> mask = read(node->src[1]);
      float scale;
      std::memcpy(&scale, node->op_params, sizeof scale);
      for (size_t i = 0; i < scores.size(); ++i) {
        scores[i] *= scale;
        scores[i] += mask[i % static_cast<size_t>(node->ne[0] * node->ne[1])];
      }
      const std::vector<int64_t> shape = {node->ne[2], tokens, first + tokens};
      const int64_t row = node->ne[0] * 4;
      put("attn_scores", layer, std::move(scores), shape, {row * tokens, row, 4});
      put("attn_probs", layer, std::move(data), shape, {row * tokens, row, 4});
    } else if (phi3 && checkpoint == "ffn_up") {  // the gate and it side by side
      put("ffn_gate", layer, data, {tokens, width / 2}, {width * 4, 4});
      put("ffn_up", layer, data, {tokens, width / 2}, {width * 4, 4}, width / 2);
    } else {
      put(checkpoint, layer, std::move(data), {tokens, width}, {width * 4, 4});
    }
  }

  void put(const std::string& checkpoint, int layer, std::vector<float> data,
           std::vector<int64_t> shape, std::vector<int64_t> strides_bytes, int64_t begin = 0) {
    const std::string name =
        layer < 0 ? checkpoint : "blk." + std::to_string(layer) + "." + checkpoint;
    const int order = layer >= 0 ? layer : checkpoint == "embedding" ? -1 : INT32_MAX;
    values[{order, kOrder.find(" " + checkpoint + " ")}] = {name, std::move(data), std::move(shape),
                                                            std::move(strides_bytes), begin};
  }

  // A product rounds its other factor to what goes with the type of the weight.
  void describe_weights(lockstep::TraceInfo* info) const {
    const char* kRounded[] = {"f32", "by_weight", "q8_0", "q8_1", "q8_k"};
    size_t rank = 0, most = 0;
    for (const auto& [type, bytes] : weight_bytes) {
      const bool half = type == "f16" || type == "bf16";
      const bool sums = type == "q4_1" || type == "q5_1";
      const bool large =
          type.find("_K") != std::string::npos || (type[0] == 'i' && type != "iq4_nl");
      rank = std::max<size_t>(rank, large ? 4 : sums ? 3 : half ? 1 : type == "f32" ? 0 : 2);
      if (bytes > most) info->quantization = type;
      most = std::max(most, bytes);
    }
    for (char& c : info->quantization) c = static_cast<char>(std::toupper(c));
    info->activations = kRounded[rank];
  }
};
