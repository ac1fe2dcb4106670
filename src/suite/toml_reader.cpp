#include "suite/toml_reader.h"

#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>

#include "base/near_names.h"
#include "base/text.h"

namespace lockstep::suite {
namespace {

std::string describe_node(const toml::node& node) {
  if (const auto* text = node.as_string()) return fmt::format("'{}'", printable(text->get(), 60));
  if (const auto* whole = node.as_integer()) return fmt::format("{}", whole->get());
  if (const auto* real = node.as_floating_point()) return fmt::format("{}", real->get());
  if (const auto* truth = node.as_boolean()) return truth->get() ? "true" : "false";
  if (const auto* array = node.as_array()) return fmt::format("an array of {}", array->size());
  if (node.is_table()) return "a table";
  return "a date or time";
}

std::string located(const std::string& source, const toml::source_position& place) {
  return fmt::format("{}:{}:{}", printable(source), place.line, place.column);
}

}  // namespace

Result<toml::table> parse_toml(std::string_view text, const std::string& source) {
  toml::parse_result parsed = toml::parse(text, source);
  if (parsed.failed())
    return error("{}: no TOML: {}", located(source, parsed.error().source().begin),
                 printable(parsed.error().description(), 300));
  return std::move(parsed).table();
}

Error TomlTable::at(const toml::node& node, std::string_view key, const std::string& what) const {
  const std::string name = place_.empty() ? std::string(key)
                           : key.empty()  ? fmt::format("[{}]", place_)
                                          : fmt::format("[{}] {}", place_, key);
  return error("{}: {}{}{}", located(*source_, node.source().begin), printable(name, 200),
               name.empty() ? "" : ": ", what);
}

Error TomlTable::wrong(const std::string& what) const {
  return at(*table_, "", what);
}

Error TomlTable::wrong(std::string_view key, std::string_view expected) const {
  const toml::node* node = table_->get(key);
  if (node == nullptr)
    return at(*table_, "", fmt::format("'{}' is missing, expected {}", key, expected));
  return at(*node, key, fmt::format("found {}, expected {}", describe_node(*node), expected));
}

Result<void> TomlTable::only(const std::vector<std::string>& keys) const {
  for (const auto& [key, node] : *table_) {
    if (std::ranges::find(keys, key.str()) != keys.end()) continue;
    const auto near = nearest_names(key.str(), keys);
    const std::string expected = near.empty() ? fmt::format("one of {}", fmt::join(keys, ", "))
                                              : fmt::format("perhaps {}", fmt::join(near, " or "));
    return error("{}: {}: unknown key '{}', expected {}", located(*source_, key.source().begin),
                 place_.empty() ? "the suite" : fmt::format("[{}]", printable(place_, 100)),
                 printable(key.str(), 60), expected);
  }
  return {};
}

Result<std::string> TomlTable::text(std::string_view key, std::string otherwise) const {
  const toml::node* node = table_->get(key);
  if (node == nullptr) return otherwise;
  const auto* text = node->as_string();
  if (text == nullptr || text->get().empty()) return wrong(key, "a text with something in it");
  if (text->get().find('\0') != std::string::npos)
    return at(*node, key, "found a character of code 0, expected a text without it");
  return text->get();
}

Result<bool> TomlTable::boolean(std::string_view key, bool otherwise) const {
  const toml::node* node = table_->get(key);
  if (node == nullptr) return otherwise;
  const auto* truth = node->as_boolean();
  if (truth == nullptr) return wrong(key, "true or false");
  return truth->get();
}

Result<int64_t> TomlTable::integer(std::string_view key, int64_t otherwise, int64_t least,
                                   int64_t most) const {
  const toml::node* node = table_->get(key);
  if (node == nullptr) return otherwise;
  const auto* whole = node->as_integer();
  if (whole == nullptr || whole->get() < least || whole->get() > most)
    return wrong(key, fmt::format("a whole number from {} to {}", least, most));
  return whole->get();
}

Result<double> TomlTable::number(std::string_view key, double otherwise, double least,
                                 double most) const {
  const toml::node* node = table_->get(key);
  if (node == nullptr) return otherwise;
  double value = NAN;
  if (const auto* whole = node->as_integer()) value = static_cast<double>(whole->get());
  if (const auto* real = node->as_floating_point()) value = real->get();
  if (!(value >= least && value <= most))
    return wrong(key, fmt::format("a number from {} to {}", least, most));
  return value;
}

Result<std::vector<std::string>> TomlTable::texts(std::string_view key) const {
  std::vector<std::string> out;
  const toml::node* node = table_->get(key);
  if (node == nullptr) return out;
  const auto* array = node->as_array();
  if (array == nullptr) {
    if (!node->is_string()) return wrong(key, "a text, or a list of texts");
    LS_TRY(out.emplace_back(), text(key, ""));
    return out;
  }
  for (const toml::node& item : *array) {
    const auto* one = item.as_string();
    if (one == nullptr || one->get().empty() || one->get().find('\0') != std::string::npos)
      return at(item, key,
                fmt::format("found {}, expected a text with something in it", describe_node(item)));
    out.push_back(one->get());
  }
  if (out.empty()) return at(*node, key, "the list is empty, expected a text at least");
  return out;
}

Result<std::vector<std::vector<int32_t>>> TomlTable::number_lists(std::string_view key) const {
  std::vector<std::vector<int32_t>> out;
  const toml::node* node = table_->get(key);
  if (node == nullptr) return out;
  const auto* lists = node->as_array();
  if (lists == nullptr || lists->empty()) return wrong(key, "lists of token ids: [[1, 2, 3]]");
  for (const toml::node& list : *lists) {
    const auto* ids = list.as_array();
    if (ids == nullptr || ids->empty())
      return at(
          list, key,
          fmt::format("found {}, expected lists of token ids: [[1, 2, 3]]", describe_node(list)));
    out.emplace_back();
    for (const toml::node& id : *ids) {
      const auto* value = id.as_integer();
      if (value == nullptr || value->get() < 0 || value->get() > INT32_MAX)
        return at(id, key, fmt::format("found {}, expected a token id", describe_node(id)));
      out.back().push_back(static_cast<int32_t>(value->get()));
    }
  }
  return out;
}

Result<std::vector<TomlTable>> TomlTable::array_of_tables(std::string_view key) const {
  std::vector<TomlTable> out;
  const toml::node* node = table_->get(key);
  if (node == nullptr) return out;
  const auto* array = node->as_array();
  if (array == nullptr)
    return wrong(key, fmt::format("[[{}]], with two brackets on each side", key));
  for (const toml::node& item : *array) {
    const auto* table = item.as_table();
    if (table == nullptr)
      return at(item, key, fmt::format("found {}, expected a table", describe_node(item)));
    out.emplace_back(*table, *source_, std::string(key));
  }
  return out;
}

Result<std::vector<TomlTable>> TomlTable::tables(std::string_view key) const {
  std::vector<TomlTable> out;
  const toml::node* node = table_->get(key);
  if (node == nullptr) return out;
  const auto* named = node->as_table();
  if (named == nullptr) return wrong(key, fmt::format("tables with names: [{}.mine]", key));
  for (const auto& [name, value] : *named) {
    const auto* table = value.as_table();
    if (table == nullptr)
      return at(value, key,
                fmt::format("found {} = {}, expected a table [{}.{}]", printable(name.str(), 60),
                            describe_node(value), key, printable(name.str(), 60)));
    out.emplace_back(*table, *source_, fmt::format("{}.{}", key, name.str()));
  }
  return out;
}

}  // namespace lockstep::suite
