#include "doctor/some_blocks.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "quant/decode.h"

namespace lockstep::doctor {
namespace {

// More blocks in a row than any model has.
constexpr int64_t kMostBlocks = 2048;
constexpr int64_t kMostFitted = 512;  // by least squares, whose cost grows with the square
constexpr int64_t kFirstEquations = 256;
constexpr double kEffort = 3e9;  // multiplications, about
constexpr size_t kFewestCandidates = 4;
constexpr size_t kMostPicked = 16;
constexpr double kNear = 0.1;  // of a share to 0 or 1

// One equation for each output and position: the error is the sum over the wrong blocks of what the
// other decoding does to the block's part of the product.
struct Equations {
  int64_t blocks = 0;
  std::vector<double> errors;  // [equations]
  std::vector<double> parts;   // [equations, blocks]

  int64_t count() const { return std::ssize(errors); }
  const double* row(int64_t e) const { return parts.data() + e * blocks; }
};

Equations equations_of(const WrongProducts& wrong, const DecodingFit& fit, int64_t most) {
  const op::Weight& weight = wrong.weight;
  const int64_t width = weight.format->block_values;
  Equations out;
  out.blocks = weight.columns / width;
  const int64_t outputs = std::clamp<int64_t>(most / wrong.x.rows, 1, std::ssize(wrong.outputs));
  std::vector<float> truth(static_cast<size_t>(weight.columns));
  std::vector<float> other(truth.size());
  for (int64_t o = 0; o < outputs; ++o) {
    const int64_t output =
        wrong.outputs[static_cast<size_t>(o * std::ssize(wrong.outputs) / outputs)];
    decode_fit_row(weight, output, nullptr, truth.data());
    decode_fit_row(weight, output, &fit, other.data());
    for (int64_t r = 0; r < wrong.x.rows; ++r) {
      const double error = wrong.y.row(r)[output] - wrong.truth.row(r)[output];
      if (!std::isfinite(error)) continue;
      out.errors.push_back(error);
      for (int64_t b = 0; b < out.blocks; ++b) {
        double sum = 0;
        for (int64_t i = b * width; i < (b + 1) * width; ++i)
          sum += (static_cast<double>(other[static_cast<size_t>(i)]) -
                  static_cast<double>(truth[static_cast<size_t>(i)])) *
                 wrong.x.row(r)[i];
        // A block that such a decoding makes infinite is not one of the wrong ones.
        out.parts.push_back(std::isfinite(sum) ? sum : 0);
      }
    }
  }
  return out;
}

// How well the errors go with those of one block, or of all blocks: at most 1.
double likeness(const Equations& e) {
  double errors = 0;
  std::vector<double> with(static_cast<size_t>(e.blocks) + 1);
  std::vector<double> own(with.size());
  for (int64_t i = 0; i < e.count(); ++i) {
    const double error = e.errors[static_cast<size_t>(i)];
    errors += error * error;
    double all = 0;
    for (int64_t b = 0; b < e.blocks; ++b) {
      const double part = e.row(i)[b];
      with[static_cast<size_t>(b)] += error * part;
      own[static_cast<size_t>(b)] += part * part;
      all += part;
    }
    with.back() += error * all;
    own.back() += all * all;
  }
  double best = 0;
  for (size_t b = 0; b < with.size(); ++b)
    if (own[b] > 0) best = std::max(best, with[b] / std::sqrt(own[b] * errors));
  return best;
}

double sum_of_squared(const std::vector<double>& numbers) {
  double out = 0;
  for (const double x : numbers) out += x * x;
  return out;
}

// Block after block, as long as each takes much of what is left: for few wrong blocks.
std::vector<int64_t> pick(const Equations& e) {
  std::vector<double> left = e.errors;
  std::vector<int64_t> picked;
  while (picked.size() < kMostPicked && 2 * std::ssize(picked) + 2 <= e.count()) {
    int64_t best = -1;
    double best_gain = 1e-4 * sum_of_squared(left);
    for (int64_t b = 0; b < e.blocks; ++b) {
      if (std::ranges::find(picked, b) != picked.end()) continue;
      double gain = 0;
      for (int64_t i = 0; i < e.count(); ++i)
        gain += e.row(i)[b] * (2 * left[static_cast<size_t>(i)] - e.row(i)[b]);
      if (gain > best_gain) {
        best_gain = gain;
        best = b;
      }
    }
    if (best < 0) break;
    picked.push_back(best);
    for (int64_t i = 0; i < e.count(); ++i) left[static_cast<size_t>(i)] -= e.row(i)[best];
  }
  std::ranges::sort(picked);
  return picked;
}

// Solves symmetric equations in place (Cholesky); false: they do not say enough.
bool solve_symmetric(std::vector<double>& a, std::vector<double>& x) {
  const size_t n = x.size();
  for (size_t j = 0; j < n; ++j) {
    for (size_t k = 0; k < j; ++k)
      for (size_t i = j; i < n; ++i) a[i * n + j] -= a[i * n + k] * a[j * n + k];
    if (!(a[j * n + j] > 1e-12)) return false;
    const double root = std::sqrt(a[j * n + j]);
    for (size_t i = j; i < n; ++i) a[i * n + j] /= root;
  }
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < i; ++k) x[i] -= a[i * n + k] * x[k];
    x[i] /= a[i * n + i];
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t k = i + 1; k < n; ++k) x[i] -= a[k * n + i] * x[k];
    x[i] /= a[i * n + i];
  }
  return true;
}

// All blocks at once: the share of each is near 0 or near 1 where the decoding is the right one.
std::optional<std::vector<int64_t>> fit_all(const Equations& e) {
  std::vector<double> size(static_cast<size_t>(e.blocks));
  for (int64_t i = 0; i < e.count(); ++i)
    for (int64_t b = 0; b < e.blocks; ++b)
      size[static_cast<size_t>(b)] += e.row(i)[b] * e.row(i)[b];
  // Blocks that the decoding does not change say nothing.
  std::vector<int64_t> used;
  for (int64_t b = 0; b < e.blocks; ++b)
    if (size[static_cast<size_t>(b)] > 0) used.push_back(b);
  const size_t n = used.size();
  if (n == 0) return std::nullopt;
  std::vector<double> a(n * n);
  std::vector<double> x(n);
  std::vector<double> scaled(n);
  for (int64_t i = 0; i < e.count(); ++i) {
    for (size_t j = 0; j < n; ++j) {
      const auto b = static_cast<size_t>(used[j]);
      scaled[j] = e.row(i)[used[j]] / std::sqrt(size[b]);
      x[j] += scaled[j] * e.errors[static_cast<size_t>(i)];
      for (size_t k = 0; k <= j; ++k) a[j * n + k] += scaled[j] * scaled[k];
    }
  }
  if (!solve_symmetric(a, x)) return std::nullopt;
  std::vector<int64_t> out;
  for (size_t j = 0; j < n; ++j) {
    const double share = x[j] / std::sqrt(size[static_cast<size_t>(used[j])]);
    if (std::fabs(share - std::round(share)) > kNear || std::fabs(share - 0.5) > 1)
      return std::nullopt;
    if (share > 0.5) out.push_back(used[j]);
  }
  return out;
}

}  // namespace

std::vector<DecodingFit> find_blocks(const WrongProducts& wrong, std::vector<DecodingFit> fits) {
  const int64_t blocks = wrong.weight.columns / wrong.weight.format->block_values;
  if (blocks < 2 || blocks > kMostBlocks) return {};
  std::vector<std::pair<double, size_t>> order;
  for (size_t i = 0; i < fits.size(); ++i)
    order.emplace_back(-likeness(equations_of(wrong, fits[i], kFirstEquations)), i);
  std::ranges::sort(order);
  std::vector<DecodingFit> out;
  // Few equations cost little, and say little of which decoding is the likeliest.
  const int64_t most = std::max(kFirstEquations, 4 * blocks);
  const double each =
      static_cast<double>(std::min(most, wrong.x.rows * std::ssize(wrong.outputs))) *
      static_cast<double>(blocks * blocks);
  const auto candidates = std::max(kFewestCandidates, static_cast<size_t>(kEffort / each));
  for (size_t i = 0; i < std::min(order.size(), candidates); ++i) {
    DecodingFit& fit = fits[order[i].second];
    const Equations e = equations_of(wrong, fit, most);
    std::vector<int64_t> found = pick(e);
    double left = 0;
    for (int64_t q = 0; q < e.count(); ++q) {
      double error = e.errors[static_cast<size_t>(q)];
      for (const int64_t b : found) error -= e.row(q)[b];
      left += error * error;
    }
    if (left > 1e-4 * sum_of_squared(e.errors)) {
      if (e.count() < blocks + 4 || blocks > kMostFitted) continue;
      const auto all = fit_all(e);
      if (!all) continue;
      found = *all;
    }
    if (found.empty()) continue;
    fit.blocks = found;
    out.push_back(fit);
  }
  return out;
}

}  // namespace lockstep::doctor
