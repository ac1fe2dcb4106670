// The one model that a worker serves, with all that is needed to run it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "engine/session.h"
#include "server/api_error.h"
#include "server/job_fields.h"
#include "tokenizer/chat_prompt.h"
#include "trace/manifest.h"

namespace lockstep::server {

struct ServedModel {
  // `map`: the file, or read it into memory. `context`: positions of the KV cache; 0: the model's
  // own, within reason.
  static Result<std::unique_ptr<ServedModel>> load(const std::string& path,
                                                   const exec::Device& device,
                                                   const exec::Options& options, int64_t context,
                                                   bool map = true);

  std::string name;  // the file's, without its ending
  std::unique_ptr<model::Model> model;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::optional<tokenizer::ChatPrompt> chat;  // nothing: the file has no usable template
  std::string no_chat;                        // why not
  std::unique_ptr<engine::Session> session;   // of the compute thread, once that runs
  trace::Manifest manifest;                   // engine and model, for traces and for people

  int64_t context_length() const { return session->program().context_length; }
  int64_t vocabulary() const { return session->program().vocabulary; }

  // The request as the engine takes it, and the prompt's text for the record.
  std::optional<ApiError> prepare(const JobFields& fields, engine::Request& out,
                                  std::string& prompt_text) const;
};

}  // namespace lockstep::server
