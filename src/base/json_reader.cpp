#include "base/json_reader.h"

#include <unordered_set>

#include "base/text.h"

namespace lockstep {
namespace {

constexpr int kDeepest = 64;

std::string shortened(const nlohmann::json& value) {
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  if (value.is_object()) return fmt::format("an object of {}", value.size());
  const auto* whole = value.get_ptr<const std::string*>();
  // A text may have a megabyte; what is shown comes from its first bytes.
  const bool long_text = whole != nullptr && whole->size() > 64;
  std::string text = (long_text ? nlohmann::json(whole->substr(0, 64)) : value)
                         .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

// Walks over a document without keeping it: stops where brackets are too deep, values too many, or
// a name stands twice in an object, of which the library would keep one. (A callback of its parser
// could see both too, but takes quadratic time for an object with many others in it.)
class Shape final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Shape(int64_t most_values) : most_values_(most_values) {}

  std::string problem;

  bool start_object(size_t) override {
    names_.emplace_back();
    return enter();
  }
  bool end_object() override {
    names_.pop_back();
    --depth_;
    return true;
  }
  bool start_array(size_t) override { return enter(); }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool key(std::string& name) override {
    if (names_.back().insert(name).second) return true;
    problem = fmt::format("the name '{}' stands twice in an object", printable(name, 80));
    return false;
  }
  bool null() override { return count(); }
  bool boolean(bool) override { return count(); }
  bool number_integer(int64_t) override { return count(); }
  bool number_unsigned(uint64_t) override { return count(); }
  bool number_float(double, const std::string&) override { return count(); }
  bool string(std::string&) override { return count(); }
  bool binary(nlohmann::json::binary_t&) override { return count(); }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;
  }

 private:
  bool count() {
    if (++values_ <= most_values_) return true;
    problem = fmt::format("found more than {} values, expected fewer", most_values_);
    return false;
  }
  bool enter() {
    if (++depth_ <= kDeepest) return count();
    problem = fmt::format("nested more than {} deep", kDeepest);
    return false;
  }

  int64_t most_values_;
  int64_t values_ = 0;
  int depth_ = 0;
  std::vector<std::unordered_set<std::string>> names_;  // of the objects that are open
};

}  // namespace

Result<nlohmann::json> parse_json(std::string_view text, const std::string& source,
                                  int64_t most_values) {
  try {
    Shape shape(most_values);
    nlohmann::json::sax_parse(text, &shape);
    if (!shape.problem.empty()) return error("{}: {}", source, shape.problem);
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& problem) {
    return error("{}: no valid JSON: {}", source, problem.what());
  }
}

JsonReader JsonReader::operator[](std::string_view field) const {
  JsonReader out = *this;
  out.place_ += fmt::format("{}{}", place_.empty() ? "" : ".", field);
  out.value_ = nullptr;
  if (value_ != nullptr && value_->is_object())
    if (const auto found = value_->find(field); found != value_->end()) out.value_ = &*found;
  return out;
}

Error JsonReader::wrong(std::string_view expected) const {
  return error("{}: {}: found {}, expected {}", source_, place_.empty() ? "document" : place_,
               value_ != nullptr ? shortened(*value_) : "nothing", expected);
}

Result<void> JsonReader::object() const {
  if (!present() || !value_->is_object()) return wrong("an object");
  return {};
}

Result<void> JsonReader::document(std::string_view format, int64_t version) const {
  LS_TRY_VOID(object());
  LS_TRY(const std::string found, (*this)["format"].text());
  if (found != format) return (*this)["format"].wrong(fmt::format("'{}'", format));
  LS_TRY_VOID((*this)["version"].integer(version, version));
  return {};
}

Result<std::vector<JsonReader>> JsonReader::items() const {
  if (!present() || !value_->is_array()) return wrong("an array");
  std::vector<JsonReader> readers;
  readers.reserve(value_->size());
  for (size_t i = 0; i < value_->size(); ++i) {
    JsonReader item = *this;
    item.value_ = &(*value_)[i];
    item.place_ += fmt::format("[{}]", i);
    readers.push_back(std::move(item));
  }
  return readers;
}

Result<std::string> JsonReader::text() const {
  if (!present() || !value_->is_string()) return wrong("a string");
  return value_->get<std::string>();
}

Result<bool> JsonReader::boolean() const {
  if (!present() || !value_->is_boolean()) return wrong("true or false");
  return value_->get<bool>();
}

Result<int64_t> JsonReader::integer(int64_t least, int64_t most) const {
  const std::string expected = fmt::format("a whole number from {} to {}", least, most);
  if (!present() || !value_->is_number_integer()) return wrong(expected);
  // Unsigned values beyond int64 would wrap around.
  if (value_->is_number_unsigned() &&
      value_->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    return wrong(expected);
  const auto number = value_->get<int64_t>();
  if (number < least || number > most) return wrong(expected);
  return number;
}

Result<double> JsonReader::number() const {
  if (!present() || !value_->is_number()) return wrong("a number");
  return value_->get<double>();
}

Result<std::string> JsonReader::text_or(std::string otherwise) const {
  return present() ? text() : Result<std::string>(std::move(otherwise));
}

Result<int64_t> JsonReader::integer_or(int64_t otherwise, int64_t least, int64_t most) const {
  return present() ? integer(least, most) : Result<int64_t>(otherwise);
}

}  // namespace lockstep
