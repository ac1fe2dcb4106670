#include "trace/manifest.h"

#include <algorithm>
#include <set>

#include "base/json_reader.h"
#include "lockstep/detail/json.h"
#include "lockstep/detail/limits.h"
#include "lockstep/detail/precision.h"

namespace lockstep::trace {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kFormat = "lockstep-trace";
constexpr int64_t kVersion = 1;
constexpr std::string_view kContextGrows = "positions so far";
constexpr int64_t kMost = detail::kMostWidth;

// Text as it is written, not a document in memory: the library for those does not survive that
// memory runs out while it builds one.
std::string precision_text(const Precision& precision) {
  const auto given = [](const std::optional<std::string>& name) {
    return name ? detail::json_text(*name) : "";
  };
  return detail::json_object({{"compute", given(precision.compute)},
                              {"activations", given(precision.activations)},
                              {"kv", given(precision.kv)},
                              {"weights", given(precision.weights)},
                              {"sums", given(precision.sums)}});
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
  LS_TRY(precision.sums, read("sums"));
  return precision;
}

std::string forward_text(const ForwardInfo& forward) {
  const auto given = [](const std::optional<double>& value) {
    return value ? detail::json_number(*value) : "";
  };
  std::string context;
  if (forward.context_grows)
    context = detail::json_text(kContextGrows);
  else if (forward.context_length)
    context = std::to_string(*forward.context_length);
  return detail::json_object({{"context_length", context},
                              {"rope_base", given(forward.rope_base)},
                              {"rope_scale", given(forward.rope_scale)}});
}

std::string list_text(const std::vector<std::string>& texts) {
  std::vector<std::string> quoted;
  for (const std::string& text : texts) quoted.push_back(detail::json_text(text));
  return texts.empty() ? "" : detail::json_list(quoted);
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
  if (!detail::is_name(info.name)) return in["name"].wrong(detail::kNameRule);
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
  LS_TRY(step.first_position, in["first_pos"].integer(0, detail::kMostPositions - 1));
  LS_TRY(step.tokens, in["n_tokens"].integer(1, detail::kMostPositions - step.first_position));
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
  using detail::json_object;
  using detail::json_text;
  const EngineInfo& engine = manifest.engine;
  const ModelInfo& model = manifest.model;
  std::vector<std::string> checkpoints, steps;
  for (const CheckpointInfo& c : manifest.checkpoints)
    checkpoints.push_back(
        json_object({{"name", json_text(c.name)},
                     {"dtype", json_text(name(c.dtype))},
                     {"width", std::to_string(c.width)},
                     {"full_width", c.full_width > 0 ? std::to_string(c.full_width) : ""}}));
  for (const StepInfo& s : manifest.steps)
    steps.push_back(json_object({{"index", std::to_string(s.index)},
                                 {"first_pos", std::to_string(s.first_position)},
                                 {"n_tokens", std::to_string(s.tokens)},
                                 {"shard", json_text(s.shard)}}));
  return detail::json_document(
      {{"format", json_text(kFormat)},
       {"version", std::to_string(kVersion)},
       {"complete", manifest.complete ? "true" : "false"},
       {"engine", json_object({{"name", json_text(engine.name)},
                               {"version", json_text(engine.version)},
                               {"device", json_text(engine.device)},
                               {"precision", precision_text(engine.precision)}})},
       {"model", json_object({{"file", json_text(model.file)},
                              {"path", json_text(model.path)},
                              {"architecture", json_text(model.architecture)},
                              {"fingerprint", json_text(model.fingerprint)},
                              {"quantization", json_text(model.quantization)}})},
       {"forward", forward_text(manifest.forward)},
       {"prompt", json_text(manifest.prompt)},
       {"tokens", detail::json_array(manifest.tokens)},
       {"n_prompt", std::to_string(manifest.prompt_tokens)},
       {"sampling", manifest.sampling.dump(-1, ' ', false, ordered_json::error_handler_t::replace)},
       {"checkpoints", detail::json_list(checkpoints)},
       {"steps", detail::json_list(steps)},
       {"dropped_steps", manifest.dropped_steps > 0 ? std::to_string(manifest.dropped_steps) : ""},
       {"notes", list_text(manifest.notes)},
       {"unmapped", list_text(manifest.unmapped)}});
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
  if (checkpoints.size() > detail::kMostCheckpoints)
    return in["checkpoints"].wrong(fmt::format("at most {}", detail::kMostCheckpoints));
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
