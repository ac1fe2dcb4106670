// What a tokenizer.json does to a text before it is cut into words.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_reader.h"
#include "base/result.h"

namespace lockstep::tokenizer {

class Normalizer {
 public:
  struct Step;

  Normalizer();  // changes nothing
  ~Normalizer();
  Normalizer(Normalizer&&) noexcept;
  Normalizer& operator=(Normalizer&&) noexcept;

  // The field "normalizer". What is not known is an error that names the key.
  static Result<Normalizer> read(const JsonReader& part);

  bool changes_nothing() const { return steps_.empty(); }
  bool prepends(std::string_view text) const;
  bool prepends() const;              // anything
  bool merges_spaces() const;         // runs of spaces become one
  std::string_view charsmap() const;  // the bytes of SentencePiece's table, or none
  // Equal to what the `tokenizers` package gives. Bytes that are no UTF-8 stay as they are.
  std::string apply(std::string_view text) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace lockstep::tokenizer
