// Sums over the terms of a sum, in wide registers: all products of a model go through here.
#pragma once

#include <optional>
#include <span>

namespace lockstep::parity {

struct TermStatistics {
  double squares = 0;
  double absolute = 0;
  double largest = 0;
  double reach = 0;    // the largest partial sum
  double partial = 0;  // mean square of the partial sums, in the worst of some orders
  double known = 0;    // error of adding in these orders, as far as partial sums are known
};

// Partial sums, from `begun` on, are looked at after every block: in the order of the terms, and in
// the reverse, where they are known since `sum` is. Numbers that are alike, or multiples of one,
// are rounded in one direction over and over; so each term is also rounded as it is beside the
// partial sum.
TermStatistics statistics_of(std::span<const double> terms, double sum, double unit_of_type,
                             double begun);

// Of the sizes up to `large`; nothing where there are none.
std::optional<double> mean_size(std::span<const double> terms, double large);

// A row of a weight times a row of inputs: the terms, what statistics_of says of them where their
// sum is known, and sums over them.
struct ProductSums {
  TermStatistics of_terms;
  double weight_squares = 0;
  double chance = 0;  // of the squares of weights times the variances of inputs, where given
  double known = 0;   // of weights times the errors of inputs
};
ProductSums multiply(std::span<const float> weights, const double* inputs, const double* variances,
                     const double* errors, double sum, double unit_of_type,
                     std::span<double> terms);
// The errors of a row beside what is expected of them.
struct ErrorSums {
  double squares = 0;
  double variances = 0;
};
ErrorSums sum_errors(std::span<const double> recorded, const double* replayed,
                     const double* variances);
// From `first` on, where there may be an error of more than `ratio` times its deviation: those that
// come before have none, nor a NaN.
size_t next_beyond(std::span<const double> recorded, const double* replayed,
                   const double* variances, size_t first, double ratio);
double sum_of(std::span<const double> numbers);
// Of the products of two, and of those with the squares of the first.
double sum_of_products(std::span<const double> a, const double* b);
double sum_of_squares_times(std::span<const double> a, const double* b);
double sum_of_squares(std::span<const double> numbers);

}  // namespace lockstep::parity
