// What a client asks for, read from a request's body and checked, before any model sees it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/sampler.h"
#include "server/api_error.h"

namespace lockstep::server {

inline constexpr int64_t kMostPromptChars = 32'768;
inline constexpr int64_t kMostMessages = 1024;
inline constexpr int64_t kMostJobIdChars = 256;
inline constexpr int64_t kMostLogprobs = 20;
inline constexpr int64_t kMostTokens = int64_t{1} << 30;  // the context ends a job long before

struct JobFields {
  std::string id;
  // The prompt is one of these: text, token ids, or a conversation.
  std::string prompt;
  std::vector<engine::TokenId> prompt_tokens;
  nlohmann::ordered_json messages;

  int64_t max_tokens = 256;
  engine::Sampling sampling;
  bool seeded = false;  // else any seed will do
  std::vector<std::string> stops;
  bool ignore_end = false;
  int64_t logprobs = -1;  // so many of the likeliest with each token; -1: none
  bool stream = false;
  bool include_usage = false;  // a last chunk with the counts
};

// Each gives the problem, or nothing and fills `out`.
std::optional<ApiError> read_execute(std::string_view body, JobFields& out);
std::optional<ApiError> read_completion(std::string_view body, JobFields& out);
std::optional<ApiError> read_chat(std::string_view body, JobFields& out);
std::optional<ApiError> read_job_id(std::string_view body, std::string& job_id);

}  // namespace lockstep::server
