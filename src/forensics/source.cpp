#include "forensics/source.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <tuple>

#include "base/text.h"
#include "trace/export.h"
#include "trace/trace.h"

namespace lockstep::forensics {
namespace {

// "6", or "256 to 640".
std::string extent_text(const std::set<int64_t>& numbers) {
  return numbers.size() == 1 ? fmt::format("{}", *numbers.begin())
                             : fmt::format("{} to {}", *numbers.begin(), *numbers.rbegin());
}

// Which numbers of its rows a source has.
class Kept {
 public:
  void add(int64_t there, int64_t whole) {
    if (whole <= there) return;
    there_.insert(there);
    whole_.insert(whole);
  }
  void tell(std::vector<std::string>& notes) const {
    if (!there_.empty())
      notes.push_back(fmt::format(
          "only the first {} numbers of rows of {} are there: the rest of each row was not looked "
          "at",
          extent_text(there_), extent_text(whole_)));
  }

 private:
  std::set<int64_t> there_, whole_;
};

class TraceSource : public Source {
 public:
  explicit TraceSource(trace::Trace opened) : trace_(std::move(opened)) {
    const trace::Manifest& manifest = trace_.manifest();
    path = trace_.folder();
    engine = manifest.engine.name;
    model = manifest.model.file;
    tokens = manifest.tokens;
    Kept kept;
    for (const trace::CheckpointInfo& info : manifest.checkpoints) {
      for (const int64_t position : trace::positions_of(trace_, info.name))
        rows.push_back({checkpoints.size(), position, 0});
      checkpoints.push_back(info.name);
      kept.add(info.width, info.full_width);
    }
    kept.tell(notes);
    broken_off = !manifest.complete;
    if (broken_off)
      notes.push_back("the recording did not end well: what was to come after it is not there");
    if (manifest.dropped_steps > 0)
      notes.push_back(fmt::format("{} steps were not recorded", manifest.dropped_steps));
  }

  void load(const RowRef& ref, Row& row) const override {
    const auto stored = trace_.row(checkpoints[ref.checkpoint], ref.position);
    LS_CHECK(stored.has_value());
    row.dtype = stored->dtype;
    row.exact = true;
    row.lines = stored->lines;
    row.bytes.clear();
    const int64_t size = size_bytes(stored->dtype);
    for (int64_t line = 0; line < stored->lines; ++line) {
      const std::byte* data = stored->data + line * stored->line_stride * size;
      row.bytes.insert(row.bytes.end(), data, data + stored->width * size);
    }
  }

 private:
  trace::Trace trace_;
};

class JsonlSource : public Source {
 public:
  explicit JsonlSource(trace::JsonlReader opened) : log_(std::move(opened)) {
    path = log_.path();
    std::map<std::string, size_t, std::less<>> known;
    Kept kept;
    int64_t lines = 0, short_of_digits = 0;
    while (const auto record = log_.next()) {
      // Engines that share a log are told apart.
      if (rows.empty()) engine = record->team;
      const std::string name = record->team == engine
                                   ? record->checkpoint
                                   : fmt::format("{}:{}", record->team, record->checkpoint);
      const auto [found, is_new] = known.try_emplace(name, checkpoints.size());
      if (is_new) checkpoints.push_back(name);
      rows.push_back({found->second, record->position, record->offset});
      int64_t whole = record->shape.empty() ? 0 : 1;
      for (const int64_t extent : record->shape) whole *= extent;
      kept.add(static_cast<int64_t>(record->values.size()), whole);
      lines += record->digits > 0;
      short_of_digits += record->digits > 0 && !record->exact();
    }
    std::ranges::stable_sort(
        rows, {}, [](const RowRef& ref) { return std::tuple(ref.checkpoint, ref.position); });
    problems = log_.problems();
    broken_off = std::ranges::any_of(problems, &trace::JsonlProblem::truncated);
    if (broken_off)
      notes.push_back("the last line is cut off: what was to come after it is not there");
    kept.tell(notes);
    if (short_of_digits * 2 > lines)
      notes.push_back(
          "the numbers were written with few digits: garbage that shows only in the last bits "
          "cannot be told");
  }

  void load(const RowRef& ref, Row& row) const override {
    const trace::JsonlRecord record = log_.at(ref.place);
    row.dtype = record.dtype.value_or(DType::kF32);
    // Printed as it lay in memory, garbage need not be a number that f16 has.
    if (row.dtype == DType::kF16 || row.dtype == DType::kBF16) row.dtype = DType::kF32;
    row.exact = record.exact() && record.digits >= 8 && record.stand_ins == 0;
    row.digits = record.digits;
    row.bytes.resize(record.values.size() * static_cast<size_t>(size_bytes(row.dtype)));
    for (size_t i = 0; i < record.values.size(); ++i) {
      const double wide = record.values[i];
      if (std::isnan(wide)) row.exact = false;  // which NaN it was is lost
      const auto narrow = static_cast<float>(wide);
      if (row.dtype == DType::kF64)
        std::memcpy(&row.bytes[i * sizeof wide], &wide, sizeof wide);
      else
        std::memcpy(&row.bytes[i * sizeof narrow], &narrow, sizeof narrow);
    }
  }

 private:
  trace::JsonlReader log_;
};

}  // namespace

std::vector<Span> spans_of(const Source& source) {
  std::vector<Span> spans(source.checkpoints.size());
  for (size_t i = 0; i < source.rows.size(); ++i) {
    Span& span = spans[source.rows[i].checkpoint];
    if (span.end == 0) span.begin = i;
    span.end = i + 1;
  }
  return spans;
}

Result<std::unique_ptr<Source>> Source::open(const std::string& path) {
  std::error_code failed;
  if (std::filesystem::is_directory(path, failed)) {
    LS_TRY(trace::Trace opened, trace::Trace::open(path));
    return std::unique_ptr<Source>(std::make_unique<TraceSource>(std::move(opened)));
  }
  LS_TRY(trace::JsonlReader log, trace::JsonlReader::open(path));
  auto source = std::make_unique<JsonlSource>(std::move(log));
  if (source->rows.empty())
    return source->problems.empty()
               ? error("{}: no lines", printable(path))
               : error("{}: no line can be read; the first: {}", printable(path),
                       to_text(source->problems.front(), path));
  return std::unique_ptr<Source>(std::move(source));
}

}  // namespace lockstep::forensics
