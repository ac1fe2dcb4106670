// Metadata of a model by the names that keys have behind the architecture's.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "gguf/file.h"

namespace lockstep::model {

// Larger than any model's, small enough that sums of products of two do not overflow.
inline constexpr int64_t kLargestCount = int64_t{1} << 30;

// Reads keys of one architecture ("llama.block_count") and collects what is wrong.
class ConfigReader {
 public:
  ConfigReader(const gguf::File& file, std::string_view arch, std::vector<std::string>& problems)
      : file_(file), arch_(arch), problems_(problems) {}

  std::string key(std::string_view name) const { return fmt::format("{}.{}", arch_, name); }
  bool has(std::string_view name) const { return file_.find(key(name)) != nullptr; }

  int64_t count(std::string_view name) { return in_range(name, take(file_.integer(key(name))), 1); }

  int64_t count_or(std::string_view name, int64_t otherwise, int64_t least = 1) {
    return has(name) ? in_range(name, take(file_.integer(key(name))), least) : otherwise;
  }

  double real(std::string_view name) { return finite(name, take(file_.real(key(name)))); }

  double real_or(std::string_view name, double otherwise) {
    return has(name) ? finite(name, take(file_.real(key(name)))) : otherwise;
  }

  bool flag_or(std::string_view name, bool otherwise) {
    if (!has(name)) return otherwise;
    const bool found = take(file_.boolean(key(name)));
    failed_ = false;
    return found;
  }

  // A flag for each layer.
  std::vector<bool> flags(std::string_view name, int64_t count) {
    const std::vector<int64_t> found = take(file_.flags(key(name)));
    if (!std::exchange(failed_, false) && static_cast<int64_t>(found.size()) != count)
      problem(fmt::format("{} has {} numbers; expected one for each of {} layers", key(name),
                          found.size(), count));
    return {found.begin(), found.end()};
  }
  bool is_array(std::string_view name) const {
    const gguf::Value* value = file_.find(key(name));
    return value != nullptr && value->type() == gguf::Type::kArray;
  }

  std::string_view text_or(std::string_view name, std::string_view otherwise) {
    return take(file_.text_or(key(name), otherwise));
  }

  void problem(std::string text) { problems_.push_back(std::move(text)); }

 private:
  template <class T>
  T take(Result<T> result) {
    if (result.ok()) return *result;
    problem(without_path(result.error().message));
    failed_ = true;
    return T{};
  }

  // Problems are listed below the name of the file.
  std::string without_path(const std::string& message) const {
    const std::string path = file_.path() + ": ";
    return message.starts_with(path) ? message.substr(path.size()) : message;
  }

  int64_t in_range(std::string_view name, int64_t value, int64_t least) {
    if (!std::exchange(failed_, false) && (value < least || value > kLargestCount))
      problem(fmt::format("{} is {}; expected {} to {}", key(name), value, least, kLargestCount));
    return value < least || value > kLargestCount ? 1 : value;
  }

  double finite(std::string_view name, double value) {
    failed_ = false;
    if (!std::isfinite(value))
      problem(fmt::format("{} is {}; expected a number", key(name), value));
    return value;
  }

  const gguf::File& file_;
  std::string arch_;
  std::vector<std::string>& problems_;
  bool failed_ = false;  // the value being read had the wrong type, and that was said
};

}  // namespace lockstep::model
