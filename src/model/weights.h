// Where a forward pass gets its weights: it asks for each by name and shape, and the answer is a
// view of the file. Other sources answer otherwise: `forge` only notes what is asked for.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gguf/file.h"
#include "op/op.h"

namespace lockstep::model {

// Each of `count` matrices of the same size that lie in one tensor. Numbers of quantized formats
// are decoded: their blocks do not lie along the rows of the result.
op::Weight transposed(const op::Weight& matrix, int64_t count);

class Weights {
 public:
  virtual ~Weights() = default;

  virtual bool has(const std::string& name) const = 0;

  op::Weight matrix(const std::string& name, int64_t rows, int64_t columns) {
    return find(name, {columns, rows});
  }
  op::Weight vector(const std::string& name, int64_t size) { return find(name, {size}); }
  // Several matrices, one below the other, as one.
  op::Weight matrices(const std::string& name, int64_t count, int64_t rows, int64_t columns) {
    op::Weight all = find(name, {columns, rows, count});
    all.rows *= count;
    return all;
  }
  // The same, of matrices that the file has transposed; rows and columns are those of the result.
  op::Weight transposed_matrices(const std::string& name, int64_t count, int64_t rows,
                                 int64_t columns) {
    return transposed(find(name, {rows, columns, count}), count);
  }
  // Several vectors, one after another, as one.
  op::Weight vectors(const std::string& name, int64_t count, int64_t size) {
    op::Weight all = find(name, {size, count});
    all.columns *= std::exchange(all.rows, 1);
    return all;
  }
  std::optional<op::Weight> optional_vector(const std::string& name, int64_t size) {
    if (!has(name)) return std::nullopt;
    return vector(name, size);
  }

 protected:
  // `dims` as in the file, first dimension fastest.
  virtual op::Weight find(const std::string& name, const std::vector<int64_t>& dims) = 0;
};

// From a file, each checked against the shape that it must have; what is wrong is collected, and
// the weight is empty then.
class FileWeights : public Weights {
 public:
  FileWeights(const gguf::File& file, std::vector<std::string>& problems)
      : file_(file), problems_(problems) {}

  bool has(const std::string& name) const override { return file_.tensor(name) != nullptr; }

  // Tensors that nobody asked for mean that the pass would not be the one the file was made for.
  void report_unused();

 protected:
  op::Weight find(const std::string& name, const std::vector<int64_t>& dims) override;

 private:
  const gguf::File& file_;
  std::vector<std::string>& problems_;
  std::set<std::string, std::less<>> used_;
};

}  // namespace lockstep::model
