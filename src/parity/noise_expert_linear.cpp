#include "parity/noise_expert_linear.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "exec/reference/experts.h"

namespace lockstep::parity {
namespace {

using exec::reference::put_rows_of_slots;
using exec::reference::rows_of_slots;

Arithmetic with_largest(Arithmetic arithmetic, std::span<const double> largest) {
  arithmetic.largest = largest;
  return arithmetic;
}

std::vector<double> largest_of(const Arithmetic& arithmetic, std::span<const op::Slot> slots) {
  std::vector<double> out;
  if (arithmetic.largest.empty()) return out;
  for (const op::Slot& slot : slots)
    out.push_back(arithmetic.largest[static_cast<size_t>(slot.token)]);
  return out;
}

}  // namespace

ExpertNoise::Expert::Expert(op::Linear of, std::span<const op::Slot> chosen, Matrix rows,
                            const Arithmetic& arithmetic, int threads)
    : linear(std::move(of)),
      slots(chosen.begin(), chosen.end()),
      x(std::move(rows)),
      largest(largest_of(arithmetic, slots)),
      noise(linear, x, with_largest(arithmetic, largest), threads) {}

ExpertNoise::ExpertNoise(const op::ExpertLinear& all, const Matrix& x, const Matrix& choice,
                         const Arithmetic& arithmetic, int threads)
    : width_(all.rows()), rows_(x.rows), columns_(choice.columns * all.rows()) {
  exec::reference::for_each_expert(
      all, choice, [&](const op::Linear& linear, std::span<const op::Slot> slots) {
        experts_.emplace_back(linear, slots, rows_of_slots(x, linear.weight.columns, slots),
                              arithmetic, threads);
      });
}

template <class F>
void ExpertNoise::on_each(const Matrix& out, Matrix& variance, const F& f) const {
  for (const Expert& expert : experts_) {
    const Matrix own = rows_of_slots(out, width_, expert.slots);
    Matrix of_own = rows_of_slots(variance, width_, expert.slots);
    if (f(expert, own, of_own)) put_rows_of_slots(of_own, expert.slots, variance);
  }
}

void ExpertNoise::find(std::vector<LinearNoise::Element> elements, const Matrix& out,
                       Matrix& variance) const {
  if (elements.empty()) return;
  std::ranges::sort(elements, {}, [](const auto& e) { return std::pair(e.row, e.column); });
  on_each(out, variance, [&](const Expert& expert, const Matrix& own, Matrix& of_own) {
    std::vector<LinearNoise::Element> some;
    for (size_t i = 0; i < expert.slots.size(); ++i) {
      const auto [token, slot] = expert.slots[i];
      const auto from =
          std::ranges::lower_bound(elements, std::pair(token, slot * width_), {},
                                   [](const auto& e) { return std::pair(e.row, e.column); });
      for (auto e = from; e != elements.end() && e->row == token && e->column < (slot + 1) * width_;
           ++e)
        some.push_back({static_cast<int64_t>(i), e->column - slot * width_});
    }
    if (some.empty()) return false;
    expert.noise.find(std::move(some), own, of_own);
    return true;
  });
}

void ExpertNoise::find_rows(std::span<const int64_t> rows, const Matrix& out,
                            Matrix& variance) const {
  if (rows.empty()) return;
  on_each(out, variance, [&](const Expert& expert, const Matrix& own, Matrix& of_own) {
    std::vector<int64_t> some;
    for (size_t i = 0; i < expert.slots.size(); ++i)
      if (std::ranges::find(rows, expert.slots[i].token) != rows.end())
        some.push_back(static_cast<int64_t>(i));
    if (some.empty()) return false;
    expert.noise.find_rows(some, own, of_own);
    return true;
  });
}

Matrix ExpertNoise::at_least(const Matrix& out, Products& products) const {
  Matrix variance(rows_, columns_);
  on_each(out, variance, [&](const Expert& expert, const Matrix& own, Matrix& of_own) {
    of_own = expert.noise.at_least(own, products);
    return true;
  });
  return variance;
}

LinearNoise::Evaluated ExpertNoise::evaluate(Products& products, const Matrix* actual,
                                             LinearNoise::Evaluated room) const {
  LinearNoise::Evaluated out = std::move(room);
  out.all_known = true;
  out.value.reshape(rows_, columns_);
  out.at_least.reshape(rows_, columns_);
  // An expert that does not exist gives no number.
  std::ranges::fill(out.value.values, std::numeric_limits<double>::quiet_NaN());
  std::ranges::fill(out.at_least.values, 0.0);
  on_each(*actual, out.at_least, [&](const Expert& expert, const Matrix& own, Matrix& of_own) {
    auto some = expert.noise.evaluate(products, &own);
    out.all_known = out.all_known && some.all_known;
    put_rows_of_slots(some.value, expert.slots, out.value);
    of_own = std::move(some.at_least);
    return true;
  });
  return out;
}

}  // namespace lockstep::parity
