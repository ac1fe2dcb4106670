// Logs of values as JSON Lines (docs/trace-format.md): one checkpoint at one position a line, the
// first numbers of it. Other loggers' dialects are read too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/mapped_file.h"
#include "base/result.h"

namespace lockstep::trace {

struct JsonlRecord {
  int64_t line = 0;    // from 1
  int64_t offset = 0;  // of the line in the file
  std::string checkpoint;
  std::string team;
  int64_t position = 0;        // token_idx
  std::optional<DType> dtype;  // nothing where the line does not say, or says something unknown
  std::vector<int64_t> shape;  // of the whole value; empty where the line does not say
  std::vector<double> values;  // the first ones of the row
  std::optional<std::string> ts;
  std::optional<std::string> source;
  int digits = 0;  // most significant digits that a number was written with
  // Elements that stand in for something that JSON has no word for: null, 1e308.
  int64_t stand_ins = 0;

  // Enough digits to tell every number of its dtype from its neighbours.
  bool exact() const;
};

// What is wrong with a line, or with many: lines that are wrong in the same way are one problem.
struct JsonlProblem {
  int64_t line = 0;    // the first such line
  int64_t column = 0;  // byte in the line, from 1
  std::string message;
  bool truncated = false;  // the last line ends in the middle, as a killed writer leaves it
  bool kept = false;       // the line was used all the same
  std::string way = {};    // in which it is wrong; the message may say more
  int64_t lines = 1;
  int64_t last_line = 0;
};

// Adds to the problem of the same way, or as a new one.
void add_problem(std::vector<JsonlProblem>& problems, JsonlProblem problem);

// "LOG:3:17: message (and 4 more lines like it, the last is line 9)".
std::string to_text(const JsonlProblem& problem, const std::string& path);

// Reads line by line; memory is that of one line.
class JsonlReader {
 public:
  static Result<JsonlReader> open(const std::string& path);
  // From text in memory, which must outlive it.
  JsonlReader(std::string_view text, std::string path);

  const std::string& path() const { return path_; }

  // The next line that can be read, or nothing at the end. What cannot be read is a problem.
  std::optional<JsonlRecord> next();
  // The line at an offset that an earlier record had.
  JsonlRecord at(int64_t offset) const;
  const std::vector<JsonlProblem>& problems() const { return problems_; }

 private:
  std::vector<MappedFile> map_;  // one, or none where the text is somebody else's
  std::string_view text_;
  std::string path_;
  size_t next_ = 0;
  int64_t line_ = 0;
  std::vector<JsonlProblem> problems_;
};

// One line, with its newline. `values` are written so that reading gives the same bits back.
std::string jsonl_line(const JsonlRecord& record);

// blk.3.output <-> layer_3_output; other names are the same on both sides.
std::string jsonl_name(std::string_view checkpoint);
std::string checkpoint_name(std::string_view jsonl_name);

}  // namespace lockstep::trace
