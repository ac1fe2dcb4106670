// Rows of numbers from a trace or a JSONL log, one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "trace/jsonl.h"

namespace lockstep::forensics {

// One checkpoint at one position, in memory.
struct Row {
  DType dtype = DType::kF32;
  std::vector<std::byte> bytes;  // [count] numbers, little-endian as the engine had them
  // Whether the bytes are what the engine had, or were made from digits that do not tell them all.
  bool exact = true;
  int digits = 17;    // significant ones that the finite numbers are known to
  int64_t lines = 1;  // heads, for attention scores and probabilities

  int64_t count() const { return static_cast<int64_t>(bytes.size()) / size_bytes(dtype); }
  double at(int64_t index) const { return load_number(dtype, &bytes[index_bytes(index)]); }

 private:
  size_t index_bytes(int64_t index) const { return static_cast<size_t>(index * size_bytes(dtype)); }
};

// Numbers [begin, end) of a row.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;

  bool operator==(const Range&) const = default;
};

struct RowRef {
  size_t checkpoint = 0;  // index into Source::checkpoints
  int64_t position = 0;
  int64_t place = 0;  // of the source's own
};

// Rows [begin, end) of Source::rows that belong to one checkpoint.
struct Span {
  size_t begin = 0;
  size_t end = 0;
};

class Source {
 public:
  virtual ~Source() = default;
  // A folder is a trace, a file a log.
  static Result<std::unique_ptr<Source>> open(const std::string& path);

  // Safe to call from several threads.
  virtual void load(const RowRef& ref, Row& row) const = 0;

  std::string path;
  std::string engine;
  std::string model;
  std::vector<std::string> checkpoints;  // in order of execution
  std::vector<RowRef> rows;              // by checkpoint, then position
  std::vector<int32_t> tokens;           // by position; empty where unknown
  std::vector<trace::JsonlProblem> problems;
  std::vector<std::string> notes;  // what bounds that which a scan can see, sentences
  bool broken_off = false;         // more was to be recorded
};

// By checkpoint.
std::vector<Span> spans_of(const Source& source);

}  // namespace lockstep::forensics
