// What config.json of a folder says, in the words of a GGUF file.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gguf/value.h"
#include "hub/families.h"

namespace lockstep::hub {

// Numbers of config.json that a GGUF file has as a tensor.
struct Factors {
  std::string name;
  std::vector<float> numbers;
};

struct Config {
  const Family* family = nullptr;
  std::vector<gguf::Entry> metadata;
  std::vector<Factors> factors;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t more_layers = 0;  // behind these, which guess tokens further on and are not used
  // Of latent attention: how many numbers of a head's key do not rotate, and those of its value.
  int64_t still_size = 0;
  int64_t value_size = 0;
  // Of weights in eight-bit floats: how many numbers share a scale. 0: there are none.
  int64_t block_rows = 0;
  int64_t block_columns = 0;
  // Whether attention and feed-forward stand side by side, where config.json decides that.
  std::optional<bool> parallel;
  bool tied = false;        // the embedding table gives the logits
  bool has_output = false;  // config.json says that a matrix of its own does
};

// `source` is for messages. A value that would mean another forward pass is an error with its key.
Result<Config> read_config(std::string_view text, const std::string& source);

}  // namespace lockstep::hub
