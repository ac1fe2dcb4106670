// Models in several files: "X-00001-of-00003.gguf" and so on. The first has the metadata; each says
// which part it is (split.no, from 0), of how many (split.count), and how many tensors there are in
// all (split.tensors.count). Within this folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "gguf/file.h"

namespace lockstep::gguf {

struct Split {
  int64_t count = 0;    // 0 or 1: not split
  int64_t tensors = 0;  // in all parts together
};

// Of the file that was asked for. Any part but the first is an error that names the first.
Result<Split> read_split(const File& file);

// The paths of all parts, from that of the first.
Result<std::vector<std::string>> split_paths(const std::string& first_path, const Split& split);

// Whether a file is part `index` (from 0) of the model.
Result<void> check_part(const File& part, int64_t index, const Split& split);

// Whether the parts together have the tensors that they should.
Result<void> check_total(const File& merged, const Split& split);

}  // namespace lockstep::gguf
