// lockstep inspect: what a GGUF file holds.
#include <algorithm>
#include <filesystem>
#include <map>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/shown_text.h"
#include "base/table.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/model_path.h"
#include "cli/options.h"
#include "gguf/file.h"
#include "gguf/fingerprint.h"
#include "hub/folder.h"
#include "model/model.h"

namespace lockstep::cli {
namespace inspect_command {

using nlohmann::ordered_json;

struct Options {
  std::string model = kDefaultModel;
  bool metadata = false;
  bool tensors = false;
  bool full = false;
  bool fingerprint = false;
  bool json = false;
};

struct FormatShare {
  std::string_view name;
  int64_t tensors = 0;
  int64_t values = 0;
  int64_t bytes = 0;
};

struct Summary {
  std::string name;  // general.name, or that of the file
  std::string architecture;
  int64_t parameters = 0;
  std::vector<FormatShare> formats;   // by bytes, largest first
  std::vector<std::string> problems;  // what keeps it from running here
  std::optional<std::string> fingerprint;
};

Summary summarize(const gguf::File& file, const Options& options) {
  Summary summary;
  // A file may leave these out or have them wrong; it is still worth looking at.
  const auto name = file.text("general.name");
  summary.name =
      name.ok() ? std::string(*name) : std::filesystem::path(file.path()).stem().string();
  const auto architecture = file.text("general.architecture");
  summary.architecture = architecture.ok() ? std::string(*architecture) : "unknown";
  std::map<uint32_t, FormatShare> shares;
  for (const gguf::Tensor& tensor : file.tensors()) {
    FormatShare& share = shares[tensor.format->id];
    share.name = tensor.format->name;
    share.tensors += 1;
    share.values += tensor.values();
    share.bytes += static_cast<int64_t>(tensor.data.size());
    summary.parameters += tensor.values();
  }
  for (const auto& [id, share] : shares) summary.formats.push_back(share);
  std::ranges::stable_sort(summary.formats, std::greater{}, &FormatShare::bytes);
  summary.problems = model::problems_of(file);
  if (options.fingerprint) summary.fingerprint = gguf::fingerprint(file);
  return summary;
}

// ---- for people

void print_summary(const gguf::File& file, const Summary& summary, const Paint& paint) {
  const auto line = [&](std::string_view label, const std::string& text) {
    fmt::print("{} {}\n", paint.dim(fmt::format("{:<12}", label)), text);
  };
  line("model", paint.bold(printable(summary.name, 200)));
  line("architecture", printable(summary.architecture, 80));
  line("file",
       fmt::format(
           "{}{}", printable(file.path()),
           file.parts().size() > 1 ? fmt::format(" and {} more", file.parts().size() - 1) : ""));
  line("format", file.version() == 0
                     ? fmt::format("safetensors, {}B", human(file.size_bytes()))
                     : fmt::format("GGUF version {}, {}B, alignment {}", file.version(),
                                   human(file.size_bytes()), file.alignment()));
  line("parameters",
       fmt::format("{}{} in {} tensors", summary.parameters,
                   summary.parameters < 1000 ? "" : fmt::format(" ({})", human(summary.parameters)),
                   file.tensors().size()));
  int64_t bytes = 0;
  for (const FormatShare& share : summary.formats) bytes += share.bytes;
  for (const FormatShare& share : summary.formats)
    line(&share == summary.formats.data() ? "weights" : "",
         fmt::format("{:<7} {:5.1f}%  {}B in {} tensor{}", share.name,
                     100 * static_cast<double>(share.bytes) / static_cast<double>(bytes),
                     human(share.bytes), share.tensors, share.tensors == 1 ? "" : "s"));
  // A file without tensors lacks hundreds of them: the first few say enough.
  constexpr size_t kShown = 5;
  const size_t count = summary.problems.size();
  line("runs here", count == 0 ? paint.green("yes") : paint.red("no"));
  for (size_t i = 0; i < std::min(count, kShown); ++i)
    line("", printable(summary.problems[i], 400));
  if (count > kShown)
    line("", fmt::format("and {} more problems (--json lists all)", count - kShown));
  if (summary.fingerprint) line("fingerprint", *summary.fingerprint);
}

void print_metadata(const gguf::File& file, bool full, int64_t width, const Paint& paint) {
  Table table({{"key", false, 0, true}, {"type", false, 1}, {"value", false, 0, true}});
  for (const gguf::Entry& entry : file.metadata())
    table.add({printable(entry.key), gguf::type_name(entry.value),
               gguf::preview(entry.value, full ? INT64_MAX : 6, full ? INT64_MAX : 60)});
  fmt::print("{}\n{}", paint.bold(fmt::format("metadata ({})", file.metadata().size())),
             table.render(width, paint));
}

void print_tensors(const gguf::File& file, int64_t width, const Paint& paint) {
  Table table({{"name", false, 0, true},
               {"type", false, 1},
               {"shape", false, 0},
               {"offset", true, 3},
               {"bytes", true, 2}});
  for (const gguf::Tensor& tensor : file.tensors())
    table.add({printable(tensor.name), std::string(tensor.format->name), tensor.shape(),
               fmt::format("{}", tensor.file_offset), fmt::format("{}", tensor.data.size())});
  fmt::print("{}\n{}", paint.bold(fmt::format("tensors ({})", file.tensors().size())),
             table.render(width, paint));
}

void print_text(const gguf::File& file, const Options& options) {
  const Paint paint(terminal_colours(STDOUT_FILENO));
  // What is piped elsewhere is not cut to a width.
  const int64_t width = options.full ? INT64_MAX : terminal_width(STDOUT_FILENO, INT64_MAX);
  const bool all = !options.metadata && !options.tensors;
  if (all || options.fingerprint) print_summary(file, summarize(file, options), paint);
  if (all) fmt::print("\n");
  if (all || options.metadata) print_metadata(file, options.full, width, paint);
  if (all || (options.metadata && options.tensors)) fmt::print("\n");
  if (all || options.tensors) print_tensors(file, width, paint);
}

// ---- for programs

template <class T>
ordered_json json_of(const T& item, size_t max_items) {
  if constexpr (std::is_same_v<T, gguf::Array>) {
    return std::visit(
        [&](const auto& items) {
          using Item = typename std::decay_t<decltype(items)>::value_type;
          ordered_json out = ordered_json::array();
          for (size_t i = 0; i < std::min(items.size(), max_items); ++i)
            out.push_back(json_of<Item>(items[i], max_items));
          return out;
        },
        item.items);
  } else if constexpr (std::is_floating_point_v<T>) {
    // JSON has no word for infinities and NaN.
    return std::isfinite(item) ? ordered_json(item) : ordered_json(fmt::format("{}", item));
  } else {
    return item;
  }
}

ordered_json metadata_json(const gguf::File& file, bool full) {
  constexpr size_t kShown = 16;
  ordered_json out = ordered_json::object();
  for (const gguf::Entry& entry : file.metadata()) {
    ordered_json& row = out[entry.key];
    row["type"] = gguf::name(entry.value.type());
    if (const auto* array = std::get_if<gguf::Array>(&entry.value.value)) {
      row["of"] = gguf::name(array->type());
      row["count"] = array->size();
    }
    row["value"] =
        std::visit([&](const auto& item) { return json_of(item, full ? SIZE_MAX : kShown); },
                   entry.value.value);
  }
  return out;
}

void print_json(const gguf::File& file, const Options& options) {
  const Summary summary = summarize(file, options);
  const bool all = !options.metadata && !options.tensors;
  ordered_json out = {{"path", file.path()},
                      {"name", summary.name},
                      {"architecture", summary.architecture},
                      {"version", file.version()},
                      {"alignment", file.alignment()},
                      {"size_bytes", file.size_bytes()},
                      {"parameters", summary.parameters}};
  for (const gguf::Part& part : file.parts()) out["files"].push_back(part.path);
  out["formats"] = ordered_json::array();
  for (const FormatShare& share : summary.formats)
    out["formats"].push_back({{"type", share.name},
                              {"tensors", share.tensors},
                              {"values", share.values},
                              {"bytes", share.bytes}});
  out["runs_here"] = summary.problems.empty();
  out["problems"] = summary.problems;
  if (summary.fingerprint) out["fingerprint"] = *summary.fingerprint;
  if (all || options.metadata) out["metadata"] = metadata_json(file, options.full);
  if (all || options.tensors) {
    out["tensors"] = ordered_json::array();
    for (const gguf::Tensor& tensor : file.tensors())
      out["tensors"].push_back({{"name", tensor.name},
                                {"type", tensor.format->name},
                                {"shape", tensor.dims},
                                {"offset", tensor.file_offset},
                                {"bytes", tensor.data.size()}});
  }
  fmt::print("{}\n", json_text(out, 2));
}

std::function<Result<int>()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  add_value(app, "-m,--model,model", options->model, kModel,
            "GGUF file (of a split model, the first), folder from the hub or name of a model")
      ->default_str(options->model);
  app.add_flag("--metadata", options->metadata, "Only the metadata");
  app.add_flag("--tensors", options->tensors, "Only the list of tensors");
  app.add_flag("--full", options->full, "Whole arrays and texts, not their beginnings");
  app.add_flag("--fingerprint", options->fingerprint,
               "Also the model's identity: a hash over metadata and tensor data (reads the whole "
               "file the first time)");
  app.add_flag("--json", options->json, "As JSON");
  return [options]() -> Result<int> {
    LS_TRY(const std::string path, model_path(options->model));
    LS_TRY(const gguf::File file, hub::open(path));
    if (options->json)
      print_json(file, *options);
    else
      print_text(file, *options);
    return kDone;
  };
}

}  // namespace inspect_command

extern const Command kInspectCommand = {"inspect",
                                        "Show what a model file holds and whether it can run here",
                                        "  lockstep inspect model.gguf\n"
                                        "  lockstep inspect model.gguf --tensors | grep attn_q\n"
                                        "  lockstep inspect model.gguf --json | jq .parameters\n"
                                        "  lockstep inspect model.gguf --metadata --full\n"
                                        "  lockstep inspect model.gguf --fingerprint",
                                        inspect_command::declare};

}  // namespace lockstep::cli
