// lockstep models: what there is to run, here and to download; lockstep models pull.
#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/lower.h"
#include "base/notice.h"
#include "base/sha256.h"
#include "base/shown_text.h"
#include "base/table.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "models/catalog.h"
#include "models/locate.h"
#include "models/pull.h"

namespace lockstep::cli {
namespace models_command {

struct Flags {
  bool json = false;
  std::string name;
  std::string url;
  std::string sha256;
  std::string member;
  models::PullOptions pull;
  int64_t most_megabytes = 100'000;
};

// The licence of the models that we trained is that of the program.
constexpr const char* kOwnLicence = "Apache-2.0";

struct Row {
  std::string name;
  std::string title;
  std::string source;      // shipped, hub, pypi, or local (a file in the cache that no table knows)
  int64_t size_bytes = 0;  // 0: not known
  std::string licence;     // "": not known
  std::string path;        // "": not here
  std::string url;         // "": nowhere to download
  std::string sha256;
};

std::vector<Row> list_rows(const std::vector<models::LocalModel>& local) {
  std::vector<Row> shipped;
  std::vector<Row> known;
  std::vector<Row> other;
  for (const models::KnownModel& model : models::known_models())
    known.push_back({model.name, model.title, model.in_wheel() ? "pypi" : "hub", model.size_bytes,
                     model.licence, "", models::download_url(model), model.sha256});
  for (const models::LocalModel& model : local) {
    const auto same = [&](const Row& row) { return row.name == model.name; };
    const auto row = std::find_if(known.begin(), known.end(), same);
    if (row != known.end()) {
      row->path = model.path;
      row->size_bytes = model.size_bytes;
    } else if (model.shipped) {
      shipped.push_back({model.name, "", "shipped", model.size_bytes,
                         model.name.starts_with("haiku") ? kOwnLicence : "", model.path, "", ""});
    } else {
      other.push_back({model.name, "", "local", model.size_bytes, "", model.path, "", ""});
    }
  }
  shipped.insert(shipped.end(), other.begin(), other.end());
  shipped.insert(shipped.end(), known.begin(), known.end());
  return shipped;
}

nlohmann::ordered_json to_json(const Row& row, bool is_default) {
  nlohmann::ordered_json json = {
      {"name", row.name}, {"source", row.source}, {"here", !row.path.empty()}};
  if (is_default) json["default"] = true;
  const auto put = [&](const char* key, const std::string& value) {
    if (!value.empty()) json[key] = value;
  };
  put("title", row.title);
  if (row.size_bytes > 0) json["size_bytes"] = row.size_bytes;
  put("licence", row.licence);
  put("path", row.path);
  put("url", row.url);
  put("sha256", row.sha256);
  return json;
}

Result<int> list(const Flags& flags) {
  const std::vector<models::Folder> folders = models::model_folders();
  const std::vector<models::LocalModel> local = models::local_models(folders);
  const std::vector<Row> rows = list_rows(local);
  const auto chosen = models::find_model(models::kDefaultModel, folders);
  const std::string chosen_path = chosen.ok() ? *chosen : "";

  if (flags.json) {
    nlohmann::ordered_json json;
    json["models"] = nlohmann::ordered_json::array();
    for (const Row& row : rows)
      json["models"].push_back(to_json(row, !row.path.empty() && row.path == chosen_path));
    for (const models::Folder& folder : folders) json["folders"].push_back(folder.path);
    fmt::print("{}\n", json_text(json));
    return kDone;
  }
  Table table(
      {{"name"}, {"size", true}, {"licence", false, 1}, {"here", false}, {"what", false, 2, true}});
  for (const Row& row : rows) {
    std::string what = row.title.empty() ? row.path : row.title;
    if (!row.path.empty() && row.path == chosen_path) what = "haiku, the default: " + what;
    table.add({printable(row.name), row.size_bytes > 0 ? human(row.size_bytes) + "B" : "",
               row.licence, row.path.empty() ? "no" : "yes", printable(what)});
  }
  constexpr int64_t kUnbounded = 1000;
  fmt::print("{}", table.render(terminal_width(STDOUT_FILENO, kUnbounded),
                                Paint(terminal_colours(STDOUT_FILENO))));
  notice("'lockstep models pull NAME' downloads one that is not here.\n");
  return kDone;
}

std::atomic<bool> interrupted = false;

void on_interrupt(int signal) {
  interrupted = true;
  std::signal(signal, SIG_DFL);  // the second one ends the program at once
}

// "https://host/folder/Name.gguf?download=true": "Name".
std::string name_of_url(const std::string& url) {
  std::string path = url.substr(0, url.find_first_of("?#"));
  path.erase(0, path.rfind('/') + 1);  // all of it where there is no slash: then it is no URL
  if (ascii_lower(path).ends_with(".gguf")) path.resize(path.size() - 5);
  return path;
}

Result<models::PullSource> source_of(const Flags& flags) {
  const models::KnownModel* known = models::find_known(flags.name);
  models::PullSource source;
  if (known != nullptr) {
    source = {known->name, models::download_url(*known), known->size_bytes, known->sha256,
              known->member};
  } else if (flags.url.empty()) {
    std::vector<std::string> names;
    for (const models::KnownModel& model : models::known_models()) names.emplace_back(model.name);
    const auto near = models::near_models(flags.name, names);
    return error("no well-known model '{}'{}; 'lockstep models' lists them, --url takes any other",
                 printable(flags.name, 100),
                 near.empty() ? "" : fmt::format("; did you mean {}?", fmt::join(near, " or ")));
  } else {
    source.name = flags.name.empty() ? name_of_url(flags.url) : flags.name;
    if (source.name.ends_with(".gguf")) source.name.resize(source.name.size() - 5);
  }
  if (!flags.url.empty()) source.url = flags.url;
  if (!flags.member.empty()) source.member = flags.member;
  if (!flags.sha256.empty()) {
    if (!is_sha256(flags.sha256))
      return error("--sha256 {}: expected 64 hexadecimal digits", printable(flags.sha256, 80));
    const std::string given = ascii_lower(flags.sha256);
    // Another file than the one in the table has another size, too.
    if (given != source.sha256) source.size_bytes = 0;
    source.sha256 = given;
  }
  const std::string scheme = ascii_lower(source.url.substr(0, source.url.find("://")));
  if (scheme != "https" && scheme != "http")
    return error("{}: expected a URL that begins with https:// or http://",
                 printable(source.url, 200));
  if (!models::is_model_name(source.name))
    return error("'{}' is no name for a model: letters, digits and . _ - are allowed",
                 printable(source.name, 100));
  return source;
}

Result<int> pull(const Flags& flags) {
  if (flags.name.empty() && flags.url.empty())
    return error("models pull: expected the NAME of a model, or --url");
  // What ships with the program is always there.
  const auto here = models::local_models(models::model_folders());
  std::vector<std::string> shipped;
  std::vector<std::string> paths;
  for (const models::LocalModel& model : here) {
    if (!model.shipped) continue;
    shipped.push_back(model.name);
    paths.push_back(model.path);
  }
  if (const auto index = models::resolve(flags.name, shipped)) {
    if (!flags.url.empty())
      return error("'{}' ships with the program ({}); choose another name", flags.name,
                   paths[*index]);
    notice("{} ships with the program\n", shipped[*index]);
    fmt::print("{}\n", paths[*index]);
    return kDone;
  }

  LS_TRY(const models::PullSource source, source_of(flags));
  models::PullOptions options = flags.pull;
  LS_TRY(options.folder, models::cache_folder());
  options.interrupted = &interrupted;
  options.most_bytes = flags.most_megabytes * 1'000'000;
  std::signal(SIGINT, on_interrupt);
  std::signal(SIGTERM, on_interrupt);
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes is then an error of write()
  LS_TRY(const models::Pulled pulled, models::pull(source, options));
  notice("{} {}; SHA-256 {}{}\n", source.name,
         pulled.was_there ? "is there already and whole" : "is complete", pulled.sha256,
         pulled.hash_known ? " as expected" : " (nothing to compare it with)");
  fmt::print("{}\n", pulled.path);
  return kDone;
}

std::function<Result<int>()> declare(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  app.add_flag("--json", flags->json, "Print one JSON object with all models and folders");
  app.require_subcommand(0, 1);

  CLI::App* sub = app.add_subcommand("pull", "Download a model into the cache folder");
  add_value(*sub, "name", flags->name, kWellKnownModel,
            "A name that 'lockstep models' lists; with --url, the name to give it");
  add_value(*sub, "--url", flags->url, kText, "Download this GGUF file instead");
  add_value(*sub, "--sha256", flags->sha256, kText, "What the model's SHA-256 must be");
  add_value(*sub, "--member", flags->member, kText,
            "The model's name within the file, where that is a zip archive such as a wheel");
  show_default(
      add_number(*sub, "--retries", flags->pull.retries, {0, 1000},
                 "How often to try again after a broken connection that brought nothing new"),
      flags->pull.retries);
  show_default(add_number(*sub, "--stall", flags->pull.stall_seconds, {1, 3600},
                          "Seconds below 1 kB/s after which a connection counts as broken"),
               flags->pull.stall_seconds);
  show_default(add_number(*sub, "--most", flags->most_megabytes, {1, int64_t{1} << 30},
                          "Megabytes to take at most where the server does not say the size"),
               flags->most_megabytes);
  sub->footer(
      "The file goes to lockstep/models in $XDG_CACHE_HOME or ~/.cache and is checked (size,\n"
      "SHA-256, GGUF structure) before it gets its name. A download that broke off goes on where "
      "it\n"
      "stopped. HF_ENDPOINT names another hub than https://huggingface.co, such as a mirror;\n"
      "http_proxy, https_proxy and no_proxy are obeyed. The path is printed on standard output.\n"
      "Examples:\n"
      "  lockstep models pull qwen2.5-0.5b-instruct\n"
      "  lockstep models pull my-model --url https://example.org/model.gguf --sha256 9f86d0...\n");
  return [flags, sub] { return sub->parsed() ? pull(*flags) : list(*flags); };
}

}  // namespace models_command

const Command kModelsCommand = {
    "models",
    "List the models that ship with the program and others to download, or download one",
    "  lockstep models\n"
    "  lockstep models --json\n"
    "  lockstep models pull tinyllama-1.1b-chat\n"
    "'lockstep models pull --help' tells more about downloading.\n",
    models_command::declare,
};

}  // namespace lockstep::cli
