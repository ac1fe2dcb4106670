// The models of the hub that can be read: a row in families.cpp for each "model_type".
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep::hub {

// What a tensor of the hub goes through to become the one of a GGUF file.
enum class Change : uint8_t {
  kNone,
  // Rows in another order. The hub turns rows (i, i + half of the head) together, GGUF's llama
  // turns (2i, 2i + 1).
  kPairHeads,
  kPairKvHeads,
  kAddOne,     // norms that multiply by 1 + weight; GGUF has the sum
  kTranspose,  // [in, out] on the hub
  // Of two that stand in one, row under row: gate and up.
  kFirstHalf,
  kSecondHalf,
  // The same, their rows in turns; or their columns, which become rows.
  kEvenRows,
  kOddRows,
  kTransposeEven,
  kTransposeOdd,
  // Of the weight that keys and values of all heads are made with.
  kKeysOfHeads,
  kValuesOfHeads,
};

// "self_attn.q_proj" becomes "attn_q"; ".weight" and ".bias" stay behind them, but where `gguf` has
// its own. A star stands for the number of an expert, whose tensors GGUF files have in one. A name
// that occurs twice becomes two.
struct TensorName {
  std::string_view hub;
  std::string_view gguf;
  Change change = Change::kNone;
};

// A number of config.json and its key in a GGUF file, without the architecture before it.
struct Number {
  enum class Kind : uint8_t { kCount, kReal };
  std::string_view hub;
  std::string_view gguf;
  Kind kind = Kind::kCount;
  bool required = true;
  bool null_is_zero = false;    // else null means that the key is absent
  bool may_be_zero = false;     // counts
  std::string_view other = {};  // its name in files of other versions
};

// What transformers takes where config.json lacks the key.
struct Default {
  std::string_view key;
  double value;
};

// A flag of config.json and its key in a GGUF file, which is written where it is not what engines
// take for the architecture.
struct Flag {
  std::string_view hub;
  std::string_view gguf;
  bool otherwise;  // where config.json lacks the key
  bool usual;      // of the architecture
};

// A key that may have these values alone, written as JSON and separated by spaces: for all others
// the forward pass would be another one.
struct Demand {
  std::string_view key;
  std::string_view values;
};

// What a row does not name is as in llama.
struct Family {
  std::string_view model_type;    // of config.json
  std::string_view architecture;  // general.architecture

  std::span<const TensorName> tensors = {};  // that llama lacks, or has under another name
  std::string_view layers = "layers";        // what stands before the number of a layer
  bool head_norms = false;                   // "q_layernorm.norms.3": a norm for each head

  std::span<const Number> numbers = {};  // of its own
  bool own_numbers_only = false;
  std::span<const Flag> flags = {};
  std::span<const Default> defaults = {};
  std::span<const Demand> demands = {};

  bool tied = false;  // embedding table and output matrix, where config.json does not say
  bool rotated = true;
  double rope_base = 10000;
  double rotary_part = 1;
  bool own_windowed_rope = false;  // windowed layers rotate by a base of their own
  double windowed_rope_base = 0;   // where config.json does not say; 0: as other layers
  bool root_of_head = false;       // "query_pre_attn_scalar" must be the head's size
  int64_t scaled_by_width = 0;     // the same, but in models of so many layers width / heads
  int64_t unrotated_period = 0;    // "no_rope_layers" must be the last of each so many
  bool rope_needed = false;        // an object for it: transformers assumes YaRN without
  bool yarn_whole_pairs = true;    // what "truncate" must be

  // Where "use_parallel_residual" is true, layers have no second norm.
  bool may_be_parallel = false;

  bool latent = false;           // keys and values are made from one short row
  bool sigmoid_experts = false;  // scores of experts are sigmoids, and have groups

  bool sees_all = false;           // no window, whatever "sliding_window" is
  bool window_needs_flag = false;  // no window but where "use_sliding_window" is true
  bool always_window = false;      // the key is written for 0 too
  int64_t window_period = 0;       // of so many layers the last sees everything; 0: none does
};

std::span<const Family> families();
const Family* find_family(std::string_view model_type);  // nullptr where unknown

// Llama's, which the others begin with.
std::span<const TensorName> common_tensors();
std::span<const Number> common_numbers();
std::span<const Number> head_numbers();  // of families without latent attention

}  // namespace lockstep::hub
