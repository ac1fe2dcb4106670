// A model file that has been checked and can run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "gguf/file.h"
#include "model/config.h"
#include "op/program.h"

namespace lockstep::model {

class Model {
 public:
  // Everything that is wrong with the file, in one error.
  static Result<Model> load(const std::string& path, bool map = true);  // else read into memory
  static Result<Model> load(gguf::File file);

  const gguf::File& file() const { return *file_; }
  const Config& config() const { return config_; }

  // Error where the context is longer than the model's. The program's weights lie in the file's
  // map: it must not outlive the model.
  Result<op::Program> program(int64_t context_length) const;

 private:
  Model(std::unique_ptr<gguf::File> file, const Config& config)
      : file_(std::move(file)), config_(config) {}

  std::unique_ptr<gguf::File> file_;  // its address stays when the Model moves
  Config config_;
};

// What keeps the file from running; empty where nothing does.
std::vector<std::string> problems_of(const gguf::File& file);

}  // namespace lockstep::model
