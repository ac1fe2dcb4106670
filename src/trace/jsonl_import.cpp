#include "trace/jsonl_import.h"

#include <cmath>
#include <map>

#include "base/text.h"
#include "lockstep/detail/limits.h"
#include "trace/shard_writer.h"

namespace lockstep::trace {
namespace {

// What is known of a checkpoint after the first reading.
struct Column {
  int64_t width = 0;
  int64_t full_width = 0;
  DType dtype = DType::kF32;
  bool fits = true;  // every number is one of its dtype, as far as its digits tell
};

struct Cell {
  size_t column;
  int64_t offset;  // of its line
};

// The bytes of a number in a dtype.
void append_number(std::vector<std::byte>& out, DType dtype, double value) {
  const auto put = [&](const auto& stored) {
    const auto bytes = std::as_bytes(std::span(&stored, 1));
    out.insert(out.end(), bytes.begin(), bytes.end());
  };
  switch (dtype) {
    case DType::kF64:
      return put(value);
    case DType::kF32:
      return put(static_cast<float>(value));
    case DType::kF16:
      return put(float_to_half(static_cast<float>(value)));
    case DType::kBF16:
      return put(float_to_bfloat(static_cast<float>(value)));
  }
}

// Whether a number that was written with a few digits can be the dtype's. A garbage value of 1e30
// in a log that says f16 must not become an infinity here.
bool fits(DType dtype, double value) {
  std::vector<std::byte> bytes;
  append_number(bytes, dtype, value);
  const double stored = load_number(dtype, bytes.data());
  if (!std::isfinite(value)) return std::isnan(value) == std::isnan(stored);
  return std::isfinite(stored) && std::abs(stored - value) <= 1e-3 * std::abs(value) + 1e-7;
}

// The log in order of positions; lines stay where they are.
struct Index {
  std::vector<std::string> names;  // in order of appearance
  std::vector<Column> columns;
  std::map<int64_t, std::vector<Cell>> positions;
  std::string team;
  int64_t rows = 0;
};

Index index_of(JsonlReader& log, std::vector<JsonlProblem>& problems) {
  Index index;
  std::map<std::string, size_t, std::less<>> columns;
  while (const auto record = log.next()) {
    const auto left_out = [&](std::string message, std::string way) {
      add_problem(problems, {record->line, 1, std::move(message), false, false, std::move(way)});
    };
    if (index.rows == 0) index.team = record->team;
    if (record->team != index.team) {
      left_out(fmt::format("team '{}'; a trace is of one engine, here '{}'",
                           printable(record->team, 40), printable(index.team, 40)),
               "another team");
      continue;
    }
    if (index.columns.size() >= detail::kMostCheckpoints && !columns.contains(record->checkpoint)) {
      left_out(fmt::format("a trace has at most {} checkpoints", detail::kMostCheckpoints), "");
      continue;
    }
    const auto width = static_cast<int64_t>(record->values.size());
    const auto [found, is_new] = columns.try_emplace(record->checkpoint, index.columns.size());
    if (is_new) {
      int64_t full = 1;
      for (const int64_t extent : record->shape) full *= extent;
      index.names.push_back(record->checkpoint);
      index.columns.push_back(
          {width, full > width ? full : 0, record->dtype.value_or(DType::kF32), true});
    }
    const size_t which = found->second;
    Column& column = index.columns[which];
    if (width != column.width) {
      left_out(fmt::format("{} values of '{}'; its first line has {}", width,
                           printable(record->checkpoint, 80), column.width),
               "another number of values");
      continue;
    }
    auto& cells = index.positions[record->position];
    const auto same = [&](const Cell& cell) { return cell.column == which; };
    if (std::ranges::any_of(cells, same)) {
      left_out(fmt::format("position {} has '{}' already; the first is taken (did two runs write "
                           "to the log?)",
                           record->position, printable(record->checkpoint, 80)),
               "a position twice");
      continue;
    }
    for (const double value : record->values)
      column.fits = column.fits && fits(column.dtype, value);
    cells.push_back({which, record->offset});
    ++index.rows;
  }
  for (Column& column : index.columns)
    if (!column.fits) column.dtype = column.dtype == DType::kF32 ? DType::kF64 : DType::kF32;
  return index;
}

Result<void> write_position(ShardWriter& writer, const JsonlReader& log, const Index& index,
                            int64_t position, const std::vector<Cell>& cells, int64_t step) {
  std::vector<StoredPlan> plans;
  for (const Cell& cell : cells) {
    const Column& column = index.columns[cell.column];
    plans.push_back(
        {fmt::format("{}/{}", step, index.names[cell.column]), column.dtype, {1, column.width}});
  }
  LS_TRY_VOID(writer.begin_step({step, position, 1, ""}, std::move(plans)));
  for (size_t i = 0; i < cells.size(); ++i) {
    std::vector<std::byte> bytes;
    for (const double value : log.at(cells[i].offset).values)
      append_number(bytes, index.columns[cells[i].column].dtype, value);
    LS_TRY_VOID(writer.put(i, std::move(bytes)));
  }
  return writer.end_step(true);
}

Result<void> write_all(ShardWriter& writer, const JsonlReader& log, const Index& index) {
  int64_t step = 0;
  for (const auto& [position, cells] : index.positions)
    LS_TRY_VOID(write_position(writer, log, index, position, cells, step++));
  return writer.finish({}, 0);
}

}  // namespace

Result<ImportOutcome> import_jsonl(const std::string& path, const std::string& folder) {
  LS_TRY(JsonlReader log, JsonlReader::open(path));
  ImportOutcome outcome;
  const Index index = index_of(log, outcome.problems);
  outcome.problems.insert(outcome.problems.end(), log.problems().begin(), log.problems().end());
  std::ranges::stable_sort(outcome.problems, {}, &JsonlProblem::line);
  if (index.rows == 0)
    return outcome.problems.empty()
               ? error("{}: no lines", printable(path))
               : error("{}: no line can be read; the first: {}", printable(path),
                       to_text(outcome.problems.front(), path));
  Manifest manifest;
  manifest.engine.name = index.team;
  for (size_t i = 0; i < index.names.size(); ++i)
    manifest.checkpoints.push_back({index.names[i], index.columns[i].dtype, index.columns[i].width,
                                    index.columns[i].full_width});
  ShardWriter writer(folder, std::move(manifest));
  LS_TRY_VOID(writer.start());
  if (auto written = write_all(writer, log, index); !written.ok()) {
    writer.give_up();
    return written.error();
  }
  outcome.rows = index.rows;
  outcome.positions = std::ssize(index.positions);
  outcome.checkpoints = static_cast<int64_t>(index.names.size());
  return outcome;
}

}  // namespace lockstep::trace
