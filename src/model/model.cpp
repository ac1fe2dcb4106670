#include "model/model.h"

#include <fmt/ranges.h>

#include "base/no_throw.h"
#include "hub/folder.h"
#include "model/forward.h"

namespace lockstep::model {
namespace {

// Every layer has at least one tensor: a larger count is a lie that would cost much time.
void check_layers(const gguf::File& file, const Config& config,
                  std::vector<std::string>& problems) {
  const auto tensors = static_cast<int64_t>(file.tensors().size());
  if (config.layers > tensors)
    problems.push_back(fmt::format("{}.block_count is {}, but the file has {} tensors in all",
                                   config.arch->name, config.layers, tensors));
}

void check_vocabulary(const gguf::File& file, const Config& config,
                      std::vector<std::string>& problems) {
  if (file.find("tokenizer.ggml.tokens") == nullptr) return;
  const auto tokens = file.texts("tokenizer.ggml.tokens");
  if (!tokens.ok()) return problems.push_back(tokens.error().message);
  const auto count = static_cast<int64_t>((*tokens)->size());
  if (count > config.vocabulary)
    problems.push_back(fmt::format("the tokenizer has {} tokens, but token_embd.weight has {} rows",
                                   count, config.vocabulary));
}

Config check(const gguf::File& file, std::vector<std::string>& problems) {
  const Config config = read_config(file, problems);
  if (!problems.empty()) return config;
  check_layers(file, config, problems);
  if (!problems.empty()) return config;
  check_vocabulary(file, config, problems);
  FileWeights weights(file, problems);
  forward_pass(config, config.context_length, weights);
  weights.report_unused();
  return config;
}

}  // namespace

std::vector<std::string> problems_of(const gguf::File& file) {
  std::vector<std::string> problems;
  check(file, problems);
  return problems;
}

Result<Model> Model::load(const std::string& path, bool map) {
  return no_throw([&]() -> Result<Model> {
    LS_TRY(gguf::File file, hub::open(path, map));
    return load(std::move(file));
  });
}

Result<Model> Model::load(gguf::File file) {
  std::vector<std::string> problems;
  const Config config = check(file, problems);
  if (problems.size() == 1) return error("{}: {}", file.path(), problems[0]);
  if (!problems.empty())
    return error("{}: {} problems:\n  {}", file.path(), problems.size(),
                 fmt::join(problems, "\n  "));
  return Model(std::make_unique<gguf::File>(std::move(file)), config);
}

Result<op::Program> Model::program(int64_t context_length) const {
  if (context_length > config_.context_length)
    return error("{}: a context of {} positions was asked for; the model has {}", file_->path(),
                 context_length, config_.context_length);
  std::vector<std::string> problems;
  FileWeights weights(*file_, problems);
  op::Program program = forward_pass(config_, context_length, weights);
  LS_CHECK(problems.empty(), "{}", fmt::join(problems, "; "));
  return program;
}

}  // namespace lockstep::model
