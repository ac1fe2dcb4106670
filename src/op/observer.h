// Who watches a program run.
#pragma once

#include <cstdint>
#include <vector>

#include "base/view.h"
#include "op/program.h"

namespace lockstep::op {

// Sees named values as they are computed. Watching leaves every bit of the results as it was.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void begin_step(int64_t /*first_position*/, int64_t /*tokens*/) {}
  virtual bool wants(ValueId id) const = 0;
  // `view` is valid during the call. Rows are the step's tokens.
  virtual void see(ValueId id, const View& view) = 0;
  // Not whole: the step failed or was cancelled.
  virtual void end_step(bool /*whole*/) {}
};

// Several observers as one.
class Observers : public Observer {
 public:
  void add(Observer* observer) { list_.push_back(observer); }
  bool empty() const { return list_.empty(); }

  void begin_step(int64_t first_position, int64_t tokens) override;
  bool wants(ValueId id) const override;
  void see(ValueId id, const View& view) override;
  void end_step(bool whole) override;

 private:
  std::vector<Observer*> list_;
};

}  // namespace lockstep::op
