// What a client is told when something cannot be done.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace lockstep::server {

struct ApiError {
  int status = 400;     // of HTTP, where the answer has not begun
  std::string code;     // for programs: INVALID_FIELD, QUEUE_FULL, CANCELLED, ...
  std::string message;  // for people: where, what was found, what was expected
  std::string field;    // of the request; empty: none
};

// In texts so short that they take no memory.
ApiError out_of_memory() noexcept;

// {code, message, field}, and the names that OpenAI's clients know (type, param).
nlohmann::ordered_json to_json(const ApiError& problem);

// JSON as text on one line. Bytes that are no UTF-8 become U+FFFD.
std::string dump(const nlohmann::ordered_json& json);

}  // namespace lockstep::server
