// The text of HTTP answers.
#pragma once

#include <string>
#include <string_view>

#include "server/responder.h"

namespace lockstep::server {

struct AnswerForm {
  bool keep_alive = true;
  bool old_version = false;  // HTTP/1.0: no chunks, the end of the connection ends the answer
  bool head_only = false;
};

std::string whole_answer(const HttpResponse& response, const AnswerForm& form);
std::string events_head(const AnswerForm& form);
std::string chunk(std::string_view text, const AnswerForm& form);
std::string last_chunk(const AnswerForm& form);

// The path of a request's target: without query, fragment and, in the absolute form, the origin.
std::string path_of(std::string_view target);

// Whether a page of another origin sent the request. Only browsers send an origin.
bool crosses_origins(std::string_view origin, std::string_view host);

// Constant time for texts of equal hashes; `key` from the Authorization header.
bool bearer_matches(std::string_view authorization, std::string_view key);

}  // namespace lockstep::server
