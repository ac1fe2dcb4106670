// What other engines call the checkpoints of a trace. The maps are data (docs/name-maps.md); those
// in python/lockstep/capture/names are built into the program.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_reader.h"
#include "base/result.h"

namespace lockstep::trace {

class NameMap {
 public:
  // `path` is for messages.
  static Result<NameMap> parse(std::string_view text, const std::string& path);

  const std::string& engine() const { return engine_; }

  // The checkpoint that a recorded name is, where the name alone tells it: rules that look at the
  // engine's graph are for those who record it.
  std::optional<std::string> checkpoint(std::string_view node, std::string_view architecture) const;

 private:
  struct Rule {
    std::string checkpoint;            // {N} stands for the layer
    std::vector<std::string> nodes;    // the same
    std::vector<std::string> reads;    // and these
    std::vector<std::string> only_in;  // architectures; none: all
    std::vector<std::string> not_in;
    bool plain = true;  // needs no more than the name
  };
  static Result<Rule> read_rule(const JsonReader& in);

  std::string engine_;
  std::vector<Rule> rules_;
  std::map<std::string, std::string, std::less<>> known_as_;  // architectures
};

// The built-in map of an engine; nullptr where there is none.
const NameMap* find_name_map(std::string_view engine);

// Whether a name is that of a checkpoint: embedding, blk.0.q, ..., logits.
bool is_checkpoint_name(std::string_view name);

// The checkpoint's name that is most like another one: "embeding" gives "embedding",
// "layer.3.ffn_nrom" gives "blk.3.ffn_norm". Empty where none is like it.
std::string nearest_checkpoint_name(std::string_view name);

}  // namespace lockstep::trace
