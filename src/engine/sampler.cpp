#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace lockstep::engine {
namespace {

struct Candidate {
  TokenId id;
  double value;  // logit, later probability
};

// Larger first; equal ones by id, so that the order is the same everywhere.
bool before(const Candidate& a, const Candidate& b) {
  return a.value != b.value ? a.value > b.value : a.id < b.id;
}

void penalize(std::vector<double>& logits, std::span<const TokenId> history,
              const Sampling& sampling) {
  if (sampling.repeat_penalty == 1) return;
  const auto window = std::min(history.size(), static_cast<size_t>(sampling.repeat_window));
  const auto recent = history.last(window);
  for (const TokenId id : std::set<TokenId>(recent.begin(), recent.end())) {
    double& logit = logits[static_cast<size_t>(id)];
    logit = logit > 0 ? logit / sampling.repeat_penalty : logit * sampling.repeat_penalty;
  }
}

// Logits, largest first and at most `sampling.top_k`, to probabilities.
void softmax(std::vector<Candidate>& candidates, double temperature) {
  const double largest = candidates.front().value;
  double sum = 0;
  for (Candidate& c : candidates) sum += c.value = std::exp((c.value - largest) / temperature);
  for (Candidate& c : candidates) c.value /= sum;
}

void keep_top_p(std::vector<Candidate>& candidates, double top_p) {
  double sum = 0;
  size_t count = 0;
  while (count < candidates.size() && (count == 0 || sum < top_p)) sum += candidates[count++].value;
  candidates.resize(count);
}

void keep_min_p(std::vector<Candidate>& candidates, double min_p) {
  const double least = min_p * candidates.front().value;
  while (candidates.size() > 1 && candidates.back().value < least) candidates.pop_back();
}

}  // namespace

Result<void> check(const Sampling& sampling) {
  const auto outside = [](const char* field, double value, const char* expected) {
    return error("{} is {}; expected {}", field, value, expected);
  };
  // Written so that NaN fails too.
  if (!(sampling.temperature >= 0 && sampling.temperature <= 100))
    return outside("temperature", sampling.temperature, "0 to 100");
  if (sampling.top_k < 0)
    return outside("top_k", static_cast<double>(sampling.top_k), "0 (off) or more");
  if (!(sampling.top_p > 0 && sampling.top_p <= 1))
    return outside("top_p", sampling.top_p, "more than 0, at most 1");
  if (!(sampling.min_p >= 0 && sampling.min_p <= 1))
    return outside("min_p", sampling.min_p, "0 to 1");
  if (!(sampling.repeat_penalty > 0 && sampling.repeat_penalty <= 100))
    return outside("repeat_penalty", sampling.repeat_penalty, "more than 0, at most 100");
  if (sampling.repeat_window < 0)
    return outside("repeat_window", static_cast<double>(sampling.repeat_window), "0 or more");
  return {};
}

namespace {

template <class At>
int64_t first_largest(int64_t count, At&& at) {
  int64_t out = -1;
  auto most = at(0);
  for (int64_t i = 0; i < count; ++i)
    if (const auto value = at(i); value > most || (out < 0 && !std::isnan(value))) {
      out = i;
      most = value;
    }
  return out;
}

}  // namespace

Result<TokenId> largest(const View& logits, int64_t row) {
  const int64_t vocabulary = logits.shape.back();
  const auto* floats = static_cast<const float*>(logits.data) + row * vocabulary;
  const int64_t out =
      logits.dtype == DType::kF32
          ? first_largest(vocabulary, [&](int64_t i) { return floats[i]; })
          : first_largest(vocabulary, [&](int64_t i) { return logits.at(row * vocabulary + i); });
  if (out < 0) return error("all {} logits are NaN", vocabulary);
  return static_cast<TokenId>(out);
}

Result<TokenId> Sampler::choose(const View& logits, int64_t row, std::span<const TokenId> history) {
  if (sampling_.greedy()) return largest(logits, row);
  const int64_t vocabulary = logits.shape.back();
  std::vector<double> values(static_cast<size_t>(vocabulary));
  for (int64_t i = 0; i < vocabulary; ++i)
    values[static_cast<size_t>(i)] = logits.at(row * vocabulary + i);
  penalize(values, history, sampling_);

  std::vector<Candidate> candidates;
  candidates.reserve(values.size());
  for (int64_t i = 0; i < vocabulary; ++i) {
    const double value = values[static_cast<size_t>(i)];
    if (!std::isnan(value)) candidates.push_back({static_cast<TokenId>(i), value});
  }
  if (candidates.empty()) return error("all {} logits are NaN", vocabulary);
  const Candidate best = *std::ranges::min_element(candidates, before);
  // Infinite logits have no softmax; the largest is the only sensible choice.
  if (sampling_.temperature == 0 || !std::isfinite(best.value)) return best.id;

  const auto kept = sampling_.top_k > 0
                        ? std::min(candidates.size(), static_cast<size_t>(sampling_.top_k))
                        : candidates.size();
  std::ranges::partial_sort(candidates, candidates.begin() + static_cast<std::ptrdiff_t>(kept),
                            before);
  candidates.resize(kept);
  softmax(candidates, sampling_.temperature);
  keep_top_p(candidates, sampling_.top_p);
  keep_min_p(candidates, sampling_.min_p);

  double sum = 0;
  for (const Candidate& c : candidates) sum += c.value;
  double point = random_.uniform() * sum;
  for (const Candidate& c : candidates) {
    point -= c.value;
    if (point < 0) return c.id;
  }
  return candidates.back().id;
}

}  // namespace lockstep::engine
