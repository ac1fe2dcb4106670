// Reads the fields of a request's JSON: each by name, type and range. The first problem is kept,
// and fields that nobody asked for are one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_reader.h"
#include "server/api_error.h"

namespace lockstep::server {

class Fields {
 public:
  // `place`: of the object within the request, "messages[2]"; empty for the request itself.
  explicit Fields(JsonReader object, std::string place = "");

  // Absent fields and null give nothing, and so do wrong ones.
  std::optional<std::string> text(const char* name, int64_t most_chars);
  std::optional<bool> boolean(const char* name);
  std::optional<int64_t> integer(const char* name, int64_t least, int64_t most);
  std::optional<double> number(const char* name, double least, double most);
  std::optional<double> number_above(const char* name, double least, double most);
  std::optional<uint64_t> seed(const char* name);      // any whole number of 64 bits
  std::vector<std::string> stops(const char* name);    // one text or several
  std::optional<JsonReader> any(const char* name);     // not checked
  std::optional<JsonReader> object(const char* name);  // an object
  std::vector<JsonReader> items(const char* name);     // of an array

  // Fields that may be there but change nothing here.
  void ignore(std::initializer_list<const char*> names);
  // A field that may only have the value that means "off".
  void only(const char* name, const nlohmann::json& value);

  void fail(const char* name, std::string message);
  void wrong(const char* name, const JsonReader& found, std::string_view expected);
  void missing(const char* name, std::string_view expected);
  void adopt(std::optional<ApiError> problem);  // of an object within

  bool failed() const { return problem_.has_value(); }
  // The first problem; else the fields that nobody asked for.
  std::optional<ApiError> finish();

 private:
  JsonReader find(const char* name);
  std::string place_of(std::string_view name) const;

  JsonReader object_;
  std::string place_;
  std::vector<std::string> known_;
  std::optional<ApiError> problem_;
};

// The request's object, or why it is none.
std::optional<ApiError> parse_body(std::string_view body, nlohmann::json& out);

}  // namespace lockstep::server
