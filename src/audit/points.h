// Numbers of B that are not where A has them: what explanations are tried on.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "audit/measure.h"
#include "audit/values.h"

namespace lockstep::audit {

// Where in A the number of B at an index may come from.
using Map = std::function<int64_t(int64_t)>;

class Points {
 public:
  // Of the pieces that are bad, or of all where there is no Measured.
  Points(const Values& a, const Values& b, const Measured* measured);

  // Relative root mean square errors up to this are none that an explanation leaves.
  double limit() const { return limit_; }
  bool empty() const { return at_.empty(); }

  // Whether the numbers are those of `a` at other places.
  bool fits(const Values& a, const Map& map) const;

  // B = factor * A + offset, as far as the numbers are within the limit of it.
  struct Line {
    bool fits = false;
    double factor = 1;
    double offset = 0;
  };
  Line offset() const;
  Line scale() const;
  Line scale_and_offset() const;
  bool b_is_zero() const;

 private:
  Line line(double factor, double offset) const;

  std::vector<int64_t> at_;
  std::vector<float> a_, b_;  // A's under the same index; the same as B's where A has fewer
  double limit_ = 0;
  double identity_ = 0;  // squared errors of A under the same index
};

// The largest relative error that an explanation may leave, for tensors that were measured so.
double limit_of(const Measured& measured);

}  // namespace lockstep::audit
