#include "model/archs.h"

#include <algorithm>

namespace lockstep::model {
namespace {

using A = Architecture;
constexpr auto kRms = op::Norm::Kind::kRms;
constexpr auto kLayer = op::Norm::Kind::kLayer;
constexpr auto kLearned = A::Positions::kLearned;
constexpr auto kAdjacent = A::Positions::kRopeAdjacent;
constexpr auto kHalves = A::Positions::kRopeHalves;
constexpr auto kPlain = A::FeedForward::kPlain;
constexpr auto kGated = A::FeedForward::kGated;
constexpr auto kFused = A::FeedForward::kGatedFused;
constexpr auto kIfPresent = A::Bias::kIfPresent;
constexpr auto kRequired = A::Bias::kRequired;
constexpr auto kSilu = op::Activate::Kind::kSilu;
constexpr auto kGeluTanh = op::Activate::Kind::kGeluTanh;

constexpr Architecture kArchitectures[] = {
    // clang-format off
    // name      norm    positions  fused  head   qkv         other       feed    activation scales
    //                              qkv    norms  bias        biases      forward
    {"gpt2",    kLayer, kLearned,  true,  false, kRequired,  kRequired,  kPlain, kGeluTanh, false},
    {"llama",   kRms,   kAdjacent, false, false, kIfPresent, kIfPresent, kGated, kSilu,     false},
    {"qwen2",   kRms,   kHalves,   false, false, kRequired,  kIfPresent, kGated, kSilu,     false},
    {"qwen3",   kRms,   kHalves,   false, true,  kIfPresent, kIfPresent, kGated, kSilu,     false},
    {"phi3",    kRms,   kHalves,   true,  false, kIfPresent, kIfPresent, kFused, kSilu,     false},
    {"granite", kRms,   kAdjacent, false, false, kIfPresent, kIfPresent, kGated, kSilu,     true},
    // clang-format on
};

}  // namespace

std::span<const Architecture> architectures() {
  return kArchitectures;
}

const Architecture* find_architecture(std::string_view name) {
  const auto* found = std::ranges::find(kArchitectures, name, &Architecture::name);
  return found != std::end(kArchitectures) ? found : nullptr;
}

}  // namespace lockstep::model
