#include "suite/read_engine.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "base/near_names.h"
#include "exec/registry.h"
#include "suite/placeholders.h"

namespace lockstep::suite {
namespace {

struct KindKeys {
  const char* key;  // that says what the engine is
  EngineKind kind;
  std::vector<std::string> others;  // that such an engine may have
};

const std::vector<KindKeys>& kinds() {
  static const std::vector<KindKeys> kKinds = {
      {"command", EngineKind::kCommand, {"shell", "timeout", "memory_gb"}},
      {"capture", EngineKind::kCapture, {"folder", "options", "python", "timeout", "memory_gb"}},
      {"device", EngineKind::kDevice, {"kv", "threads"}},
      {"trace", EngineKind::kTrace, {}},
  };
  return kKinds;
}

Result<void> check_placeholders(const TomlTable& table, const Engine& engine) {
  const std::vector<std::string> known = placeholders();
  bool trace = false;
  for (const std::string& part : engine.command)
    for (const std::string& word : words_in_braces(part)) {
      trace = trace || word == "trace";
      if (std::ranges::find(known, word) != known.end()) continue;
      const auto near = nearest_names(word, known);
      return table.wrong(
          fmt::format("command: unknown placeholder {{{}}}, expected {}{{{}}}", word,
                      near.empty() ? "one of " : "perhaps ",
                      near.empty() ? fmt::format("{}", fmt::join(known, "}, {")) : near.front()));
    }
  if (trace) return {};
  return table.wrong("command: expected {trace}, the folder that the program writes its trace to");
}

Result<void> read_command(const TomlTable& table, Engine& engine) {
  LS_TRY(engine.shell, table.boolean("shell", false));
  LS_TRY(engine.command, table.texts("command"));
  const bool is_list = table.table().get("command")->is_array();
  if (engine.shell && is_list) return table.wrong("command", "one text where shell = true");
  if (!engine.shell && !is_list) {
    auto words = split_command(engine.command[0]);
    if (!words.ok()) return table.wrong(fmt::format("command: {}", words.error().message));
    engine.command = std::move(*words);
  }
  if (!engine.shell && !words_in_braces(engine.command[0]).empty())
    return table.wrong("command: a placeholder stands where the program's name is expected");
  return check_placeholders(table, engine);
}

Result<void> read_capture(const TomlTable& table, Engine& engine) {
  LS_TRY(engine.target, table.text("capture", ""));
  if (std::ranges::find(kCaptures, engine.target) == std::end(kCaptures))
    return table.wrong("capture", fmt::format("{}", fmt::join(kCaptures, " or ")));
  LS_TRY(engine.folder, table.text("folder", ""));
  LS_TRY(engine.python, table.text("python", ""));
  LS_TRY(engine.options, table.texts("options"));
  return {};
}

Result<void> read_device(const TomlTable& table, Engine& engine) {
  LS_TRY(engine.target, table.text("device", ""));
  std::vector<std::string> names;
  for (const exec::Device& device : exec::devices()) names.emplace_back(device.name);
  if (std::ranges::find(names, engine.target) == names.end())
    return table.wrong("device", fmt::format("one of {}", fmt::join(names, ", ")));
  LS_TRY(engine.threads, table.integer("threads", 0, 1, 4096));
  LS_TRY(engine.kv, table.text("kv", ""));
  if (!engine.kv.empty() && engine.kv != "f16" && engine.kv != "f32")
    return table.wrong("kv", "f16 or f32");
  if (!engine.kv.empty() && engine.target.starts_with("reference"))
    return table.wrong("kv: this device has none to choose: it computes in f64");
  return {};
}

}  // namespace

Result<Engine> read_engine(const TomlTable& table, const std::string& name) {
  if (!is_plain_name(name))
    return table.wrong("expected a name of letters, digits and . _ - (files are called after it)");
  std::vector<std::string> keys, mains;
  const KindKeys* found = nullptr;
  int given = 0;
  for (const KindKeys& kind : kinds()) {
    mains.emplace_back(kind.key);
    keys.emplace_back(kind.key);
    keys.insert(keys.end(), kind.others.begin(), kind.others.end());
    if (!table.has(kind.key)) continue;
    found = &kind;
    ++given;
  }
  LS_TRY_VOID(table.only(keys));
  if (given != 1)
    return table.wrong(fmt::format("found {} of {}, expected one", given == 0 ? "none" : "several",
                                   fmt::join(mains, ", ")));
  for (const std::string& key : keys) {
    const bool own =
        key == found->key || std::ranges::find(found->others, key) != found->others.end();
    if (!own && table.has(key))
      return table.wrong(fmt::format("'{}' says nothing of a {}; expected {}", key, found->key,
                                     found->others.empty()
                                         ? "no other key"
                                         : fmt::format("{}", fmt::join(found->others, ", "))));
  }
  Engine engine;
  engine.name = name;
  engine.kind = found->kind;
  LS_TRY(engine.timeout, table.number("timeout", engine.timeout, 0.01, 1e7));
  LS_TRY(engine.memory_gb, table.number("memory_gb", 0, 0.001, 1e6));
  if (engine.kind == EngineKind::kCommand) LS_TRY_VOID(read_command(table, engine));
  if (engine.kind == EngineKind::kCapture) LS_TRY_VOID(read_capture(table, engine));
  if (engine.kind == EngineKind::kDevice) LS_TRY_VOID(read_device(table, engine));
  if (engine.kind == EngineKind::kTrace) {
    LS_TRY(engine.target, table.text("trace", ""));
  }
  return engine;
}

}  // namespace lockstep::suite
