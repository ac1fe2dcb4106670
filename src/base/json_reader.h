// Reads JSON from outside: every access says what was found, where, and what was expected.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"

namespace lockstep {

// The document, or an error with the place. Nesting is bounded, no object has a name twice, and the
// number of values is bounded where a stranger sends the text: each takes many times its bytes.
Result<nlohmann::json> parse_json(std::string_view text, const std::string& source,
                                  int64_t most_values = std::numeric_limits<int64_t>::max());

// A place in a document: "manifest.json: steps[3].shard". The document must outlive it.
class JsonReader {
 public:
  JsonReader(const nlohmann::json& document, std::string source)
      : value_(&document), source_(std::move(source)) {}

  // A field; one that is absent, or of something that is no object, is not present().
  JsonReader operator[](std::string_view field) const;
  bool present() const { return value_ != nullptr && !value_->is_null(); }
  const nlohmann::json& value() const { return *value_; }

  Result<void> object() const;
  // A document that says what it is, in its fields "format" and "version".
  Result<void> document(std::string_view format, int64_t version) const;
  Result<std::vector<JsonReader>> items() const;  // of an array
  Result<std::string> text() const;
  Result<bool> boolean() const;
  Result<int64_t> integer(int64_t least, int64_t most) const;
  Result<double> number() const;

  // The same where absence is fine.
  Result<std::string> text_or(std::string otherwise) const;
  Result<int64_t> integer_or(int64_t otherwise, int64_t least, int64_t most) const;

  // "<source>: <place>: found <value>, expected <expected>".
  Error wrong(std::string_view expected) const;

 private:
  const nlohmann::json* value_ = nullptr;
  std::string source_;
  std::string place_;
};

}  // namespace lockstep
