// tokenizer.json in the words of a GGUF file. Within this folder.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gguf/value.h"

namespace lockstep::hub {

// The entries "tokenizer.ggml.*". Ids from `rows` on, which the model has no embedding for, are
// left out. What would give other tokens than the hub's library does is an error that names the
// key.
Result<std::vector<gguf::Entry>> read_tokenizer(std::string_view text, const std::string& source,
                                                int64_t rows);

// The same of a folder, with the chat template; "none" where it has no tokenizer.json, or one that
// is not supported, which a notice says then.
std::vector<gguf::Entry> folder_tokenizer(const std::string& folder, int64_t rows, bool map);

}  // namespace lockstep::hub
