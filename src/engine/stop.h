// Stop sequences in text that comes in pieces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::engine {

// Text goes in as it is generated and comes out once it can no longer be the start of a stop
// sequence, which may span many pieces.
class StopFilter {
 public:
  explicit StopFilter(std::vector<std::string> stops);

  // What may be shown now. Once a stop sequence is complete, everything before it, and nothing
  // after.
  std::string push(std::string_view text);
  std::string finish();  // what was held back, when generation ended for another reason

  bool stopped() const { return stopped_; }
  bool holds() const { return !held_.empty(); }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace lockstep::engine
