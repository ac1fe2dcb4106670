// docs/trace-format.md says what the code does: fields, which of them must be there, limits and
// names of precision.
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/detail/limits.h"
#include "lockstep/detail/precision.h"
#include "trace/jsonl.h"
#include "trace/manifest.h"
#include "trace/safetensors.h"

namespace lockstep::trace {
namespace {

using nlohmann::ordered_json;

// The rows of the first table under a heading: their cells without spaces around them.
std::vector<std::vector<std::string>> table_under(const std::string& heading) {
  std::ifstream in(LOCKSTEP_FIXTURES "/../../docs/trace-format.md");
  std::vector<std::vector<std::string>> rows;
  bool under = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("#")) under = line == heading;
    if (!under) continue;
    if (!line.starts_with("|")) {
      if (!rows.empty()) break;
      continue;
    }
    std::istringstream cells(line.substr(1));
    rows.emplace_back();
    for (std::string cell; std::getline(cells, cell, '|');) {
      const size_t first = cell.find_first_not_of(' ');
      rows.back().push_back(first == std::string::npos
                                ? ""
                                : cell.substr(first, cell.find_last_not_of(' ') - first + 1));
    }
  }
  EXPECT_GT(rows.size(), 2u) << heading;
  rows.erase(rows.begin(), rows.begin() + 2);  // the head and its line
  return rows;
}

std::string without_ticks(std::string text) {
  std::erase(text, '`');
  return text;
}

// Every field with its path: engine.name, steps[].index. What is in `sampling` is free.
void add_paths(const ordered_json& value, const std::string& path, std::set<std::string>& out) {
  if (value.is_array())
    for (const ordered_json& item : value)
      if (item.is_object()) add_paths(item, path + "[]", out);
  if (!value.is_object() || path == "sampling") return;
  for (const auto& [key, item] : value.items()) {
    out.insert(path.empty() ? key : path + "." + key);
    add_paths(item, path.empty() ? key : path + "." + key, out);
  }
}

Manifest full_manifest() {
  Manifest m;
  m.engine = {"e", "1", "cpu", {"f32", "f16", "f16", "bf16", "f16"}};
  m.model = {"m.gguf", "/m.gguf", "llama", "0123", "Q4_K"};
  m.forward.context_length = 7;
  m.forward.rope_base = 1e6;
  m.forward.rope_scale = 0.25;
  m.prompt = "text";
  m.tokens = {1, 2, 3};
  m.prompt_tokens = 2;
  m.sampling = {{"temperature", 0}};
  m.checkpoints = {{"logits", DType::kF32, 3, 9}};
  m.steps = {{0, 0, 2, "a"}, {5, 2, 1, "b"}};
  m.dropped_steps = 4;
  m.notes = {"n"};
  m.unmapped = {"u"};
  return m;
}

// The value at a path; in lists, of the last item.
ordered_json& at_path(ordered_json& document, std::string path) {
  ordered_json* value = &document;
  while (true) {
    const size_t dot = path.find('.');
    std::string key = path.substr(0, dot);
    const bool list = key.ends_with("[]");
    if (list) key.resize(key.size() - 2);
    value = &(*value)[key];
    if (list) value = &value->back();
    if (dot == std::string::npos) return *value;
    path.erase(0, dot + 1);
  }
}

void erase_path(ordered_json& document, const std::string& path) {
  const size_t dot = path.rfind('.');
  if (dot == std::string::npos)
    document.erase(path);
  else
    at_path(document, path.substr(0, dot)).erase(path.substr(dot + 1));
}

bool is_read(const ordered_json& document) {
  return parse_manifest(document.dump(), "manifest").ok();
}

TEST(FormatDocument, HasEveryFieldOfTheManifest) {
  std::set<std::string> written, told;
  add_paths(ordered_json::parse(to_json(full_manifest())), "", written);
  for (const auto& row : table_under("## manifest.json"))
    EXPECT_TRUE(told.insert(without_ticks(row[0])).second) << row[0];
  EXPECT_EQ(told, written);
}

TEST(FormatDocument, SaysWhichFieldsMustBeThere) {
  const ordered_json whole = ordered_json::parse(to_json(full_manifest()));
  ASSERT_TRUE(is_read(whole));
  for (const auto& row : table_under("## manifest.json")) {
    const std::string field = without_ticks(row[0]);
    ASSERT_TRUE(row[2] == "must" || row[2] == "may") << field;
    ordered_json without = whole;
    erase_path(without, field);
    if (field == "tokens") without["n_prompt"] = 0;  // of none
    EXPECT_EQ(is_read(without), row[2] == "may") << field;
    ordered_json null = whole;
    at_path(null, field) = nullptr;
    if (field == "tokens") null["n_prompt"] = 0;
    EXPECT_EQ(is_read(null), row[2] == "may") << field;
    // No field takes a value of every type. Only objects are not looked at as a whole.
    if (row[1] == "object" && row[2] == "may") continue;
    ordered_json wrong = whole;
    at_path(wrong, field) = row[1].starts_with("text") ? ordered_json(1) : ordered_json("text");
    EXPECT_FALSE(is_read(wrong)) << field;
  }
  ordered_json more = whole;
  more["mine"] = more["engine"]["mine"] = more["steps"][0]["mine"] = {{"x", 1}};
  EXPECT_TRUE(is_read(more));
  for (const int version : {0, 2}) {
    more["version"] = version;
    EXPECT_FALSE(is_read(more));
  }
}

TEST(FormatDocument, HasEveryFieldOfALine) {
  const JsonlRecord record{.checkpoint = "embedding",
                           .team = "t",
                           .position = 3,
                           .dtype = DType::kF16,
                           .shape = {2},
                           .values = {1.5, -2},
                           .ts = "now",
                           .source = "here"};
  const ordered_json line = ordered_json::parse(jsonl_line(record));
  std::set<std::string> written, told;
  for (const auto& [key, value] : line.items()) written.insert(key);
  for (const auto& row : table_under("## JSON Lines")) {
    told.insert(without_ticks(row[0]));
    ordered_json without = line;
    without.erase(without_ticks(row[0]));
    const std::string text = without.dump() + "\n";
    JsonlReader reader(text, "log");
    EXPECT_EQ(reader.next().has_value(), row[2] == "may") << row[0];
  }
  EXPECT_EQ(told, written);
}

TEST(FormatDocument, HasTheLimits) {
  std::map<std::string, std::string> told;
  for (const auto& row : table_under("## Limits")) told[without_ticks(row[0])] = row[1];
  const std::map<std::string, std::string> expected = {
      {"kMostPositions", std::to_string(detail::kMostPositions)},
      {"kMostWidth", std::to_string(detail::kMostWidth)},
      {"kMostCheckpoints", std::to_string(detail::kMostCheckpoints)},
      {"kMostNameBytes", std::to_string(detail::kMostNameBytes)},
      {"header", std::to_string(kLargestHeader)},
      {"depth", "64"},
  };
  EXPECT_EQ(told, expected);
  EXPECT_EQ(detail::kMostInBlock, 65536);
  for (const int depth : {63, 64}) {
    std::string document = to_json(full_manifest());
    const std::string nested =
        std::string(static_cast<size_t>(depth), '[') + std::string(static_cast<size_t>(depth), ']');
    document.insert(1, "\"mine\": " + nested + ",");
    EXPECT_EQ(parse_manifest(document, "manifest").ok(), depth + 1 <= 64) << depth;
  }
}

TEST(FormatDocument, HasTheNamesOfPrecision) {
  std::vector<std::vector<std::string>> expected;
  constexpr const char* kWords[] = {"never", "maybe", "always"};
  for (const detail::PrecisionRow& row : detail::kPrecisionRows)
    expected.push_back(
        {std::string(row.type), std::string(row.fields), kWords[static_cast<int>(row.scaled)]});
  std::vector<std::vector<std::string>> told;
  for (auto row : table_under("## Names of precision"))
    told.push_back({without_ticks(row[0]), without_ticks(row[1]), row[2]});
  EXPECT_EQ(told, expected);
}

}  // namespace
}  // namespace lockstep::trace
