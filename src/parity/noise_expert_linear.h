// What rounding does to products with the weights of chosen experts: each expert's are products
// with a weight (noise_linear.h), on the rows of the tokens that chose it.
#pragma once

#include <list>
#include <span>
#include <vector>

#include "op/experts.h"
#include "parity/noise_linear.h"

namespace lockstep::parity {

// As LinearNoise, where a row has the results of a token's experts one after another.
class ExpertNoise {
 public:
  // Keeps what `arithmetic` refers to.
  ExpertNoise(const op::ExpertLinear& all, const Matrix& x, const Matrix& choice,
              const Arithmetic& arithmetic, int threads);

  void find(std::vector<LinearNoise::Element> elements, const Matrix& out, Matrix& variance) const;
  void find_rows(std::span<const int64_t> rows, const Matrix& out, Matrix& variance) const;
  Matrix at_least(const Matrix& out, Products& products) const;
  // `actual`: all columns.
  LinearNoise::Evaluated evaluate(Products& products, const Matrix* actual,
                                  LinearNoise::Evaluated room) const;

 private:
  struct Expert {
    op::Linear linear;
    std::vector<op::Slot> slots;
    Matrix x;                     // a row a slot
    std::vector<double> largest;  // by slot, where a tensor shares a scale
    LinearNoise noise;

    Expert(op::Linear of, std::span<const op::Slot> chosen, Matrix rows,
           const Arithmetic& arithmetic, int threads);
  };

  // Calls f(expert, its rows of each matrix...), and puts the last matrix back.
  template <class F>
  void on_each(const Matrix& out, Matrix& variance, const F& f) const;

  int64_t width_ = 0;               // of a slot of the result
  int64_t rows_ = 0, columns_ = 0;  // of the result
  std::list<Expert> experts_;       // that somebody chose: they do not move
};

}  // namespace lockstep::parity
