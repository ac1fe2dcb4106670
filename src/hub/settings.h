// config.json with the defaults of its model type. Within this folder.
#pragma once

#include <optional>
#include <string>

#include "base/json_reader.h"
#include "hub/families.h"

namespace lockstep::hub {

// More than any model has.
inline constexpr int64_t kMostLayers = 1 << 16;
inline constexpr int64_t kLargestCount = int64_t{1} << 30;

class Settings {
 public:
  Settings(JsonReader config, const Family& family) : config_(std::move(config)), family_(family) {}

  const Family& family() const { return family_; }
  JsonReader at(std::string_view key) const { return config_[key]; }
  bool has(std::string_view key) const { return config_[key].present(); }
  bool is_null(std::string_view key) const { return config_.value().contains(key) && !has(key); }

  // Nothing where the key is null, or absent and without a default.
  Result<std::optional<int64_t>> count(std::string_view key, int64_t least = 1) const;
  Result<std::optional<double>> real(std::string_view key) const;
  // The same where nothing is an error.
  Result<int64_t> needed_count(std::string_view key, int64_t most = kLargestCount) const;

 private:
  std::optional<double> otherwise(std::string_view key) const;

  JsonReader config_;
  const Family& family_;
};

// A number that a GGUF file can hold: finite as a float too.
Result<double> finite_number(const JsonReader& reader);

}  // namespace lockstep::hub
