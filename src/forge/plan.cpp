#include "forge/plan.h"

#include <algorithm>
#include <set>

#include "forge/formats.h"
#include "forge/metadata.h"
#include "model/forward.h"

namespace lockstep::forge {
namespace {

bool is_rope_factor(std::string_view name) {
  return name.starts_with("rope_");
}

// Notes what the forward pass asks for. The weights that it hands out are empty.
class PlannedWeights : public model::Weights {
 public:
  explicit PlannedWeights(const Spec& spec) : spec_(spec) {}

  bool has(const std::string& name) const override {
    if (name == "output.weight") return !spec_.tied;
    if (name == "rope_freqs.weight") return spec_.rope_factors.kind == RopeFactors::Kind::kShared;
    if (is_rope_factor(name)) return spec_.rope_factors.kind == RopeFactors::Kind::kLongShort;
    if (name.ends_with(".ffn_norm.weight")) return true;  // what can do without it mostly has it
    // No known model has a bias of the logits, and other engines refuse it.
    return name.ends_with(".bias") && name != "output.bias" && spec_.biases;
  }

  std::vector<gguf::TensorPlan> take() { return std::move(tensors_); }

 protected:
  op::Weight find(const std::string& name, const std::vector<int64_t>& dims) override {
    if (names_.insert(name).second) tensors_.push_back({name, nullptr, dims});
    op::Weight weight;
    weight.name = name;
    return weight;
  }

 private:
  const Spec& spec_;
  std::set<std::string> names_;  // a tied embedding is asked for twice
  std::vector<gguf::TensorPlan> tensors_;
};

int64_t values_of(const gguf::TensorPlan& tensor) {
  int64_t values = 1;
  for (const int64_t dim : tensor.dims) values *= dim;
  return values;
}

}  // namespace

int64_t Plan::parameters() const {
  int64_t sum = 0;
  for (const gguf::TensorPlan& tensor : tensors)
    if (!is_rope_factor(tensor.name)) sum += values_of(tensor);
  return sum;
}

int64_t Plan::data_bytes() const {
  int64_t sum = 0;
  for (const gguf::TensorPlan& tensor : tensors)
    sum += quant::size_bytes(*tensor.format, values_of(tensor));
  return sum;
}

Result<Plan> plan_model(const Spec& spec) {
  LS_TRY(const FormatChoice choice, FormatChoice::find(spec.type, spec.pure));
  Plan plan;
  LS_TRY(plan.metadata, metadata_of(spec));
  LS_TRY(plan.config, config_of(spec, plan.metadata));
  // Before the tokenizer, whose long lists push whatever follows out of sight.
  const auto place = std::ranges::find_if(
      plan.metadata, [](const gguf::Entry& entry) { return entry.key.starts_with("tokenizer."); });
  plan.metadata.insert(place, {{"general.file_type", gguf::Value{choice.file_type()}},
                               {"general.quantization_version", gguf::Value{uint32_t{2}}}});

  PlannedWeights weights(spec);
  model::forward_pass(plan.config, plan.config.context_length, weights);
  plan.tensors = weights.take();
  const quant::ModelShape shape{.layers = plan.config.layers,
                                .heads = plan.config.heads,
                                .kv_heads = plan.config.kv_heads,
                                .tied_output = spec.tied,
                                .experts = plan.config.experts.count > 0};
  for (gguf::TensorPlan& tensor : plan.tensors)
    tensor.format = &quant::info(choice.format_of(shape, tensor.name, tensor.dims));
  return plan;
}

}  // namespace lockstep::forge
