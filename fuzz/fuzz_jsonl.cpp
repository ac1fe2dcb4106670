// The JSONL reader on any bytes. Every line is a record, a problem or blank; what was read is
// written and read again without a change.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "trace/jsonl.h"

namespace {

using namespace lockstep::trace;

bool same(double a, double b) {
  return std::isnan(a) ? std::isnan(b) : a == b;
}

void check_round_trip(const JsonlRecord& record) {
  // Numbers that need more than their type are written as the type has them.
  JsonlRecord wide = record;
  wide.dtype = lockstep::DType::kF64;
  const std::string text = jsonl_line(wide);
  JsonlReader reader(text, "again");
  const auto again = reader.next();
  LS_CHECK(again.has_value() && reader.problems().empty(), "{}", text);
  LS_CHECK(again->checkpoint == checkpoint_name(jsonl_name(again->checkpoint)));
  LS_CHECK(again->position == record.position && again->shape == record.shape);
  LS_CHECK(std::equal(record.values.begin(), record.values.end(), again->values.begin(),
                      again->values.end(), same));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  JsonlReader reader(text, "fuzz");
  int64_t records = 0, last = 0;
  while (const auto record = reader.next()) {
    LS_CHECK(record->line > last && !record->values.empty());
    last = record->line;
    ++records;
    LS_CHECK(reader.at(record->offset).values.size() == record->values.size());
    check_round_trip(*record);
  }
  const int64_t lines = 1 + std::count(text.begin(), text.end(), '\n');
  int64_t lost = 0;
  for (const JsonlProblem& problem : reader.problems()) {
    LS_CHECK(problem.line >= 1 && problem.line <= problem.last_line && problem.last_line <= lines &&
             problem.column >= 1);
    LS_CHECK(problem.lines >= 1 && problem.lines <= problem.last_line - problem.line + 1);
    lost += problem.kept ? 0 : problem.lines;
  }
  LS_CHECK(records + lost <= lines);
  return 0;
}
