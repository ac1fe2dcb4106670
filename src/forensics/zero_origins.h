// Zeros that come from zeros: what a row is computed from is zero already.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "forensics/row_stats.h"
#include "forensics/source.h"

namespace lockstep::forensics {

class ZeroOrigins {
 public:
  ZeroOrigins(const Source& source, const std::vector<RowStats>& stats);

  // The checkpoint that a row's zeros come from, or nothing. Columns: where the same are zero
  // there.
  std::optional<std::string> of(size_t row, std::optional<Range> columns) const;

 private:
  std::optional<size_t> row_at(size_t checkpoint, int64_t position) const;
  std::optional<size_t> find(const std::string& name) const;
  std::optional<size_t> stream_before(size_t checkpoint) const;

  const Source& source_;
  const std::vector<RowStats>& stats_;
  const std::vector<Span> spans_;
  std::map<std::string, size_t, std::less<>> index_;  // of checkpoints
};

}  // namespace lockstep::forensics
