#include "parity/choices.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/parallel.h"
#include "parity/align.h"
#include "parity/arithmetic.h"

namespace lockstep::parity {
namespace {

using nlohmann::ordered_json;

// Positions whose logits are in memory at a time.
constexpr size_t kPositionsAtATime = 64;

// Settings that do not change which token a row of logits gives.
constexpr std::string_view kIrrelevant[] = {
    "seed", "max_tokens", "max_new_tokens", "n_predict",     "n",
    "stop", "stream",     "logprobs",       "repeat_window", "repeat_last_n"};

// A setting that is switched off, as far as one can tell without knowing it.
bool is_neutral(const ordered_json& value) {
  return value.is_null() || value == false || value == 0 || value == 1 || value == "" ||
         ((value.is_array() || value.is_object()) && value.empty());
}

double rounding_after_sampling(const trace::Trace& trace) {
  const DType stored = trace.checkpoint("logits")->dtype;
  const Arithmetic a = arithmetic_of(trace.manifest().engine.precision, stored);
  const double coarsest = std::max(a.stored, a.activations);
  return coarsest > a.compute ? coarsest : 0;
}

// What a penalty on repeated tokens may make of a logit. Windows and prompts are counted in
// different ways, so that any token that occurred before may or may not have been penalized.
struct Range {
  double least;
  double most;
};

Range penalized(double logit, double penalty, bool occurred) {
  if (!occurred || !std::isfinite(logit)) return {logit, logit};
  const double other = logit > 0 ? logit / penalty : logit * penalty;
  return {std::min(logit, other), std::max(logit, other)};
}

// Whether a random choice may have fallen on a token of this value. Engines apply temperature,
// top-k, top-p and min-p in different orders: only what every order excludes is impossible.
// `range`: what each token's logit may have been.
template <class F>
bool may_be_drawn(size_t count, const F& range, double value, const DeclaredSampling& s,
                  double slack) {
  if (value == -std::numeric_limits<double>::infinity()) return false;
  double largest = value;
  for (size_t i = 0; i < count; ++i)
    if (const double least = range(i).least; least > largest) largest = least;
  const double hottest = std::max(1.0, s.temperature);
  if (s.min_p > 0 && std::exp((value + slack - largest) / hottest) < s.min_p * (1 - 1e-6))
    return false;
  int64_t larger = 0;
  double total[2] = {0, 0};   // of all tokens: as they are, and at the temperature
  double before[2] = {0, 0};  // of those that are larger, at the least
  for (size_t i = 0; i < count; ++i) {
    const Range logit = range(i);
    if (std::isnan(logit.least)) continue;
    const bool is_larger = logit.least > value + slack;
    larger += is_larger ? 1 : 0;
    const double off = (is_larger ? logit.least : logit.most) - largest;
    const double weights[2] = {std::exp(off), std::exp(off / s.temperature)};
    for (int k = 0; k < 2; ++k) {
      total[k] += weights[k];
      if (is_larger) before[k] += weights[k];
    }
  }
  if (s.top_k > 0 && larger >= s.top_k) return false;
  const auto excluded = [&](int k) { return before[k] >= total[k] * (s.top_p + 1e-6); };
  return s.top_p >= 1 || !excluded(0) || !excluded(1);
}

}  // namespace

DeclaredSampling declared_sampling(const ordered_json& sampling) {
  DeclaredSampling out;
  if (!sampling.is_object()) return out;
  bool temperature = false;
  bool greedy = false;
  const auto number = [](const ordered_json& value, auto& field) {
    if (!value.is_number() || !(std::fabs(value.get<double>()) < 1e15)) return false;
    field = value.get<std::remove_reference_t<decltype(field)>>();
    return true;
  };
  for (const auto& [key, value] : sampling.items()) {
    bool understood = true;
    if (key == "temperature" || key == "temp")
      understood = temperature = number(value, out.temperature);
    else if (key == "top_k")
      understood = number(value, out.top_k);
    else if (key == "top_p")
      understood = number(value, out.top_p);
    else if (key == "min_p")
      understood = number(value, out.min_p);
    else if (key == "repeat_penalty" || key == "repetition_penalty")
      understood = number(value, out.repeat_penalty);
    else if (key == "do_sample")
      greedy = value == false;
    else if (key == "greedy")
      greedy = value == true;
    else if (std::ranges::find(kIrrelevant, key) == std::end(kIrrelevant))
      understood = is_neutral(value);
    if (!understood) return {};
  }
  if (greedy) out.temperature = 0;
  out.known = (temperature || greedy) && out.temperature >= 0 && out.repeat_penalty > 0;
  return out.known ? out : DeclaredSampling();
}

std::string describe(const DeclaredSampling& s) {
  if (!s.known) return "sampling not said";
  std::string out = fmt::format("temperature {:g}", s.temperature);
  if (s.random() && s.top_k > 0) out += fmt::format(", top_k {}", s.top_k);
  if (s.random() && s.top_p < 1) out += fmt::format(", top_p {:g}", s.top_p);
  if (s.random() && s.min_p > 0) out += fmt::format(", min_p {:g}", s.min_p);
  if (s.repeat_penalty != 1) out += fmt::format(", repeat_penalty {:g}", s.repeat_penalty);
  return out;
}

Choice judge_choice(std::span<const double> logits, int32_t token, std::span<const int32_t> history,
                    const DeclaredSampling& s, double unit) {
  Choice out;
  out.token = token;
  out.logit = logits[static_cast<size_t>(token)];
  out.largest_logit = -std::numeric_limits<double>::infinity();
  int64_t sharing = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > out.largest_logit) {
      out.largest_logit = logits[i];
      out.largest = static_cast<int32_t>(i);
      sharing = 0;
    }
    sharing += logits[i] == out.largest_logit ? 1 : 0;
  }
  // Numbers that were rounded after the choice may have changed places, by one rounding each.
  const double slack = 2 * unit * std::fabs(out.largest_logit);
  out.is_largest = out.logit + slack >= out.largest_logit;
  out.tie = sharing > 1;
  if (!s.known || std::isnan(out.logit)) {
    // A NaN is the affair of whoever judges the logits.
    return out;
  }
  const std::set<int32_t> occurred(history.begin(), history.end());
  const auto range = [&](size_t i) {
    return s.repeat_penalty == 1
               ? Range{logits[i], logits[i]}
               : penalized(logits[i], s.repeat_penalty, occurred.contains(static_cast<int32_t>(i)));
  };
  // As favourable to this token as can be.
  const double own = range(static_cast<size_t>(token)).most;
  if (s.random()) {
    out.possible = may_be_drawn(logits.size(), range, own, s, slack);
    return out;
  }
  for (size_t i = 0; i < logits.size(); ++i)
    if (range(i).least > own + slack) out.possible = false;
  return out;
}

std::optional<Choice> choice_at(const trace::Trace& trace, int64_t position, int64_t whole) {
  const auto& tokens = trace.manifest().tokens;
  const auto next = static_cast<size_t>(position) + 1;
  const auto row = trace.row("logits", position);
  if (!row || next >= tokens.size() || row->width < whole || tokens[next] >= row->width)
    return std::nullopt;
  const std::vector<double> logits = row_values(*row, row->width);
  Choice out =
      judge_choice(logits, tokens[next], std::span(tokens).first(next),
                   declared_sampling(trace.manifest().sampling), rounding_after_sampling(trace));
  out.position = position;
  return out;
}

SideChoices judge_choices(const trace::Trace& trace, int64_t whole, int threads) {
  const trace::Manifest& manifest = trace.manifest();
  SideChoices out;
  out.sampling = declared_sampling(manifest.sampling);
  if (manifest.prompt_tokens == 0) return out;  // the side does not say which it generated
  const auto size = static_cast<int64_t>(manifest.tokens.size());
  out.made = size - manifest.prompt_tokens;
  const auto at_a_time = static_cast<int64_t>(kPositionsAtATime);
  for (int64_t first = manifest.prompt_tokens - 1; first + 1 < size; first += at_a_time) {
    const int64_t count = std::min(at_a_time, size - 1 - first);
    std::vector<std::optional<Choice>> choices(static_cast<size_t>(count));
    parallel_for(
        count, 1,
        [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i)
            choices[static_cast<size_t>(i)] = choice_at(trace, first + i, whole);
        },
        threads);
    for (const auto& choice : choices) {
      if (!choice) continue;
      ++out.checked;
      out.not_largest += choice->is_largest ? 0 : 1;
      out.ties += choice->tie && choice->is_largest ? 1 : 0;
      if (!choice->possible && !out.impossible) out.impossible = *choice;
    }
    trace.release_pages(first, first + count - 1);
  }
  return out;
}

}  // namespace lockstep::parity
