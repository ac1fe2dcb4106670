// An importance matrix: for each matrix of a model, how large its inputs are, column by column. An
// error of a weight matters as much as what the weight is multiplied with.
//
// Files are those of llama.cpp: its GGUF form is read and written, its older .dat form is read.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep::gguf {

class Imatrix {
 public:
  // Squared inputs, added up over tokens, of one tensor.
  struct Sums {
    std::vector<double> squares;  // [matrices, columns]
    std::vector<double> counts;   // [matrices]: tokens that each matrix met; 1, or one an expert

    int64_t columns() const;
  };

  // What is wrong with a file, told with its name.
  static Result<Imatrix> read(const std::string& path);
  static Result<Imatrix> parse(std::span<const std::byte> bytes, const std::string& path);

  // The file appears when it is whole.
  Result<void> write(const std::string& path) const;

  std::map<std::string, Sums, std::less<>> tensors;
  std::string dataset;     // what it was made of: a file's name
  int64_t chunks = 0;      // windows of the text
  int64_t chunk_size = 0;  // tokens of a window

  const std::string& path() const { return path_; }

  // The mean squared input of each column of each matrix [matrices, columns], where the tensor of
  // these dims has an entry; empty where it has none. A matrix that met no token has ones. Error
  // where the entry is not of this tensor's shape.
  Result<std::vector<float>> means(std::string_view tensor, std::span<const int64_t> dims) const;

 private:
  std::string path_;
};

}  // namespace lockstep::gguf
