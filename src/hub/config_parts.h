// The parts that read_config is made of. Within this folder.
#pragma once

#include "hub/config.h"
#include "hub/settings.h"

namespace lockstep::hub {

// Puts "llama.block_count" and the like into the metadata.
class Keys {
 public:
  explicit Keys(Config& config) : config_(config) {}

  template <class T>
  void put(std::string_view name, T value) {
    config_.metadata.push_back(
        {fmt::format("{}.{}", config_.family->architecture, name), {std::move(value)}});
  }
  void count(std::string_view name, int64_t value) { put(name, static_cast<uint32_t>(value)); }
  void real(std::string_view name, double value) { put(name, static_cast<float>(value)); }

 private:
  Config& config_;
};

// Which layers have a window, and how many positions it has.
Result<void> read_window(const Settings& in, Config& out);

// Sizes of latent attention, and how its models choose experts.
Result<void> read_latent(const Settings& in, Config& out);

// Base, part of the head, extension of the context.
Result<void> read_rope(const Settings& in, int64_t head_size, Config& out);

}  // namespace lockstep::hub
