#include <algorithm>
#include <filesystem>
#include <set>

#include "base/mapped_file.h"
#include "base/text.h"
#include "exec/registry.h"
#include "suite/read_engine.h"

namespace lockstep::suite {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostBytes = 16 << 20;

Result<Suite> parse_in(std::string_view text, const std::string& source, const std::string& folder,
                       bool look) {
  LS_TRY(const toml::table document, parse_toml(text, source));
  const TomlTable root(document, source, "");
  LS_TRY_VOID(root.only({"name", "engine", "case", "known"}));
  Suite suite;
  suite.folder = folder;
  const std::string file = source.substr(source.find_last_of('/') + 1);
  LS_TRY(suite.name, root.text("name", file.empty() ? "suite" : file));
  LS_TRY(const auto engines, root.tables("engine"));
  for (const TomlTable& table : engines) {
    LS_TRY(suite.engines.emplace_back(), read_engine(table, table.place().substr(7)));
  }
  LS_TRY(const auto cases, root.array_of_tables("case"));
  std::set<std::string> names;
  for (const TomlTable& table : cases) {
    LS_TRY(std::vector<Case> all, read_cases(table, suite, look));
    for (Case& one : all) {
      // Cases without a name of their own are called after their models: of several that are
      // called alike the second one gets a number, since files are named after them.
      const std::string name = one.name;
      for (int count = 2; !names.insert(one.name).second; ++count) {
        if (table.has("name") && all.size() == 1)
          return table.wrong(fmt::format("name: another case is called '{}' too", one.name));
        one.name = fmt::format("{}-{}", name, count);
      }
      suite.cases.push_back(std::move(one));
    }
  }
  if (suite.cases.empty()) return root.wrong("the suite has no [[case]], expected one at least");
  LS_TRY(const auto known, root.array_of_tables("known"));
  for (const TomlTable& table : known) {
    LS_TRY(suite.known.emplace_back(), read_known(table));
  }
  int64_t jobs = 0;
  for (const Case& one : suite.cases) jobs += std::ssize(one.prompts) * std::ssize(one.suspects);
  if (jobs > kMostJobs)
    return root.wrong(fmt::format("{} comparisons, expected {} at most", jobs, kMostJobs));
  return suite;
}

}  // namespace

bool is_plain_name(std::string_view text) {
  return !text.empty() && text.size() <= 100 && text[0] != '.' && text[0] != '-' &&
         plain_name(text) == text;
}

std::string plain_name(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 100)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '_' || c == '-';
    out += plain ? c : '_';
  }
  if (out.empty() || out[0] == '.' || out[0] == '-') out.insert(out.begin(), '_');
  return out;
}

std::optional<Engine> Suite::engine(std::string_view wanted) const {
  for (const Engine& engine : engines)
    if (engine.name == wanted) return engine;
  Engine out;
  out.name = out.target = wanted;
  for (const exec::Device& device : exec::devices())
    if (device.name == wanted) return out;
  out.kind = EngineKind::kCapture;
  if (std::ranges::find(kCaptures, wanted) != std::end(kCaptures)) return out;
  return std::nullopt;
}

std::string Suite::path(const std::string& written) const {
  if (folder.empty() || fs::path(written).is_absolute()) return written;
  return (fs::path(folder) / written).lexically_normal().string();
}

Result<Suite> parse_suite(std::string_view text, const std::string& source) {
  return parse_in(text, source, "", false);
}

Result<Suite> read_suite(const std::string& path) {
  LS_TRY(const MappedFile file, MappedFile::open(path));
  const auto bytes = file.bytes();
  if (std::ssize(bytes) > kMostBytes)
    return error("{}: {} bytes, expected a suite of {} at most", printable(path), bytes.size(),
                 kMostBytes);
  return parse_in({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path,
                  fs::path(path).parent_path().string(), true);
}

}  // namespace lockstep::suite
