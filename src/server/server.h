// The HTTP worker: listens, computes, and stops when told.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "server/judge.h"
#include "server/log.h"
#include "server/served_model.h"
#include "server/worker.h"

namespace lockstep::server {

struct ServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;                                       // 0: any that is free
  std::vector<std::string> allowed_hosts;                     // names beside its own (hosts.h)
  size_t connections = 4096;                                  // at a time; a client has half
  std::string api_key;                                        // empty: none is asked for
  std::chrono::milliseconds grace{std::chrono::seconds(30)};  // for the active job at a stop
  std::chrono::milliseconds request_time{std::chrono::seconds(10)};
  Log::Format log = Log::Format::kText;
  bool log_prompts = false;
  std::string history;  // folder of runs, shown at /dashboard; empty: none
  WorkerOptions worker;
  JudgeOptions judge;
};

// Serves until a signal or /shutdown ends it. `ready` is told the address once it listens.
Result<void> serve(ServedModel& model, const ServerOptions& options,
                   const std::function<void(const std::string& url)>& ready);

}  // namespace lockstep::server
