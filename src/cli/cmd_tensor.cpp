// lockstep tensor: the values of one weight, decoded.
#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/near_names.h"
#include "base/shown_text.h"
#include "base/table.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/model_path.h"
#include "cli/options.h"
#include "engine/verify.h"
#include "exec/registry.h"
#include "gguf/file.h"
#include "hub/folder.h"
#include "model/model.h"
#include "quant/decode.h"
#include "quant/stats.h"

namespace lockstep::cli {
namespace tensor_command {

using nlohmann::ordered_json;

struct Flags {
  std::string model = kDefaultModel;
  std::string name;
  int64_t row = -1;  // -1: all
  std::string range;
  int64_t shown = 8;
  bool json = false;
  bool raw = false;
  bool verify = false;
  std::string device;
};

// Values [first, first + count) of a tensor, in the order of the file.
struct Selection {
  int64_t first = 0;
  int64_t count = 0;
};

Result<const gguf::Tensor*> find(const gguf::File& file, const std::string& name) {
  const gguf::Tensor* tensor = file.tensor(name);
  if (tensor == nullptr) {
    std::vector<std::string> names;
    for (const gguf::Tensor& t : file.tensors()) names.push_back(t.name);
    std::vector<std::string> near = near_names(name, names);
    for (std::string& n : near) n = printable(n);
    return error("{}: no tensor '{}'{}", file.path(), printable(name, 200),
                 near.empty() ? "; 'lockstep tensor -m FILE' lists them"
                              : fmt::format("; did you mean {}?", fmt::join(near, ", ")));
  }
  if (!tensor->format->decodable)
    return error("{}: tensor {} is {}, which cannot be decoded", file.path(), printable(name),
                 tensor->format->name);
  return tensor;
}

// "A:B", either of which may be left out, of [0, count).
Result<Selection> parse_range(const std::string& text, int64_t count) {
  const auto wrong = [&] {
    return error("--range {}: expected A:B with 0 <= A < B <= {}", printable(text, 100), count);
  };
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return wrong();
  const auto number = [](std::string_view part, int64_t otherwise) -> std::optional<int64_t> {
    if (part.empty()) return otherwise;
    int64_t value = 0;
    const auto [end, problem] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (problem != std::errc() || end != part.data() + part.size()) return std::nullopt;
    return value;
  };
  const auto begin = number(std::string_view(text).substr(0, colon), 0);
  const auto end = number(std::string_view(text).substr(colon + 1), count);
  if (!begin || !end || *begin < 0 || *begin >= *end || *end > count) return wrong();
  return Selection{*begin, *end - *begin};
}

Result<Selection> select(const gguf::Tensor& tensor, const Flags& flags) {
  Selection selection = {0, tensor.values()};
  if (flags.row >= 0) {
    const int64_t width = tensor.dims[0];
    const int64_t rows = width > 0 ? tensor.values() / width : 0;
    if (flags.row >= rows)
      return error("--row {}: tensor {} {} has rows 0 to {}", flags.row, printable(tensor.name),
                   tensor.shape(), rows - 1);
    selection = {flags.row * width, width};
  }
  if (flags.range.empty()) return selection;
  LS_TRY(const Selection within, parse_range(flags.range, selection.count));
  return Selection{selection.first + within.first, within.count};
}

// Calls body(values, n) for successive parts of the selection, which need not be whole blocks.
void for_each_part(const gguf::Tensor& tensor, Selection selection,
                   const std::function<void(const float*, int64_t)>& body) {
  constexpr int64_t kPart = 1 << 16;  // a multiple of every block
  const int64_t block = tensor.format->block_values;
  const int64_t end = selection.first + selection.count;
  std::vector<float> values;
  for (int64_t at = selection.first; at < end;) {
    const int64_t from = at / block * block;
    const int64_t to = std::min((end + block - 1) / block * block, from + kPart);
    values.resize(static_cast<size_t>(to - from));
    quant::decode(tensor.format->format(),
                  tensor.data.data() + quant::size_bytes(*tensor.format, from), to - from,
                  values.data());
    const int64_t n = std::min(to, end) - at;
    body(values.data() + (at - from), n);
    at += n;
  }
}

quant::Stats stats_of(const gguf::Tensor& tensor, Selection selection) {
  if (selection.count == tensor.values())
    return quant::measure(tensor.format->format(), tensor.data.data(), selection.count);
  quant::Stats stats;
  for_each_part(tensor, selection, [&](const float* values, int64_t n) {
    for (int64_t i = 0; i < n; ++i) stats.add(values[i]);
  });
  return stats;
}

std::vector<float> values_of(const gguf::Tensor& tensor, Selection selection) {
  std::vector<float> all;
  for_each_part(tensor, selection,
                [&](const float* values, int64_t n) { all.insert(all.end(), values, values + n); });
  return all;
}

Result<int> print_raw(const gguf::Tensor& tensor, Selection selection) {
  if (isatty(STDOUT_FILENO))
    return error("--raw writes bytes; send standard output to a file or a pipe");
  bool written = true;
  for_each_part(tensor, selection, [&](const float* values, int64_t n) {
    const auto count = static_cast<size_t>(n);
    written = written && std::fwrite(values, sizeof(float), count, stdout) == count;
  });
  if (!written || std::fflush(stdout) != 0) return error("cannot write to standard output");
  return kDone;
}

// JSON has no word for infinities and NaN.
ordered_json number(float value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json(fmt::format("{}", value));
}

int print_json(const gguf::Tensor& tensor, Selection selection, const Flags& flags) {
  const quant::Stats stats = stats_of(tensor, selection);
  ordered_json out = {{"name", tensor.name},
                      {"type", tensor.format->name},
                      {"shape", tensor.dims},
                      {"offset", tensor.file_offset},
                      {"bytes", tensor.data.size()},
                      {"first", selection.first},
                      {"count", selection.count},
                      {"stats",
                       {{"min", stats.min},
                        {"max", stats.max},
                        {"mean", stats.mean},
                        {"std", stats.deviation()},
                        {"zeros", stats.zeros},
                        {"non_finite", stats.non_finite}}}};
  if (stats.non_finite > 0)
    out["stats"]["first_non_finite"] = selection.first + stats.first_non_finite;
  // What was asked for in particular is given whole.
  const bool whole = flags.row >= 0 || !flags.range.empty();
  if (!whole) selection.count = std::min(selection.count, flags.shown);
  out["values"] = ordered_json::array();
  for (const float value : values_of(tensor, selection)) out["values"].push_back(number(value));
  fmt::print("{}\n", json_text(out));
  return kDone;
}

int print_text(const gguf::Tensor& tensor, Selection selection, const Flags& flags) {
  const Paint paint(terminal_colours(STDOUT_FILENO));
  const auto line = [&](std::string_view label, const std::string& text) {
    fmt::print("{} {}\n", paint.dim(fmt::format("{:<11}", label)), text);
  };
  const quant::Stats stats = stats_of(tensor, selection);
  line("tensor", paint.bold(printable(tensor.name)));
  line("shape", fmt::format("{}, {} values", tensor.shape(), tensor.values()));
  line("format", fmt::format("{}, {}B at offset {}", tensor.format->name,
                             human(static_cast<int64_t>(tensor.data.size())), tensor.file_offset));
  if (selection.count != tensor.values())
    line("selected",
         fmt::format("values {} to {}", selection.first, selection.first + selection.count - 1));
  if (stats.values > stats.non_finite) {
    line("min, max", fmt::format("{}, {}", stats.min, stats.max));
    line("mean, std", fmt::format("{:.6g}, {:.6g}", stats.mean, stats.deviation()));
  }
  line("zeros", fmt::format("{}", stats.zeros));
  line("non-finite", stats.non_finite == 0
                         ? "none"
                         : paint.red(fmt::format("{}, the first at {}", stats.non_finite,
                                                 selection.first + stats.first_non_finite)));
  const Selection head = {selection.first, std::min(selection.count, flags.shown)};
  line("values", fmt::format("{}{}", fmt::join(values_of(tensor, head), " "),
                             head.count < selection.count ? " ..." : ""));
  return kDone;
}

int print_list(const gguf::File& file, bool json) {
  if (json) {
    ordered_json out = ordered_json::array();
    for (const gguf::Tensor& tensor : file.tensors())
      out.push_back({{"name", tensor.name}, {"type", tensor.format->name}, {"shape", tensor.dims}});
    fmt::print("{}\n", json_text(out));
    return kDone;
  }
  Table table({{"name", false, 0, true}, {"type"}, {"shape"}});
  for (const gguf::Tensor& tensor : file.tensors())
    table.add({printable(tensor.name), std::string(tensor.format->name), tensor.shape()});
  fmt::print("{}", table.render(terminal_width(STDOUT_FILENO, INT64_MAX),
                                Paint(terminal_colours(STDOUT_FILENO))));
  return kDone;
}

// Whether the device holds what the file has.
Result<int> verify(const std::string& path, const Flags& flags) {
  LS_TRY(const exec::Device* device, exec::find_device(flags.device));
  LS_TRY_VOID(device->available());
  LS_TRY(const model::Model model, model::Model::load(path));
  LS_TRY(const op::Program program, model.program(1));  // the cache is not what is looked at
  LS_TRY(const auto executor, device->create(program, {}));
  LS_TRY(const std::vector<engine::WeightCheck> checks,
         engine::verify_weights(program, *executor, flags.name));
  int64_t values = 0, wrong = 0;
  ordered_json list = ordered_json::array();
  for (const engine::WeightCheck& check : checks) {
    values += check.values;
    wrong += check.wrong > 0 ? 1 : 0;
    ordered_json entry = {{"name", check.tensor}, {"values", check.values}, {"wrong", check.wrong}};
    if (check.wrong > 0)
      entry["first_wrong"] = {{"index", check.first_wrong},
                              {"file", number(check.expected)},
                              {"device", number(check.actual)}};
    list.push_back(std::move(entry));
    if (flags.json || check.wrong == 0) continue;
    fmt::print("{}: {} of {} values differ; the first is number {}: {} in the file, {} on {}\n",
               printable(check.tensor), check.wrong, check.values, check.first_wrong,
               check.expected, check.actual, device->name);
  }
  if (flags.json)
    fmt::print("{}\n", json_text(ordered_json({{"device", device->name}, {"tensors", list}})));
  else
    fmt::print(
        "{} tensors, {} values read back from {}: {}\n", checks.size(), values, device->name,
        wrong == 0 ? std::string("all as in the file") : fmt::format("{} tensors differ", wrong));
  return wrong == 0 ? kDone : kFailedCheck;
}

Result<int> run(const Flags& flags) {
  LS_TRY(const std::string path, model_path(flags.model));
  if (flags.verify) return verify(path, flags);
  LS_TRY(const gguf::File file, hub::open(path));
  if (flags.name.empty()) {
    if (flags.row >= 0 || flags.raw || !flags.range.empty())
      return error("--row, --range and --raw need the name of a tensor");
    return print_list(file, flags.json);
  }
  LS_TRY(const gguf::Tensor* tensor, find(file, flags.name));
  LS_TRY(const Selection selection, select(*tensor, flags));
  if (flags.raw) return print_raw(*tensor, selection);
  return flags.json ? print_json(*tensor, selection, flags) : print_text(*tensor, selection, flags);
}

std::function<Result<int>()> declare(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  add_value(app, "-m,--model", flags->model, kModel,
            "GGUF file, folder from the hub, or the name of a model")
      ->default_str(flags->model);
  add_value(app, "name", flags->name, kText, "The tensor; without it, all are listed");
  CLI::Option* row = add_number(app, "--row", flags->row, {.least = 0},
                                "Only this row (a row is the first dimension long)");
  CLI::Option* range = add_value(app, "--range", flags->range, kSlice,
                                 "Only values A to B - 1 (of the row where one is given)");
  show_default(add_number(app, "-n,--values", flags->shown, {0, int64_t{1} << 30},
                          "How many values to show"),
               flags->shown);
  CLI::Option* json =
      app.add_flag("--json", flags->json, "As JSON; all values where --row or --range is given");
  CLI::Option* raw =
      app.add_flag("--raw", flags->raw, "The values alone, as little-endian 32-bit floats")
          ->excludes(json);
  CLI::Option* verify = app.add_flag(
      "--verify", flags->verify,
      "Load the model on the device, read its weights back and compare them with the file");
  verify->excludes(row)->excludes(range)->excludes(raw);
  add_value(app, "--device", flags->device, kDevice,
            "Where to load it; only cuda gives weights back")
      ->needs(verify);
  return [flags] { return run(*flags); };
}

}  // namespace tensor_command

const Command kTensorCommand = {
    "tensor",
    "Show the values of one weight, decoded",
    "  lockstep tensor -m model.gguf\n"
    "  lockstep tensor -m model.gguf blk.0.attn_q.weight\n"
    "  lockstep tensor -m model.gguf token_embd.weight --row 42 --range 0:16 --json\n"
    "  lockstep tensor -m model.gguf output.weight --raw > output.f32\n"
    "  lockstep tensor -m model.gguf --verify --device cuda\n",
    tensor_command::declare,
};

}  // namespace lockstep::cli
