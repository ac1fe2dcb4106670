#include "trace/name_map.h"

#include <algorithm>
#include <array>

#include "base/near_names.h"
#include "lockstep/detail/checkpoints.h"
#include "trace/built_in_names.h"

namespace lockstep::trace {
namespace {

constexpr std::string_view kLayer = "{N}";

constexpr std::string_view kLists[] = {"nodes",   "reads",         "ops",
                                       "not_ops", "architectures", "not_architectures"};
constexpr std::string_view kWords[] = {"checkpoint", "part", "take", "order"};
// What a rule may say besides the name.
constexpr std::string_view kConditions[] = {"reads", "ops", "not_ops", "part", "order"};

// The checkpoints of a layer by their names within it, or those outside of the layers.
std::vector<std::string> names_of(bool in_layers) {
  std::vector<std::string> names;
  for (const detail::CheckpointRow& row : detail::kCheckpointRows)
    if (row.name.starts_with("blk.") == in_layers)
      names.emplace_back(detail::checkpoint_leaf(row.name));
  return names;
}

bool is_digits(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

bool contains(std::span<const std::string_view> all, std::string_view wanted) {
  return std::ranges::find(all, wanted) != all.end();
}

// The number of the layer ("" where the pattern has none); nothing where the name does not fit.
std::optional<std::string_view> match(std::string_view pattern, std::string_view name) {
  const size_t place = pattern.find(kLayer);
  if (place == std::string_view::npos)
    return pattern == name ? std::optional<std::string_view>("") : std::nullopt;
  const std::string_view before = pattern.substr(0, place);
  const std::string_view after = pattern.substr(place + kLayer.size());
  if (name.size() <= before.size() + after.size() || !name.starts_with(before) ||
      !name.ends_with(after))
    return std::nullopt;
  const std::string_view layer =
      name.substr(before.size(), name.size() - before.size() - after.size());
  return is_digits(layer) ? std::optional(layer) : std::nullopt;
}

Result<std::vector<std::string>> read_names(const JsonReader& in) {
  std::vector<std::string> names;
  if (!in.present()) return names;
  LS_TRY(const auto items, in.items());
  if (items.empty()) return in.wrong("a list of names");
  for (const JsonReader& item : items) {
    LS_TRY(std::string name, item.text());
    names.push_back(std::move(name));
  }
  return names;
}

}  // namespace

Result<NameMap::Rule> NameMap::read_rule(const JsonReader& in) {
  LS_TRY_VOID(in.object());
  // A rule must not mean less than it says.
  for (const auto& [field, value] : in.value().items())
    if (!contains(kLists, field) && !contains(kWords, field))
      return in[field].wrong("no field of that name");
  Rule rule;
  LS_TRY(rule.checkpoint, in["checkpoint"].text());
  LS_TRY(rule.nodes, read_names(in["nodes"]));
  LS_TRY(rule.reads, read_names(in["reads"]));
  LS_TRY(rule.only_in, read_names(in["architectures"]));
  LS_TRY(rule.not_in, read_names(in["not_architectures"]));
  if (rule.nodes.empty() && rule.reads.empty()) return in.wrong("nodes or reads");
  LS_TRY(const std::string take, in["take"].text_or("output"));
  rule.plain = take == "output" && std::ranges::none_of(kConditions, [&](std::string_view field) {
                 return in[field].present();
               });
  return rule;
}

Result<NameMap> NameMap::parse(std::string_view text, const std::string& path) {
  LS_TRY(const nlohmann::json document, parse_json(text, path));
  const JsonReader in(document, path);
  LS_TRY_VOID(in.document("lockstep-names", 1));
  NameMap map;
  LS_TRY(map.engine_, in["engine"].text());
  if (const JsonReader known = in["known_as"]; known.present()) {
    LS_TRY_VOID(known.object());
    for (const auto& [theirs, value] : known.value().items()) {
      LS_TRY(map.known_as_[theirs], known[theirs].text());
    }
  }
  LS_TRY(const auto items, in["rules"].items());
  for (const JsonReader& item : items) {
    LS_TRY(Rule rule, read_rule(item));
    map.rules_.push_back(std::move(rule));
  }
  return map;
}

std::optional<std::string> NameMap::checkpoint(std::string_view node,
                                               std::string_view architecture) const {
  if (const auto known = known_as_.find(architecture); known != known_as_.end())
    architecture = known->second;
  const auto is_own = [&](const Rule& rule) {
    return std::ranges::find(rule.only_in, architecture) != rule.only_in.end();
  };
  std::optional<std::string> found;
  for (const Rule& rule : rules_) {
    // Of an architecture's own rules and the general ones for the same checkpoint, its own count.
    if (!rule.only_in.empty() && !is_own(rule)) continue;
    if (std::ranges::find(rule.not_in, architecture) != rule.not_in.end()) continue;
    if (rule.only_in.empty() && std::ranges::any_of(rules_, [&](const Rule& other) {
          return other.checkpoint == rule.checkpoint && is_own(other);
        }))
      continue;
    for (const std::string& pattern : rule.nodes) {
      const auto layer = match(pattern, node);
      if (!layer) continue;
      // A name that more than one value has says too little.
      if (!rule.plain || found) return std::nullopt;
      found = rule.checkpoint;
      if (const size_t place = found->find(kLayer); place != std::string::npos)
        found->replace(place, kLayer.size(), *layer);
    }
  }
  return found;
}

const NameMap* find_name_map(std::string_view engine) {
  static const std::vector<NameMap> maps = [] {
    std::vector<NameMap> all;
    for (const std::string_view text : kBuiltInNames) {
      auto map = NameMap::parse(text, "built-in name map");
      LS_CHECK(map.ok(), "{}", map.error().message);
      all.push_back(std::move(*map));
    }
    return all;
  }();
  const auto found = std::ranges::find(maps, engine, &NameMap::engine);
  return found != maps.end() ? &*found : nullptr;
}

bool is_checkpoint_name(std::string_view name) {
  return detail::find_checkpoint(name) != nullptr;
}

std::string nearest_checkpoint_name(std::string_view name) {
  const auto nearest = [](std::string_view wanted, std::span<const std::string> names) {
    const auto found = near_names(wanted, names, 1);
    return found.empty() ? std::string() : found.front();
  };
  constexpr std::string_view kDigits = "0123456789";
  const size_t first = name.find_first_of(kDigits);
  if (first == std::string_view::npos) {
    if (const std::string found = nearest(name, names_of(false)); !found.empty()) return found;
  }
  const size_t end = std::min(name.find_first_not_of(kDigits, first), name.size());
  const std::string_view layer =
      first == std::string_view::npos ? "N" : name.substr(first, end - first);
  std::string_view rest = first == std::string_view::npos ? name : name.substr(end);
  rest.remove_prefix(std::min(rest.find_first_not_of("._-/"), rest.size()));
  if (rest.empty() && first != std::string_view::npos) {  // such as attn_norm-3
    rest = name.substr(0, first);
    rest = rest.substr(0, rest.find_last_not_of("._-/") + 1);
  }
  const std::vector<std::string> names = names_of(true);
  // Every letter is near every other: q, k and v are taken as they are.
  const bool known = std::ranges::find(names, rest) != names.end();
  const std::string found = known             ? std::string(rest)
                            : rest.size() < 3 ? std::string()
                                              : nearest(rest, names);
  return found.empty() ? "" : fmt::format("blk.{}.{}", layer, found);
}

}  // namespace lockstep::trace
