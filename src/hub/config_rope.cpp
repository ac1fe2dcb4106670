#include <algorithm>
#include <cmath>
#include <numbers>

#include "hub/config_parts.h"

namespace lockstep::hub {
namespace {

constexpr std::string_view kFirstLongrope = "su";  // in Phi-3's first files

// Where transformers looks for a number of the rotation: in its object, then beside it.
class RopeSettings {
 public:
  RopeSettings(const Settings& in, JsonReader object) : in_(in), object_(std::move(object)) {}

  // Where the key stands, for messages.
  JsonReader at(std::string_view key) const {
    return object_[key].present() || !in_.has(key) ? object_[key] : in_.at(key);
  }

  Result<std::optional<double>> real(std::string_view key) const {
    if (!object_[key].present()) return std::optional<double>();
    LS_TRY(const double found, finite_number(object_[key]));
    return std::optional(found);
  }
  Result<double> needed(std::string_view key) const {
    LS_TRY(const double found, finite_number(object_[key]));
    return found;
  }
  Result<double> positive(std::string_view key) const {
    LS_TRY(const double found, needed(key));
    if (!(found > 0)) return object_[key].wrong("more than 0");
    return found;
  }
  Result<double> real_or(std::string_view key, double otherwise) const {
    LS_TRY(const std::optional<double> own, real(key));
    if (own) return *own;
    LS_TRY(const std::optional<double> beside, in_.real(key));
    return beside.value_or(otherwise);
  }

  // "default", "linear", ...
  Result<std::string> type() const {
    if (!object_.present()) return std::string("default");
    LS_TRY(const std::string older, object_["type"].text_or("default"));
    LS_TRY(const std::string type, object_["rope_type"].text_or(older));
    if (type == kFirstLongrope) return std::string("longrope");
    return type;
  }

  // The context that the model had before it was extended.
  Result<int64_t> original_context() const {
    constexpr std::string_view kKey = "original_max_position_embeddings";
    // Phi-3 has it twice, and the one beside counts.
    if (in_.has(kKey)) return in_.needed_count(kKey);
    if (object_[kKey].present()) return object_[kKey].integer(1, kLargestCount);
    return in_.needed_count("max_position_embeddings");
  }

  Result<std::vector<float>> numbers(std::string_view key) const {
    std::vector<float> out;
    LS_TRY(const std::vector<JsonReader> items, object_[key].items());
    for (const JsonReader& item : items) {
      LS_TRY(const double number, finite_number(item));
      out.push_back(static_cast<float>(number));
    }
    return out;
  }

 private:
  const Settings& in_;
  JsonReader object_;
};

// How much YaRN sharpens attention by itself.
double yarn_magnitude(double factor, double scale) {
  return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1;
}

Result<void> read_yarn(const Settings& in, const RopeSettings& rope, Keys& keys) {
  const JsonReader truncate = rope.at("truncate");
  bool whole = true;
  if (truncate.present()) {
    LS_TRY(whole, truncate.boolean());
  }
  if (whole != in.family().yarn_whole_pairs)
    return truncate.wrong(fmt::format("{}: GGUF files have no key for it", !whole));
  LS_TRY(const int64_t original, rope.original_context());
  double factor = 0;
  if (rope.at("factor").present()) {
    LS_TRY(factor, rope.positive("factor"));
  } else {
    LS_TRY(const int64_t context, in.needed_count("max_position_embeddings"));
    factor = static_cast<double>(context) / static_cast<double>(original);
  }
  keys.put("rope.scaling.type", std::string("yarn"));
  keys.real("rope.scaling.factor", factor);
  keys.count("rope.scaling.original_context_length", original);
  LS_TRY(const std::optional<double> fast, rope.real("beta_fast"));
  LS_TRY(const std::optional<double> slow, rope.real("beta_slow"));
  if (fast.value_or(0) != 0) keys.real("rope.scaling.yarn_beta_fast", *fast);
  if (slow.value_or(0) != 0) keys.real("rope.scaling.yarn_beta_slow", *slow);

  LS_TRY(const std::optional<double> scale, rope.real("mscale"));
  LS_TRY(const std::optional<double> scale_all, rope.real("mscale_all_dim"));
  double magnitude = yarn_magnitude(factor, 1);
  if (scale.value_or(0) != 0 && scale_all.value_or(0) != 0)
    magnitude = yarn_magnitude(factor, *scale) / yarn_magnitude(factor, *scale_all);
  LS_TRY(magnitude, rope.real_or("attention_factor", magnitude));
  // Readers of GGUF files sharpen too: the key is what comes on top of that. Latent attention
  // sharpens all scores instead, where it is told to.
  const bool all_scores = in.family().latent && scale_all.value_or(0) != 0;
  if (all_scores) keys.real("rope.scaling.yarn_log_multiplier", 0.1 * *scale_all);
  const double own = all_scores ? 1 : 1 + 0.1 * std::log(factor);
  if (!(own > 0) || !std::isfinite(magnitude / own))
    return rope.at("factor").wrong("a factor that extends the context");
  if (const auto more = static_cast<float>(magnitude / own); more != 1.0F)
    keys.real("rope.scaling.attn_factor", static_cast<double>(more));
  return {};
}

Result<void> read_longrope(const Settings& in, const RopeSettings& rope, Config& out, Keys& keys) {
  LS_TRY(const int64_t original, rope.original_context());
  LS_TRY(const int64_t context, in.needed_count("max_position_embeddings"));
  const double ratio = static_cast<double>(context) / static_cast<double>(original);
  LS_TRY(const std::optional<double> own, rope.real("factor"));
  const double factor = own.value_or(ratio);
  double magnitude = 1;
  if (factor > 1 && original > 1)
    magnitude = std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(original)));
  LS_TRY(magnitude, rope.real_or("attention_factor", magnitude));
  keys.put("rope.scaling.type", std::string("longrope"));
  keys.count("rope.scaling.original_context_length", original);
  keys.real("rope.scaling.attn_factor", magnitude);
  for (const auto& [key, name] : {std::pair("short_factor", "rope_factors_short.weight"),
                                  std::pair("long_factor", "rope_factors_long.weight")}) {
    LS_TRY(std::vector<float> numbers, rope.numbers(key));
    if (numbers.empty()) return rope.at(key).wrong("a number for each pair of a head");
    out.factors.push_back({name, std::move(numbers)});
  }
  return {};
}

// Llama 3.1's: slow pairs are slowed down by the factor, fast ones are not.
Result<void> read_llama3(const RopeSettings& rope, double base, int64_t dims, Config& out) {
  LS_TRY(const double factor, rope.positive("factor"));
  LS_TRY(const double low, rope.needed("low_freq_factor"));
  LS_TRY(const double high, rope.needed("high_freq_factor"));
  LS_TRY(const int64_t original, rope.original_context());
  if (!(low < high)) return rope.at("high_freq_factor").wrong("more than low_freq_factor");
  Factors factors{"rope_freqs.weight", {}};
  for (int64_t pair = 0; pair < dims / 2; ++pair) {
    const double part = 2 * static_cast<double>(pair) / static_cast<double>(dims);
    const double turns =
        static_cast<double>(original) * std::pow(base, -part) / (2 * std::numbers::pi);
    const double own = std::clamp((turns - low) / (high - low), 0.0, 1.0);
    factors.numbers.push_back(static_cast<float>(1 / ((1 - own) / factor + own)));
  }
  out.factors.push_back(std::move(factors));
  return {};
}

Result<void> read_scaling(const Settings& in, const RopeSettings& rope, double base, int64_t dims,
                          Config& out) {
  Keys keys(out);
  LS_TRY(const std::string type, rope.type());
  if (type == "default") return {};
  if (const JsonReader sharpened = rope.at("mscale_all_dim");
      in.family().latent && type != "yarn" && sharpened.present())
    return sharpened.wrong("none without yarn: GGUF files have no key for it");
  if (type == "linear") {
    LS_TRY(const double factor, rope.positive("factor"));
    keys.put("rope.scaling.type", type);
    keys.real("rope.scaling.factor", factor);
    return {};
  }
  if (type == "yarn") return read_yarn(in, rope, keys);
  if (type == "longrope") return read_longrope(in, rope, out, keys);
  if (type == "llama3") return read_llama3(rope, base, dims, out);
  const char* key = rope.at("rope_type").present() ? "rope_type" : "type";
  return rope.at(key).wrong("default, linear, yarn, llama3 or longrope");
}

// Windowed layers have a base of their own, and no extension.
Result<void> read_windowed(const Settings& in, const JsonReader& object, double base, Keys& keys) {
  const RopeSettings rope(in, object);
  LS_TRY(const std::string type, rope.type());
  if (type != "default") return rope.at("rope_type").wrong("default, in layers with a window");
  const double usual = in.family().windowed_rope_base;
  LS_TRY(const std::optional<double> older, in.real("rope_local_base_freq"));
  LS_TRY(const std::optional<double> own, rope.real("rope_theta"));
  keys.real("rope.freq_base_swa", own.value_or(older.value_or(usual > 0 ? usual : base)));
  return {};
}

}  // namespace

Result<void> read_rope(const Settings& in, int64_t head_size, Config& out) {
  Keys keys(out);
  JsonReader object =
      in.at("rope_parameters").present() ? in.at("rope_parameters") : in.at("rope_scaling");
  if (object.present()) LS_TRY_VOID(object.object());
  if (!object.present() && in.family().rope_needed)
    return in.at("rope_scaling").wrong("an object that says how positions are rotated");
  const JsonReader windowed = object["sliding_attention"];
  if (windowed.present()) LS_TRY_VOID(windowed.object());
  if (object["full_attention"].present()) object = object["full_attention"];
  const RopeSettings rope(in, object);
  LS_TRY(const double base, rope.real_or("rope_theta", in.family().rope_base));
  if (!(base > 1)) return rope.at("rope_theta").wrong("more than 1");
  LS_TRY(const double part, rope.real_or("partial_rotary_factor", in.family().rotary_part));
  if (!(part > 0 && part <= 1)) return rope.at("partial_rotary_factor").wrong("0 to 1");
  for (const TensorName& tensor : in.family().tensors)
    if (tensor.change == Change::kPairHeads && part != 1)
      return rope.at("partial_rotary_factor").wrong("1 in this architecture");
  const auto dims = static_cast<int64_t>(static_cast<double>(head_size) * part);
  keys.count("rope.dimension_count", dims);
  keys.real("rope.freq_base", base);
  LS_TRY_VOID(read_scaling(in, rope, base, dims, out));
  if (in.family().own_windowed_rope) LS_TRY_VOID(read_windowed(in, windowed, base, keys));
  return {};
}

}  // namespace lockstep::hub
