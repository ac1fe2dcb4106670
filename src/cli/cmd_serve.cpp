// lockstep serve: the HTTP worker.
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>

#include "base/output_file.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/device.h"
#include "cli/model_path.h"
#include "cli/options.h"
#include "cli/recording.h"
#include "server/server.h"
#include "suite/history.h"
#include "trace/checkpoints.h"

namespace lockstep::cli {
namespace serve_command {

struct Flags {
  std::string model = kDefaultModel;
  int64_t context = 0;
  DeviceFlags device;
  server::ServerOptions server;
  std::string api_key_file;
  std::string log = "text";
  double grace_seconds = 30;
  double request_seconds = 10;
  double judge_gigabytes = 4;
  RecordingFlags recording;
};

Result<std::string> read_key(const std::string& path) {
  std::ifstream in(path);
  std::string key;
  if (!in) return error("{}: cannot read the key", path);
  std::getline(in, key);
  while (!key.empty() && (key.back() == '\r' || key.back() == ' ')) key.pop_back();
  if (key.empty()) return error("{}: the first line is empty; expected a key", path);
  return key;
}

Result<void> prepare_trace_folder(const trace::RecordOptions& trace) {
  std::error_code failed;
  std::vector<std::string> made;
  const Result<void> done = make_folders(trace.folder, trace.durable, made);
  if (!std::filesystem::is_directory(trace.folder, failed))
    return error("--trace-dir {}: cannot create the folder", trace.folder);
  return done;
}

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

Result<int> run(Flags& flags) {
  server::ServerOptions& options = flags.server;
  if (!flags.api_key_file.empty()) {
    LS_TRY(options.api_key, read_key(flags.api_key_file));
  }
  options.log = flags.log == "json" ? server::Log::Format::kJson : server::Log::Format::kText;
  options.grace = milliseconds(flags.grace_seconds);
  options.request_time = milliseconds(flags.request_seconds);
  options.judge.disk_bytes = static_cast<int64_t>(flags.judge_gigabytes * 1e9);
  options.judge.threads = flags.device.threads;
  options.worker.trace = flags.recording.options();
  LS_TRY(options.worker.log, trace::JsonlLogOptions::from_environment());
  if (!options.worker.trace.folder.empty()) LS_TRY_VOID(prepare_trace_folder(options.worker.trace));

  if (!options.history.empty()) LS_TRY_VOID(suite::HistoryReader(options.history).read());
  LS_TRY(const std::string path, model_path(flags.model));
  LS_TRY(const exec::Device* device, find_device(flags.device));
  LS_TRY(const std::unique_ptr<server::ServedModel> model,
         server::ServedModel::load(path, *device, options_of(flags.device), flags.context,
                                   !flags.device.no_map));
  // What would fail with each job fails now.
  if (!options.worker.trace.folder.empty())
    LS_TRY_VOID(
        trace::select_checkpoints(model->session->program(), options.worker.trace.checkpoints));
  if (!options.worker.log.file.empty())
    LS_TRY_VOID(trace::JsonlLogger::create(model->session->program(), options.worker.log));

  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN);  // a terminal that closes ends no stream
  LS_TRY_VOID(server::serve(*model, options, [&](const std::string& url) {
    fmt::print("lockstep serves {} on {} at {}\n", printable(model->name), device->name, url);
    std::fflush(stdout);
  }));
  return kDone;
}

std::function<Result<int>()> declare(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  // What costs the stream next to nothing; more is a matter of flags.
  flags->recording.trace.checkpoints = "layers";
  flags->recording.logits = "last";
  add_value(app, "-m,--model", flags->model, kModel,
            "GGUF file, folder from the hub, or the name of a model")
      ->default_str(flags->model);
  const auto number = [&](const char* names, auto& variable, auto range, const char* help) {
    show_default(add_number(app, names, variable, range, help), variable);
  };
  add_value(app, "--host", flags->server.host, kText, "Address to listen on")
      ->default_str(flags->server.host);
  add_values(app, "--allow-host", flags->server.allowed_hosts, kText,
             "A name that clients may call this server by");
  number("--port", flags->server.port, NumberRange<int64_t>{0, 65535}, "Port; 0: any that is free");
  add_number(app, "--ctx", flags->context, {1, int64_t{1} << 30},
             "Positions of the KV cache (default: the model's context, at most 32768)");
  number("--queue", flags->server.worker.queue, NumberRange<int64_t>{0, 1 << 16},
         "Jobs that may wait; more get 503");
  number("--connections", flags->server.connections, NumberRange<uint64_t>{64, 16'320},
         "Connections at a time; a client has at most half of them");
  add_value(app, "--api-key-file", flags->api_key_file, kInputFile,
            "Demand the bearer token in the first line of this file");
  number("--grace", flags->grace_seconds, NumberRange<double>{0, 1e6},
         "Seconds that the active job has to end when the server is told to stop");
  number("--request-timeout", flags->request_seconds, NumberRange<double>{0.1, 1e6},
         "Seconds that a request may take to arrive");
  add_value(app, "--history", flags->server.history, kHistory,
            "Show the runs of this folder (check --history) at /dashboard");
  number("--judge-disk", flags->judge_gigabytes, NumberRange<double>{0, 1e6},
         "Gigabytes of temporary files for answers that are judged; 0: none is");
  add_value(app, "--log", flags->log, kLogFormat, "Log lines as text or json")
      ->default_str(flags->log);
  app.add_flag("--log-prompts", flags->server.log_prompts, "Let the log show prompts");
  declare_device(app, flags->device);
  declare_recording(app, flags->recording, "--trace-dir",
                    "Record each job in a new folder here, named after its id");
  return [flags] { return run(*flags); };
}

}  // namespace serve_command

const Command kServeCommand = {
    "serve",
    "Serve a model over HTTP",
    "  lockstep serve -m haiku --port 8080\n"
    "  curl -N localhost:8080/execute -d '{\"job_id\": \"1\", \"prompt\": \"Write a haiku about "
    "rain\"}'\n"
    "  lockstep serve -m model.gguf --host 0.0.0.0 --api-key-file key --log json\n",
    serve_command::declare,
};

}  // namespace lockstep::cli
