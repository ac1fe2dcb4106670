#include "audit/audit.h"

namespace lockstep::audit {
namespace {

using nlohmann::ordered_json;

ordered_json number_or_null(const std::optional<double>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

template <class T>
ordered_json text_or_null(const T& text) {
  return text.empty() ? ordered_json(nullptr) : ordered_json(text);
}

ordered_json tensor_json(const TensorAudit& tensor) {
  return {{"name", tensor.name},
          {"verdict", name(tensor.verdict)},
          {"how", text_or_null(name(tensor.how))},
          {"error", number_or_null(tensor.error)},
          {"encoder_error", number_or_null(tensor.encoder_error)},
          {"best_scale_error", number_or_null(tensor.best_scale_error)},
          {"times_encoder", number_or_null(tensor.times_encoder)},
          {"type_a", text_or_null(tensor.format_a)},
          {"type_b", text_or_null(tensor.format_b)},
          {"tied", tensor.tied},
          {"detail", text_or_null(tensor.detail)}};
}

ordered_json key_json(const KeyAudit& key) {
  return {{"key", key.key},
          {"a", key.a},
          {"b", key.b},
          {"verdict", name(key.verdict)},
          {"assumed_a", key.assumed_a},
          {"assumed_b", key.assumed_b}};
}

ordered_json size_or_null(const std::optional<int64_t>& size) {
  return size ? ordered_json(*size) : ordered_json(nullptr);
}

ordered_json list_json(const ListAudit& list) {
  ordered_json first = ordered_json::array();
  for (const ListAudit::Item& item : list.first)
    first.push_back({{"index", item.index}, {"a", item.a}, {"b", item.b}});
  return {{"key", list.key},
          {"size_a", size_or_null(list.size_a)},
          {"size_b", size_or_null(list.size_b)},
          {"different", list.different},
          {"first", std::move(first)}};
}

}  // namespace

ordered_json to_json(const Audit& audit) {
  ordered_json out = {{"equal", audit.equal()},
                      {"a", audit.path_a},
                      {"b", audit.path_b},
                      {"tensors", ordered_json::array()},
                      {"metadata", ordered_json::array()}};
  for (const TensorAudit& tensor : audit.tensors) out["tensors"].push_back(tensor_json(tensor));
  for (const KeyAudit& key : audit.metadata) out["metadata"].push_back(key_json(key));
  ordered_json& tokenizer = out["tokenizer"];
  tokenizer = {{"equal", audit.tokenizer.equal()},
               {"lists", ordered_json::array()},
               {"keys", ordered_json::array()}};
  for (const ListAudit& list : audit.tokenizer.lists) tokenizer["lists"].push_back(list_json(list));
  for (const KeyAudit& key : audit.tokenizer.keys) tokenizer["keys"].push_back(key_json(key));
  return out;
}

}  // namespace lockstep::audit
