#include "trace/manifest.h"

#include <algorithm>
#include <set>

#include "base/json_reader.h"
#include "lockstep/detail/precision.h"

namespace lockstep::trace {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kFormat = "lockstep-trace";
constexpr int64_t kVersion = 1;
constexpr std::string_view kContextGrows = "positions so far";
constexpr int64_t kMost = int64_t{1} << 40;  // of anything that is counted
constexpr int64_t kMostPositions = 1 << 24;  // beyond any context; callers walk over them

ordered_json to_json(const Precision& precision) {
  ordered_json json = ordered_json::object();
  if (precision.compute) json["compute"] = *precision.compute;
  if (precision.activations) json["activations"] = *precision.activations;
  if (precision.kv) json["kv"] = *precision.kv;
  if (precision.weights) json["weights"] = *precision.weights;
  return json;
}

Result<Precision> read_precision(const JsonReader& in) {
  const auto read = [&](std::string_view field) -> Result<std::optional<std::string>> {
    const JsonReader value = in[field];
    if (!value.present()) return std::optional<std::string>();
    LS_TRY(std::string name, value.text());
    detail::PrecisionName known;
    if (!detail::read_precision_name(field, name, &known))
      return value.wrong("one of " + detail::known_precision_names(field));
    return std::optional<std::string>(std::move(name));
  };
  Precision precision;
  LS_TRY(precision.compute, read("compute"));
  LS_TRY(precision.activations, read("activations"));
  LS_TRY(precision.kv, read("kv"));
  LS_TRY(precision.weights, read("weights"));
  return precision;
}

ordered_json to_json(const ForwardInfo& forward) {
  ordered_json json = ordered_json::object();
  if (forward.context_grows)
    json["context_length"] = kContextGrows;
  else if (forward.context_length)
    json["context_length"] = *forward.context_length;
  if (forward.rope_base) json["rope_base"] = *forward.rope_base;
  if (forward.rope_scale) json["rope_scale"] = *forward.rope_scale;
  return json;
}

Result<ForwardInfo> read_forward(const JsonReader& in) {
  ForwardInfo out;
  const JsonReader context = in["context_length"];
  if (context.present() && context.value().is_string()) {
    if (context.value() != kContextGrows)
      return context.wrong(fmt::format("a number of positions, or \"{}\"", kContextGrows));
    out.context_grows = true;
  } else if (context.present()) {
    LS_TRY(out.context_length, context.integer(1, kMost));
  }
  const auto positive = [](const JsonReader& field) -> Result<std::optional<double>> {
    if (!field.present()) return std::optional<double>();
    LS_TRY(const double value, field.number());
    if (!(value > 0 && value < 1e30)) return field.wrong("a number above 0");
    return std::optional(value);
  };
  LS_TRY(out.rope_base, positive(in["rope_base"]));
  LS_TRY(out.rope_scale, positive(in["rope_scale"]));
  return out;
}

Result<CheckpointInfo> read_checkpoint(const JsonReader& in) {
  CheckpointInfo info;
  LS_TRY(info.name, in["name"].text());
  LS_TRY(const std::string dtype, in["dtype"].text());
  const auto known = find_dtype(dtype);
  if (!known) return in["dtype"].wrong("f64, f32, f16 or bf16");
  info.dtype = *known;
  LS_TRY(info.width, in["width"].integer(1, kMost));
  LS_TRY(info.full_width, in["full_width"].integer_or(0, info.width, kMost));
  return info;
}

Result<StepInfo> read_step(const JsonReader& in) {
  StepInfo step;
  LS_TRY(step.index, in["index"].integer(0, kMost));
  LS_TRY(step.first_position, in["first_pos"].integer(0, kMostPositions));
  LS_TRY(step.tokens, in["n_tokens"].integer(1, kMostPositions));
  LS_TRY(step.shard, in["shard"].text());
  // A name, never a way out of the folder.
  if (step.shard.empty() || step.shard.find('/') != std::string::npos ||
      step.shard.starts_with('.'))
    return in["shard"].wrong("the name of a file in the trace's folder");
  return step;
}

Result<std::vector<std::string>> read_texts(const JsonReader& in) {
  std::vector<std::string> texts;
  if (!in.present()) return texts;
  LS_TRY(const auto items, in.items());
  for (const JsonReader& item : items) {
    LS_TRY(std::string text, item.text());
    texts.push_back(std::move(text));
  }
  return texts;
}

// Positions are covered at most once, in order.
Result<void> check_steps(const Manifest& manifest, const std::string& path) {
  int64_t next = 0;
  std::set<int64_t> indices;
  for (const StepInfo& step : manifest.steps) {
    if (step.first_position < next)
      return error("{}: step {} starts at position {}, which an earlier step has", path, step.index,
                   step.first_position);
    next = step.first_position + step.tokens;
    if (!indices.insert(step.index).second)
      return error("{}: two steps have the index {}", path, step.index);
  }
  return {};
}

}  // namespace

std::optional<DType> find_dtype(std::string_view wanted) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16})
    if (name(dtype) == wanted) return dtype;
  return std::nullopt;
}

std::string to_json(const Manifest& manifest) {
  ordered_json json;
  json["format"] = kFormat;
  json["version"] = kVersion;
  json["complete"] = manifest.complete;
  json["engine"] = {{"name", manifest.engine.name},
                    {"version", manifest.engine.version},
                    {"device", manifest.engine.device},
                    {"precision", to_json(manifest.engine.precision)}};
  json["model"] = {{"file", manifest.model.file},
                   {"path", manifest.model.path},
                   {"architecture", manifest.model.architecture},
                   {"fingerprint", manifest.model.fingerprint},
                   {"quantization", manifest.model.quantization}};
  json["forward"] = to_json(manifest.forward);
  json["prompt"] = manifest.prompt;
  json["tokens"] = manifest.tokens;
  json["n_prompt"] = manifest.prompt_tokens;
  json["sampling"] = manifest.sampling;
  json["checkpoints"] = ordered_json::array();
  for (const CheckpointInfo& c : manifest.checkpoints) {
    json["checkpoints"].push_back({{"name", c.name}, {"dtype", name(c.dtype)}, {"width", c.width}});
    if (c.full_width > 0) json["checkpoints"].back()["full_width"] = c.full_width;
  }
  json["steps"] = ordered_json::array();
  for (const StepInfo& s : manifest.steps)
    json["steps"].push_back({{"index", s.index},
                             {"first_pos", s.first_position},
                             {"n_tokens", s.tokens},
                             {"shard", s.shard}});
  if (manifest.dropped_steps > 0) json["dropped_steps"] = manifest.dropped_steps;
  if (!manifest.notes.empty()) json["notes"] = manifest.notes;
  if (!manifest.unmapped.empty()) json["unmapped"] = manifest.unmapped;
  // Prompts may hold any bytes.
  return json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

Result<Manifest> parse_manifest(std::string_view text, const std::string& path) {
  LS_TRY(const nlohmann::json document, parse_json(text, path));
  const JsonReader in(document, path);
  LS_TRY_VOID(in.document(kFormat, kVersion));
  Manifest manifest;
  LS_TRY(manifest.complete, in["complete"].boolean());
  const JsonReader engine = in["engine"];
  LS_TRY(manifest.engine.name, engine["name"].text());
  LS_TRY(manifest.engine.version, engine["version"].text_or(""));
  LS_TRY(manifest.engine.device, engine["device"].text_or(""));
  if (engine["precision"].present()) {
    LS_TRY(manifest.engine.precision, read_precision(engine["precision"]));
  }
  if (const JsonReader model = in["model"]; model.present()) {
    LS_TRY(manifest.model.file, model["file"].text_or(""));
    LS_TRY(manifest.model.path, model["path"].text_or(""));
    LS_TRY(manifest.model.architecture, model["architecture"].text_or(""));
    LS_TRY(manifest.model.fingerprint, model["fingerprint"].text_or(""));
    LS_TRY(manifest.model.quantization, model["quantization"].text_or(""));
  }
  if (in["forward"].present()) {
    LS_TRY(manifest.forward, read_forward(in["forward"]));
  }
  LS_TRY(manifest.prompt, in["prompt"].text_or(""));
  if (in["tokens"].present()) {
    LS_TRY(const auto items, in["tokens"].items());
    for (const JsonReader& item : items) {
      LS_TRY(const int64_t id, item.integer(0, INT32_MAX));
      manifest.tokens.push_back(static_cast<int32_t>(id));
    }
  }
  LS_TRY(manifest.prompt_tokens,
         in["n_prompt"].integer_or(0, 0, static_cast<int64_t>(manifest.tokens.size())));
  if (in["sampling"].present())
    manifest.sampling = ordered_json::parse(in["sampling"].value().dump());
  LS_TRY(const auto checkpoints, in["checkpoints"].items());
  std::set<std::string> names;
  for (const JsonReader& item : checkpoints) {
    LS_TRY(CheckpointInfo info, read_checkpoint(item));
    if (!names.insert(info.name).second)
      return item["name"].wrong("a name that no other checkpoint has");
    manifest.checkpoints.push_back(std::move(info));
  }
  LS_TRY(const auto steps, in["steps"].items());
  for (const JsonReader& item : steps) {
    LS_TRY(StepInfo step, read_step(item));
    manifest.steps.push_back(std::move(step));
  }
  LS_TRY(manifest.dropped_steps, in["dropped_steps"].integer_or(0, 0, kMost));
  LS_TRY(manifest.notes, read_texts(in["notes"]));
  LS_TRY(manifest.unmapped, read_texts(in["unmapped"]));
  LS_TRY_VOID(check_steps(manifest, path));
  return manifest;
}

}  // namespace lockstep::trace
