#include "hub/config.h"

#include <fmt/ranges.h>

#include "base/text.h"
#include "hub/config_parts.h"

namespace lockstep::hub {
namespace {

// Of models that see or hear too, the part that writes is within.
Result<JsonReader> text_part(const JsonReader& root) {
  LS_TRY_VOID(root.object());
  const JsonReader within = root["text_config"];
  if (!within.present()) return root;
  LS_TRY_VOID(within.object());
  LS_TRY(const std::string outer, root["model_type"].text_or(""));
  return find_family(outer) != nullptr ? root : within;
}

Result<const Family*> family_of(const JsonReader& config) {
  LS_TRY(const std::string type, config["model_type"].text());
  if (const Family* family = find_family(type)) return family;
  std::vector<std::string_view> known;
  for (const Family& family : families()) known.push_back(family.model_type);
  return config["model_type"].wrong(fmt::format("one of {}", fmt::join(known, ", ")));
}

Result<void> check_demands(const Settings& in) {
  for (const Demand& demand : in.family().demands) {
    if (!in.has(demand.key)) continue;
    const std::string found =
        in.at(demand.key).value().dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    bool fits = false;
    std::string expected;
    for (size_t begin = 0; begin < demand.values.size();) {
      const size_t end = std::min(demand.values.find(' ', begin), demand.values.size());
      const std::string_view value = demand.values.substr(begin, end - begin);
      fits |= found == value;
      expected += fmt::format("{}{}", expected.empty() ? "" : " or ", value);
      begin = end + 1;
    }
    if (!fits) return in.at(demand.key).wrong(expected + ", nothing else is supported");
  }
  return {};
}

Result<void> read_numbers(const Settings& in, std::span<const Number> numbers, Keys& keys) {
  for (const Number& number : numbers) {
    if (number.kind == Number::Kind::kCount) {
      const bool other = !number.other.empty() && !in.has(number.hub) && in.has(number.other);
      LS_TRY(const std::optional<int64_t> value,
             in.count(other ? number.other : number.hub, number.may_be_zero ? 0 : 1));
      if (value) keys.count(number.gguf, *value);
      if (!value && number.required) return in.at(number.hub).wrong("a whole number");
      continue;
    }
    LS_TRY(std::optional<double> value, in.real(number.hub));
    if (!value && number.null_is_zero && in.is_null(number.hub)) value = 0;
    if (value) keys.real(number.gguf, *value);
    if (!value && number.required) return in.at(number.hub).wrong("a number");
  }
  return {};
}

Result<void> read_flags(const Settings& in, Keys& keys) {
  for (const Flag& flag : in.family().flags) {
    bool value = flag.otherwise;
    if (in.has(flag.hub)) {
      LS_TRY(value, in.at(flag.hub).boolean());
    }
    if (value != flag.usual) keys.put(flag.gguf, value);
  }
  return {};
}

// GGUF files have no key for it: both are what readers take.
Result<void> check_query_scale(const Settings& in, const Config& out, int64_t width,
                               int64_t head_size) {
  if (!in.family().root_of_head) return {};
  const bool by_width = out.layers == in.family().scaled_by_width;
  const int64_t expected = by_width ? width / out.heads : head_size;
  LS_TRY(const std::optional<double> found, in.real("query_pre_attn_scalar"));
  if (found == static_cast<double>(expected)) return {};
  return in.at("query_pre_attn_scalar")
      .wrong(fmt::format("{}, the size of a head: GGUF files have no key for another scale",
                         expected));
}

// A list with 0 for layers that do not rotate, or the distance between them.
Result<void> check_unrotated(const Settings& in, const Config& out) {
  const int64_t period = in.family().unrotated_period;
  if (period == 0) return {};
  const JsonReader list = in.at("no_rope_layers");
  if (!list.present()) {
    LS_TRY(const std::optional<int64_t> found, in.count("no_rope_layer_interval"));
    if (found == period) return {};
    return in.at("no_rope_layer_interval").wrong(fmt::format("{}", period));
  }
  LS_TRY(const std::vector<JsonReader> items, list.items());
  const std::string expected = fmt::format(
      "for each of {} layers a 1, or a 0 where it is the last of {}", out.layers, period);
  if (static_cast<int64_t>(items.size()) != out.layers) return list.wrong(expected);
  for (size_t i = 0; i < items.size(); ++i) {
    LS_TRY(const int64_t rotated, items[i].integer(0, 1));
    const bool last = static_cast<int64_t>(i) % period == period - 1;
    if (rotated != (last ? 0 : 1)) return items[i].wrong(expected);
  }
  return {};
}

// Quantized weights: eight-bit floats with a scale for each block are supported, and the experts of
// gpt-oss in four-bit ones, whose tensors say all there is to know.
Result<void> read_quantization(const JsonReader& root, const JsonReader& config, Config& out) {
  for (const JsonReader& at : {root["quantization_config"], config["quantization_config"]}) {
    if (!at.present()) continue;
    LS_TRY_VOID(at.object());
    LS_TRY(const std::string method, at["quant_method"].text_or(""));
    if (method == "mxfp4") continue;
    if (method != "fp8")
      return at["quant_method"].wrong(
          "\"fp8\" with weight_block_size, \"mxfp4\", or no quantization_config: other quantized "
          "weights are not supported");
    LS_TRY(const std::string format, at["fmt"].text_or("e4m3"));
    if (format != "e4m3" && format != "float8_e4m3fn") return at["fmt"].wrong("\"e4m3\"");
    LS_TRY(const std::vector<JsonReader> sizes, at["weight_block_size"].items());
    if (sizes.size() != 2) return at["weight_block_size"].wrong("two whole numbers");
    LS_TRY(out.block_rows, sizes[0].integer(1, kLargestCount));
    LS_TRY(out.block_columns, sizes[1].integer(1, kLargestCount));
  }
  return {};
}

}  // namespace

Result<Config> read_config(std::string_view text, const std::string& source) {
  constexpr int64_t kMostValues = 1'000'000;
  LS_TRY(const nlohmann::json document, parse_json(text, source, kMostValues));
  const JsonReader root(document, source);
  LS_TRY(const JsonReader config, text_part(root));
  Config out;
  LS_TRY(out.family, family_of(config));
  LS_TRY_VOID(read_quantization(root, config, out));
  const Settings in(config, *out.family);
  LS_TRY_VOID(check_demands(in));

  out.metadata.push_back({"general.architecture", {std::string(out.family->architecture)}});
  Keys keys(out);
  const bool gpt2 = out.family->own_numbers_only;
  LS_TRY(out.layers, in.needed_count(gpt2 ? "n_layer" : "num_hidden_layers", kMostLayers));
  LS_TRY(out.heads, in.needed_count(gpt2 ? "n_head" : "num_attention_heads"));
  LS_TRY(const std::optional<int64_t> kv_heads, in.count("num_key_value_heads"));
  out.kv_heads = kv_heads.value_or(out.heads);
  keys.count("block_count", out.layers);
  if (!gpt2) LS_TRY_VOID(read_numbers(in, common_numbers(), keys));
  if (!gpt2 && !out.family->latent) LS_TRY_VOID(read_numbers(in, head_numbers(), keys));
  LS_TRY_VOID(read_latent(in, out));
  LS_TRY_VOID(read_numbers(in, out.family->numbers, keys));
  LS_TRY_VOID(read_flags(in, keys));
  LS_TRY(const int64_t width, in.needed_count(gpt2 ? "n_embd" : "hidden_size"));
  if (gpt2 && !in.has("n_inner")) keys.count("feed_forward_length", 4 * width);

  // What is rotated is a head, or in latent attention a row of its own.
  LS_TRY(const std::optional<int64_t> own_size,
         in.count(out.family->latent ? "qk_rope_head_dim" : "head_dim"));
  const int64_t head_size = own_size.value_or(width / out.heads);
  LS_TRY_VOID(check_query_scale(in, out, width, head_size));
  LS_TRY_VOID(check_unrotated(in, out));
  if (out.family->rotated) {
    if (!out.family->sees_all) LS_TRY_VOID(read_window(in, out));
    LS_TRY_VOID(read_rope(in, head_size, out));
  }
  if (out.family->may_be_parallel) {
    const JsonReader at = in.at("use_parallel_residual");
    out.parallel = false;
    if (at.present()) {
      LS_TRY(out.parallel, at.boolean());
    }
  }
  out.tied = out.family->tied;
  for (const JsonReader& at : {root["tie_word_embeddings"], config["tie_word_embeddings"]}) {
    if (!at.present()) continue;
    LS_TRY(out.tied, at.boolean());
    out.has_output = !out.tied;
  }
  return out;
}

}  // namespace lockstep::hub
