#include "server/api_error.h"

namespace lockstep::server {
namespace {

const char* type_of(int status) {
  if (status == 401) return "authentication_error";
  return status < 500 ? "invalid_request_error" : "server_error";
}

}  // namespace

ApiError out_of_memory() noexcept {
  return {503, "OUT_OF_MEMORY", "out of memory", ""};
}

nlohmann::ordered_json to_json(const ApiError& problem) {
  nlohmann::ordered_json field;
  if (!problem.field.empty()) field = problem.field;
  return {{"code", problem.code},
          {"message", problem.message},
          {"field", field},
          {"type", type_of(problem.status)},
          {"param", field}};
}

std::string dump(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace lockstep::server
