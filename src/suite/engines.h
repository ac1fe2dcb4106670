// The engines of a suite at work: each writes a trace of a prompt.
#pragma once

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/session.h"
#include "suite/suite.h"

namespace lockstep::suite {

struct OpenModel {
  model::Model model;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;  // null: it has none
  std::string path;
};

// What an engine is to run.
struct Task {
  const OpenModel* model = nullptr;
  std::string model_name;  // as the suite has it
  std::vector<int32_t> tokens;
  std::string text;  // empty: there are only ids
  int64_t n = 0;
  std::string checkpoints;
};

struct Recorded {
  std::string folder;  // of the trace
  std::string output;  // what a program said
};

// Why an engine gave no trace.
struct Failure {
  std::string reason;
  std::string output;
};

class Engines {
 public:
  // `program`: this one, which captures by itself.
  Engines(const Suite& suite, std::string program, const std::atomic<bool>* cancel)
      : suite_(suite), program_(std::move(program)), cancel_(cancel) {}

  // Models stay open, and executors loaded, as long as there is memory for the next one.
  Result<const OpenModel*> open(const std::string& model);

  // `folder` does not exist yet; its parent does. A trace that is there already stays where it is.
  Result<Recorded> record(const Engine& engine, const Task& task, const std::string& folder,
                          Failure& failure);

 private:
  Result<engine::Session*> session(const Engine& engine, const OpenModel& model, int64_t context);
  Result<void> record_device(const Engine& engine, const Task& task, const std::string& folder);
  Result<std::string> run_program(const Engine& engine, const std::vector<std::string>& command,
                                  const std::string& folder, Failure& failure);
  void make_room(int64_t bytes, const OpenModel* keep);

  struct Loaded {
    std::string key;
    const OpenModel* model;
    engine::Session session;
  };

  const Suite& suite_;
  std::string program_;
  const std::atomic<bool>* cancel_;
  std::map<std::string, std::unique_ptr<OpenModel>> models_;  // by what the suite calls them
  std::list<Loaded> sessions_;                                // the last used first
};

// Token ids with commas between them.
std::string ids_text(const std::vector<int32_t>& tokens);

// The program and its arguments. What the case does not have is an error.
Result<std::vector<std::string>> command_of(const Suite& suite, const Engine& engine,
                                            const Task& task, const std::string& folder,
                                            const std::string& program);

}  // namespace lockstep::suite
