// Whether each side ran the model that was given. One file may be given for both: a side that ran
// another one is then measured, not judged by it. Or each side has its own.
#include <algorithm>
#include <filesystem>

#include "base/text.h"
#include "gguf/fingerprint.h"
#include "hub/folder.h"
#include "model/archs.h"
#include "parity/scope.h"

namespace lockstep::parity {
namespace {

struct Match {
  enum class How {
    kSame,     // by its fingerprint
    kFits,     // nothing speaks against it
    kRenamed,  // nothing but the name of the file
    kOther,    // another file, perhaps of the same model in another format
    kMisfit,   // of another architecture or size
  } how = How::kFits;
  std::string why;  // it is another one, a clause
};

// A log may keep so many numbers of a row without a word of the others.
constexpr int64_t kFewNumbers = 32;

std::optional<std::string> other_sizes(const trace::Trace& trace, const model::Model& model) {
  const model::Config& config = model.config();
  for (const trace::CheckpointInfo& info : trace.manifest().checkpoints) {
    const int64_t width = std::max(info.width, info.full_width);
    const bool stream = info.name == "embedding" || info.name == "final_norm" ||
                        (info.name.starts_with("blk.") && info.name.ends_with(".output"));
    const bool cut = info.full_width == 0 && info.width <= kFewNumbers;
    if (stream && (width > config.width || (width < config.width && !cut)))
      return fmt::format("{} has {} numbers, the file's model {}", info.name, width, config.width);
    if (const int64_t layer = layer_of(info.name); layer >= config.layers)
      return fmt::format("it has {}, the file's model {} layers", info.name, config.layers);
    if (info.name == "logits" && info.full_width > 2 * config.vocabulary)
      return fmt::format("it has {} logits, the file's model {}", width, config.vocabulary);
  }
  return std::nullopt;
}

// Of a format that none of the file's tensors has. What nobody knows as a format says nothing.
bool other_format(const std::string& named, const gguf::File& file) {
  std::string_view name = named;
  for (const std::string_view mix : {"_S", "_M", "_L", "_XS", "_XL", "_s", "_m", "_l"})
    if (name.ends_with(mix) && quant::find_format(name) == nullptr) {
      name.remove_suffix(mix.size());
      break;
    }
  const quant::FormatInfo* format = quant::find_format(name);
  return format != nullptr && std::ranges::none_of(file.tensors(), [&](const gguf::Tensor& tensor) {
           return tensor.format == format;
         });
}

Match match(const trace::Trace& trace, const model::Model& model, const std::string& fingerprint) {
  using How = Match::How;
  const trace::ModelInfo& info = trace.manifest().model;
  if (!info.fingerprint.empty())
    return info.fingerprint == fingerprint
               ? Match{How::kSame, ""}
               : Match{How::kOther, fmt::format("its fingerprint is {}, the file's {}",
                                                printable(info.fingerprint, 40), fingerprint)};
  const std::string_view arch = model.config().arch->name;
  if (model::find_architecture(info.architecture) != nullptr && info.architecture != arch)
    return {How::kMisfit,
            fmt::format("its architecture is {}, the file's {}", info.architecture, arch)};
  if (const auto why = other_sizes(trace, model)) return {How::kMisfit, *why};
  if (other_format(info.quantization, model.file()))
    return {How::kOther,
            fmt::format("its format is {}, which no tensor of the file has", info.quantization)};
  // Where it lay there may still be a file, and that is the one that it ran.
  std::error_code failed;
  if (!info.path.empty() && std::filesystem::exists(info.path, failed) &&
      !std::filesystem::equivalent(info.path, model.file().path(), failed))
    if (const auto ran = hub::open(info.path); ran.ok() && gguf::fingerprint(*ran) != fingerprint)
      return {How::kOther, fmt::format("it ran {}", printable(info.path, 200))};
  const std::string given = std::filesystem::path(model.file().path()).filename().string();
  const std::string named = std::filesystem::path(info.file).filename().string();
  if (named.ends_with(".gguf") && given.ends_with(".gguf") && named != given)
    return {How::kRenamed, ""};
  return {};
}

std::string named_file(const trace::Trace& trace) {
  const trace::ModelInfo& info = trace.manifest().model;
  return info.file.empty() ? "another model" : printable(info.file, 80);
}

// Tokens index the model's tables.
Result<void> check_tokens(const SideScope& side, const model::Model& model) {
  const auto unknown = std::ranges::find_if(
      side.tokens, [&](int32_t token) { return token >= model.config().vocabulary; });
  if (unknown == side.tokens.end()) return {};
  return error("token {} of the traces is {}, but {} has only {} tokens",
               unknown - side.tokens.begin(), *unknown, model.file().path(),
               model.config().vocabulary);
}

// Two files can be held side by side where their forward passes have the same values.
Result<void> check_same_values(const model::Model& a, const model::Model& b, const Scope& scope) {
  const std::string_view x = a.config().arch->name;
  const std::string_view y = b.config().arch->name;
  if (x != y)
    return error(
        "the model files are of different architectures, which cannot be compared: {} of {} and {} "
        "of {}",
        x, a.file().path(), y, b.file().path());
  const op::Program& p = scope.reference.forwards.front().program;
  const op::Program& q = scope.suspect.forwards.front().program;
  for (size_t i = 0; i < std::max(p.values.size(), q.values.size()); ++i) {
    const op::Value* v = i < p.values.size() ? &p.values[i] : nullptr;
    const op::Value* w = i < q.values.size() ? &q.values[i] : nullptr;
    if (v == nullptr || w == nullptr || v->name != w->name)
      return error(
          "the forward passes of {} and {} have different steps: where the first has {}, the "
          "second has {}",
          a.file().path(), b.file().path(), v != nullptr ? v->name : "none",
          w != nullptr ? w->name : "none");
    // A vocabulary may be padded.
    if (v->width != w->width && static_cast<op::ValueId>(i) < p.head)
      return error(
          "{} has {} numbers by {} and {} by {}: the files are of models of different sizes",
          v->name, v->width, a.file().path(), w->width, b.file().path());
  }
  return {};
}

}  // namespace

Result<void> choose_models(const Traces& traces, const model::Model& model,
                           const model::Model* of_suspect, Scope& scope, Comparison& out) {
  using How = Match::How;
  const bool one = of_suspect == nullptr;
  const model::Model& suspect_model = one ? model : *of_suspect;
  const std::string fingerprint = gguf::fingerprint(model.file());
  const Match a = match(traces.reference, model, fingerprint);
  const Match b = match(traces.suspect, suspect_model,
                        one ? fingerprint : gguf::fingerprint(suspect_model.file()));
  scope.reference.model = &model;
  scope.suspect.model = &suspect_model;
  for (const auto& [own, other, side] :
       {std::tuple(&a, &b, &scope.reference), std::tuple(&b, &a, &scope.suspect)}) {
    if (own->how != How::kOther && own->how != How::kMisfit) continue;
    // Where the other side is known to have run it, the two are of two files, and one is judged.
    if (own->how == How::kMisfit || other->how != How::kSame || !one)
      return error(
          "{} is not the model of the trace {}, which ran {}: {}. Give the file that it "
          "ran ({})",
          side->model->file().path(), side->trace->folder(), named_file(*side->trace), own->why,
          one || side == &scope.reference ? "-m" : "--suspect-model");
    side->model = nullptr;
    out.other_models =
        fmt::format("{} and {}", named_file(traces.reference), named_file(traces.suspect));
    out.notes.push_back(
        fmt::format("the {} ran another model file ({}) than {}: only the other "
                    "side is judged",
                    side->name, named_file(*side->trace), model.file().path()));
  }
  for (const auto& [own, side] : {std::pair(&a, &scope.reference), std::pair(&b, &scope.suspect)}) {
    if (own->how == How::kOther) continue;  // a misfit does not come this far
    LS_TRY_VOID(check_tokens(*side, *side->model));
    LS_TRY(side->forwards, forwards_of(*side->model, *side->trace));
    side->other_name = own->how == How::kRenamed;
  }
  return one ? Result<void>() : check_same_values(model, suspect_model, scope);
}

}  // namespace lockstep::parity
