// The safetensors files of a folder. Within this folder.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "trace/safetensors.h"

namespace lockstep::hub {

struct StoredWeight {
  trace::StoredTensor tensor;
  int64_t file_offset = 0;  // of the data
};
using StoredWeights = std::map<std::string, StoredWeight, std::less<>>;

struct WeightsFiles {
  std::vector<MappedFile> files;
  StoredWeights weights;  // data lies in the files
};

// From the file itself, or from all that the index names.
Result<WeightsFiles> open_weights(const std::string& folder, bool map);

// Which file has which tensor, from model.safetensors.index.json.
Result<std::map<std::string, std::string>> parse_index(std::string_view text,
                                                       const std::string& source);

// A file of the folder, mapped or read; the error names it.
Result<MappedFile> take_file(const std::string& path, bool map);
std::string_view text_of(const MappedFile& file);

}  // namespace lockstep::hub
