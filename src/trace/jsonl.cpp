#include "trace/jsonl.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "trace/jsonl_line.h"

namespace lockstep::trace {
namespace {

// Where a layer's number stands between two pieces of text.
std::optional<std::string_view> between(std::string_view name, std::string_view before,
                                        std::string_view after) {
  if (name.size() <= before.size() + after.size() || !name.starts_with(before) ||
      !name.ends_with(after))
    return std::nullopt;
  name.remove_prefix(before.size());
  name.remove_suffix(after.size());
  const bool digits = std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
  return digits ? std::optional(name) : std::nullopt;
}

// Strict JSON has no infinities and no NaN; strings say what they are.
std::string number_text(double value, DType dtype) {
  if (std::isnan(value)) return "\"nan\"";
  if (std::isinf(value)) return value > 0 ? "\"inf\"" : "\"-inf\"";
  // 1e308 reads as infinity.
  if (dtype == DType::kF64)
    return std::abs(value) == 1e308 ? fmt::format("{}.0e307", value > 0 ? 10 : -10)
                                    : fmt::format("{}", value);
  return fmt::format("{}", static_cast<float>(value));
}

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

bool JsonlRecord::exact() const {
  constexpr int kDigits[] = {16, 8, 4, 3};  // f64, f32, f16, bf16
  return digits >= kDigits[static_cast<int>(dtype.value_or(DType::kF32))];
}

void add_problem(std::vector<JsonlProblem>& problems, JsonlProblem problem) {
  if (problem.way.empty()) problem.way = problem.message;
  problem.last_line = std::max(problem.last_line, problem.line);
  const auto same = std::ranges::find_if(problems, [&](const JsonlProblem& other) {
    return other.way == problem.way && other.kept == problem.kept &&
           other.truncated == problem.truncated;
  });
  if (same == problems.end()) {
    problems.push_back(std::move(problem));
    return;
  }
  if (same->last_line == problem.line) return;  // twice in one line
  same->lines += problem.lines;
  same->last_line = std::max(same->last_line, problem.last_line);
}

std::string to_text(const JsonlProblem& problem, const std::string& path) {
  std::string text =
      fmt::format("{}:{}:{}: {}", printable(path), problem.line, problem.column, problem.message);
  if (problem.lines == 2) text += fmt::format(" (and line {} like it)", problem.last_line);
  if (problem.lines > 2)
    text += fmt::format(" (and {} more lines like it, the last is line {})", problem.lines - 1,
                        problem.last_line);
  return text;
}

Result<JsonlReader> JsonlReader::open(const std::string& path) {
  LS_TRY(MappedFile map, MappedFile::open(path));
  const auto bytes = map.bytes();
  JsonlReader reader({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
  reader.map_.push_back(std::move(map));
  return reader;
}

JsonlReader::JsonlReader(std::string_view text, std::string path)
    : text_(text), path_(std::move(path)) {
  if (text_.starts_with("\xef\xbb\xbf")) next_ = 3;  // a byte-order mark
}

std::optional<JsonlRecord> JsonlReader::next() {
  while (next_ < text_.size()) {
    const size_t begin = next_;
    const size_t end = std::min(text_.find('\n', begin), text_.size());
    next_ = end + 1;
    ++line_;
    const std::string_view line = text_.substr(begin, end - begin);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;  // blank
    LineOutcome outcome = read_jsonl_line(line);
    for (JsonlProblem& problem : outcome.problems) {
      problem.line = line_;
      // A whole line ends in a newline, or at least in its closing brace.
      if (!problem.kept && outcome.at_end && end == text_.size()) {
        problem.truncated = true;
        problem.message = "the last line is cut off: " + problem.message;
      }
      add_problem(problems_, std::move(problem));
    }
    if (!outcome.record) continue;
    outcome.record->line = line_;
    outcome.record->offset = static_cast<int64_t>(begin);
    return std::move(outcome.record);
  }
  return std::nullopt;
}

JsonlRecord JsonlReader::at(int64_t offset) const {
  const auto begin = static_cast<size_t>(offset);
  const size_t end = std::min(text_.find('\n', begin), text_.size());
  LineOutcome outcome = read_jsonl_line(text_.substr(begin, end - begin));
  LS_CHECK(outcome.record.has_value(), "no record at {}", offset);
  outcome.record->offset = offset;
  return std::move(*outcome.record);
}

std::string jsonl_line(const JsonlRecord& record) {
  const DType dtype = record.dtype.value_or(DType::kF32);
  std::string out = fmt::format(
      "{{\"checkpoint\":{},\"team\":{},\"token_idx\":{},\"dtype\":\"{}\",\"shape\":\"[{}]\","
      "\"values\":[",
      quoted(jsonl_name(record.checkpoint)), quoted(record.team), record.position, name(dtype),
      fmt::join(record.shape, ","));
  for (size_t i = 0; i < record.values.size(); ++i) {
    if (i > 0) out += ',';
    out += number_text(record.values[i], dtype);
  }
  out += ']';
  if (record.ts) out += ",\"ts\":" + quoted(*record.ts);
  if (record.source) out += ",\"source\":" + quoted(*record.source);
  return out + "}\n";
}

std::string jsonl_name(std::string_view checkpoint) {
  if (const auto layer = between(checkpoint, "blk.", ".output"))
    return fmt::format("layer_{}_output", *layer);
  return std::string(checkpoint);
}

std::string checkpoint_name(std::string_view jsonl_name) {
  if (const auto layer = between(jsonl_name, "layer_", "_output"))
    return fmt::format("blk.{}.output", *layer);
  return std::string(jsonl_name);
}

}  // namespace lockstep::trace
