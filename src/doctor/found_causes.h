// What was found on one side: a diagnosis for each mistake, wherever it shows.
#pragma once

#include <optional>
#include <vector>

#include "doctor/search.h"

namespace lockstep::doctor {

struct Found {
  Diagnosis diagnosis;
  std::optional<Trial> trial = {};  // how; none: nothing explains it
};

class FoundCauses {
 public:
  explicit FoundCauses(parity::Side which) : which_(which) {}

  std::vector<Found>& all() { return found_; }
  const std::vector<Found>& all() const { return found_; }
  int64_t named() const;

  // Another checkpoint that is wrong by a cause which was found before; false: by none.
  bool joins_known(const parity::CheckpointResult& result, Examination& examination);
  // The same checkpoint of other layers is unknown for the same reason, as far as anybody can tell.
  bool joins_unknown(const parity::CheckpointResult& result, const Examination& examination);
  void add(const parity::CheckpointResult& result, Examination& examination,
           const Explanation& explanation);
  // NaN or infinity that the inputs do not give.
  void add_garbage(const parity::CheckpointResult& result, const std::vector<int64_t>& positions);

 private:
  Diagnosis begin(const parity::CheckpointResult& result,
                  const std::vector<int64_t>& positions) const;
  Diagnosis begin(const parity::CheckpointResult& result, const Examination& examination,
                  const Trial& trial) const;
  void add_unknown(const parity::CheckpointResult& result, Examination& examination,
                   const Explanation& explanation);
  void add_nearly(const parity::CheckpointResult& result, Examination& examination,
                  const Explanation& explanation);
  void add_chosen(const parity::CheckpointResult& result, Examination& examination,
                  const Explanation& explanation);
  void finish(Found made, const Examination& examination, const Explanation& explanation);

  const parity::Side which_;
  std::vector<Found> found_;
};

}  // namespace lockstep::doctor
