#include "trace/export.h"

#include <algorithm>
#include <limits>
#include <set>

#include "base/output_file.h"
#include "trace/jsonl.h"
#include "trace/npz.h"

namespace lockstep::trace {
namespace {

// The numbers of a row as numpy can hold them, appended to `out`; lines are padded to `width`.
void append_row(const Trace::Row& row, int64_t width, std::vector<std::byte>& out) {
  const DType dtype = npy_dtype(row.dtype);
  const int64_t size = size_bytes(row.dtype);
  for (int64_t line = 0; line < row.lines; ++line) {
    const std::byte* data = row.data + line * row.line_stride * size;
    if (dtype == row.dtype) {
      out.insert(out.end(), data, data + row.width * size);
    } else {
      for (int64_t i = 0; i < row.width; ++i) {
        const auto value = static_cast<float>(row.at(line, i));
        const auto bytes = std::as_bytes(std::span(&value, 1));
        out.insert(out.end(), bytes.begin(), bytes.end());
      }
    }
    const auto nan64 = std::numeric_limits<double>::quiet_NaN();
    const auto nan32 = std::numeric_limits<float>::quiet_NaN();
    const uint16_t nan16 = float_to_half(nan32);
    const auto nan = dtype == DType::kF64   ? std::as_bytes(std::span(&nan64, 1))
                     : dtype == DType::kF32 ? std::as_bytes(std::span(&nan32, 1))
                                            : std::as_bytes(std::span(&nan16, 1));
    for (int64_t i = row.width; i < width; ++i) out.insert(out.end(), nan.begin(), nan.end());
  }
}

Result<void> export_array(const Trace& trace, const std::string& checkpoint,
                          const std::vector<int64_t>& positions, NpzWriter& npz) {
  int64_t width = 0;
  for (const int64_t position : positions)
    width = std::max(width, trace.row(checkpoint, position)->width);
  const Trace::Row first = *trace.row(checkpoint, positions.front());
  std::vector<int64_t> shape = {static_cast<int64_t>(positions.size())};
  if (first.lines > 1 || first.line_stride > 0) shape.push_back(first.lines);
  shape.push_back(width);
  LS_TRY_VOID(
      npz.begin(checkpoint, npy_type(first.dtype), size_bytes(npy_dtype(first.dtype)), shape));
  std::vector<std::byte> bytes;
  for (const int64_t position : positions) {
    bytes.clear();
    append_row(*trace.row(checkpoint, position), width, bytes);
    LS_TRY_VOID(npz.write(bytes));
  }
  return npz.end();
}

}  // namespace

std::vector<int64_t> positions_of(const Trace& trace, const std::string& checkpoint) {
  std::vector<int64_t> positions;
  const auto& steps = trace.manifest().steps;
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto value = trace.value(i, checkpoint);
    if (!value) continue;
    // Logits may have only the last rows.
    const int64_t rows = value->shape.size() == 3 ? value->shape[1] : value->shape[0];
    for (int64_t row = steps[i].tokens - rows; row < steps[i].tokens; ++row)
      positions.push_back(steps[i].first_position + row);
  }
  return positions;
}

Result<int64_t> export_jsonl(const Trace& trace, const std::vector<std::string>& checkpoints,
                             int64_t values, const std::string& path) {
  LS_TRY(OutputFile file, OutputFile::create(path));
  std::vector<std::vector<int64_t>> positions;
  std::set<int64_t> all;
  for (const std::string& checkpoint : checkpoints) {
    positions.push_back(positions_of(trace, checkpoint));
    all.insert(positions.back().begin(), positions.back().end());
  }
  int64_t lines = 0;
  for (const int64_t position : all) {
    for (size_t i = 0; i < checkpoints.size(); ++i) {
      const auto row = trace.row(checkpoints[i], position);
      if (!row) continue;
      JsonlRecord record;
      record.checkpoint = checkpoints[i];
      record.team = trace.manifest().engine.name;
      record.position = position;
      record.dtype = row->dtype;
      if (row->line_stride > 0)
        record.shape = {row->lines, row->width};
      else
        record.shape = {std::max(row->width, trace.checkpoint(checkpoints[i])->full_width)};
      const int64_t count = std::min(values, row->lines * row->width);
      for (int64_t k = 0; k < count; ++k)
        record.values.push_back(row->at(k / row->width, k % row->width));
      const std::string line = jsonl_line(record);
      LS_TRY_VOID(file.write(std::as_bytes(std::span(line))));
      ++lines;
    }
  }
  LS_TRY_VOID(file.finish());
  return lines;
}

Result<int64_t> export_npz(const Trace& trace, const std::vector<std::string>& checkpoints,
                           const std::string& path) {
  LS_TRY(NpzWriter npz, NpzWriter::create(path));
  std::vector<std::vector<int64_t>> positions;
  std::set<int64_t> all;
  for (const std::string& checkpoint : checkpoints) {
    positions.push_back(positions_of(trace, checkpoint));
    all.insert(positions.back().begin(), positions.back().end());
  }
  const std::vector<int64_t> common(all.begin(), all.end());
  LS_TRY_VOID(npz.add("positions", common));
  int64_t arrays = 1;
  for (size_t i = 0; i < checkpoints.size(); ++i) {
    if (positions[i].empty()) continue;
    LS_TRY_VOID(export_array(trace, checkpoints[i], positions[i], npz));
    ++arrays;
    if (positions[i] == common) continue;
    LS_TRY_VOID(npz.add(checkpoints[i] + ".positions", positions[i]));
    ++arrays;
  }
  LS_TRY_VOID(npz.finish());
  return arrays;
}

}  // namespace lockstep::trace
