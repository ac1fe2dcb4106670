// Two files of one model side by side: every tensor, every number of the metadata that the forward
// pass uses, and the tokenizer. A is the file that is trusted, B the one in question.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "base/terminal.h"
#include "gguf/file.h"

namespace lockstep::audit {

enum class Verdict { kEqual, kQuantized, kWrong, kMissing, kExtra };

// How a wrong tensor of B came from A's.
enum class How {
  kNone,
  kTransposed,
  kPermuted,
  kOffset,
  kScaled,
  kHalvesSwapped,
  kOtherLayer,
  kOtherTensor,
  kUnknown,
};

std::string_view name(Verdict verdict);
std::string_view name(How how);  // "" for kNone

struct TensorAudit {
  std::string name;
  std::string format_a, format_b;  // empty where that side lacks the tensor
  Verdict verdict = Verdict::kEqual;
  How how = How::kNone;
  std::string detail;  // in words; empty where there is nothing to say
  // Root mean square of the differences, relative to that of the values of the side with more bits;
  // absent where the tensors cannot be subtracted.
  std::optional<double> error;
  // The same for what our encoder makes of a sample of these values in the coarser format.
  std::optional<double> encoder_error;
  // The same as `error` with the best scale for every 32 numbers.
  std::optional<double> best_scale_error;
  // Errors of the tensor's sample over the encoder's, on the same numbers.
  std::optional<double> times_encoder;
  bool tied = false;  // one file has no output matrix, since the embedding serves as one
};

enum class KeyVerdict { kEqual, kDifferent, kMissing, kAssumed };
std::string_view name(KeyVerdict verdict);

// One value of the metadata, in both files.
struct KeyAudit {
  std::string key;
  nlohmann::ordered_json a, b;  // null where a file does not say
  // What is taken where a file does not say: null where nothing can be.
  nlohmann::ordered_json assumed_a, assumed_b;
  KeyVerdict verdict = KeyVerdict::kEqual;

  bool fine() const { return verdict == KeyVerdict::kEqual || verdict == KeyVerdict::kAssumed; }
};

// A list of the tokenizer (tokens, merges), item by item.
struct ListAudit {
  std::string key;
  std::optional<int64_t> size_a, size_b;  // absent where a file has no such list
  int64_t different = 0;                  // items, those that one side lacks included
  struct Item {
    int64_t index = 0;
    nlohmann::ordered_json a, b;  // null where that side has fewer
  };
  std::vector<Item> first;  // of those that differ

  bool fine() const { return different == 0 && size_a.has_value() == size_b.has_value(); }
};

struct TokenizerAudit {
  std::vector<ListAudit> lists;
  std::vector<KeyAudit> keys;

  bool equal() const;
};

struct Audit {
  std::string path_a, path_b;
  std::vector<TensorAudit> tensors;  // in A's order, then what only B has
  std::vector<KeyAudit> metadata;
  TokenizerAudit tokenizer;

  bool tensors_equal() const;  // quantization aside
  bool metadata_equal() const;
  bool equal() const;
};

// Errors where a tensor has a format that cannot be decoded. `advance` is told the bytes that were
// done, of both files together.
Result<Audit> audit(const gguf::File& a, const gguf::File& b,
                    const std::function<void(int64_t)>& advance);

std::vector<KeyAudit> audit_metadata(const gguf::File& a, const gguf::File& b);
TokenizerAudit audit_tokenizer(const gguf::File& a, const gguf::File& b);

// docs/audit.md
nlohmann::ordered_json to_json(const Audit& audit);
// For people, in lines of `width` characters. `all`: every tensor, not only those that are wrong.
std::string to_text(const Audit& audit, int64_t width, const Paint& paint, bool all);

}  // namespace lockstep::audit
