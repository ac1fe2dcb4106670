// Test-only: rows in memory as a source.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "forensics/scan.h"

namespace lockstep::forensics {

class MemorySource : public Source {
 public:
  void load(const RowRef& ref, Row& row) const override {
    row = stored_[static_cast<size_t>(ref.place)];
  }

  // Checkpoints in the order of their first row; positions of one must come in order.
  void add(const std::string& checkpoint, int64_t position, Row row) {
    if (checkpoints.empty() || checkpoints.back() != checkpoint) checkpoints.push_back(checkpoint);
    rows.push_back({checkpoints.size() - 1, position, static_cast<int64_t>(stored_.size())});
    stored_.push_back(std::move(row));
  }

 private:
  std::vector<Row> stored_;
};

inline Row make_row(DType dtype, const std::vector<double>& values) {
  Row row;
  row.dtype = dtype;
  for (const double value : values) {
    const auto put = [&](const auto& stored) {
      const auto bytes = std::as_bytes(std::span(&stored, 1));
      row.bytes.insert(row.bytes.end(), bytes.begin(), bytes.end());
    };
    const auto narrow = static_cast<float>(value);
    if (dtype == DType::kF64) put(value);
    if (dtype == DType::kF32) put(narrow);
    if (dtype == DType::kF16) put(float_to_half(narrow));
    if (dtype == DType::kBF16) put(float_to_bfloat(narrow));
  }
  return row;
}

inline std::vector<double> gaussian(Random& random, int64_t count, double scale = 1) {
  std::vector<double> values(static_cast<size_t>(count));
  for (double& value : values) value = scale * random.gaussian();
  return values;
}

inline Row gaussian_row(Random& random, DType dtype, int64_t count, double scale = 1) {
  return make_row(dtype, gaussian(random, count, scale));
}

// Overwrites bytes of a row.
inline void poke(Row& row, size_t offset, const void* data, size_t size) {
  std::memcpy(row.bytes.data() + offset, data, size);
}
inline void poke_word(Row& row, size_t index, uint64_t word) {
  poke(row, 8 * index, &word, sizeof word);
}

// The clusters of garbage.
inline std::vector<Cluster> garbage_of(const Report& report) {
  std::vector<Cluster> out;
  for (const Cluster& cluster : report.clusters)
    if (info(cluster.kind).garbage) out.push_back(cluster);
  return out;
}

inline std::string describe(const Report& report) {
  std::string text;
  for (const Cluster& cluster : report.clusters)
    text += fmt::format("{} {} positions {} values {} score {}: {}\n", cluster.checkpoints[0],
                        info(cluster.kind).name, range_text(cluster.positions),
                        range_text(cluster.values), cluster.score, cluster.evidence);
  return text;
}

}  // namespace lockstep::forensics
