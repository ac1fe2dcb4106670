#include "server/worker.h"

#include <filesystem>
#include <random>

#include <boost/asio/post.hpp>
#include <xxhash.h>

#include "base/memory_reserve.h"
#include "base/no_throw.h"
#include "base/output_file.h"
#include "engine/recording.h"

namespace lockstep::server {
namespace {

namespace fs = std::filesystem;

// Without memory, a failure that would say more is one of memory too.
ApiError problem_of(const Error& failure) noexcept {
  try {
    if (failure.message != kNoMemoryMessage) return {500, "INTERNAL", failure.message, ""};
  } catch (const std::bad_alloc&) {
  }
  return out_of_memory();
}

// What has to be said is said when there is memory again. Not for the network thread.
template <class Say>
void insist(const Say& say) noexcept {
  for (;;) try {
      return say();
    } catch (...) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
}

ApiError shutting_down() {
  return {503, "SHUTTING_DOWN", "the server is stopping and takes no more jobs", ""};
}

}  // namespace

std::string random_id(const char* prefix) {
  std::random_device source;
  return fmt::format("{}-{:08x}{:08x}{:08x}", prefix, source(), source(), source());
}

std::string safe_name(std::string_view id) {
  constexpr size_t kLongest = 120;
  std::string name;
  for (const char c : id) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || (c == '.' && !name.empty());
    if (plain)
      name += c;
    else
      name += fmt::format("%{:02X}", static_cast<uint8_t>(c));
  }
  if (name.size() > kLongest)
    name = fmt::format("{}~{:016x}", name.substr(0, kLongest), XXH3_64bits(id.data(), id.size()));
  return name;
}

Worker::Worker(boost::asio::io_context& network, ServedModel& model, WorkerOptions options,
               Metrics& metrics)
    : network_(network), model_(model), options_(std::move(options)), metrics_(metrics) {
  try {
    preparer_ = std::thread([this] { prepare(); });
    computer_ = std::thread([this] { compute(); });
  } catch (...) {
    finish();
    throw;
  }
}

Worker::~Worker() {
  if (computing_ != nullptr) computing_->cancel = true;
  for (const auto& [id, job] : jobs_) job->cancel = true;
  finish();
}

void Worker::finish() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  unprepared_.wake.notify_one();
  queue_.wake.notify_one();
  if (preparer_.joinable()) preparer_.join();
  if (computer_.joinable()) computer_.join();
}

std::optional<ApiError> Worker::submit(const std::shared_ptr<Job>& job) {
  if (stopping_) return shutting_down();
  if (jobs_.contains(job->id))
    return ApiError{
        409, "DUPLICATE_JOB",
        fmt::format("job '{}' is waiting or under way; its id is free when it ends", job->id),
        "job_id"};
  // One that is about to be taken up does not wait.
  const int64_t waiting = queue_length();
  const bool idle = std::ssize(jobs_) == waiting && computing_ == nullptr;
  if (waiting >= options_.queue + (idle ? 1 : 0)) {
    metrics_.count_job("rejected");
    return ApiError{503, "QUEUE_FULL",
                    fmt::format("{} jobs wait already; try again later", waiting), ""};
  }
  const auto place = jobs_.emplace(job->id, job).first;
  try {
    add(unprepared_, job);
  } catch (...) {
    jobs_.erase(place);
    throw;
  }
  ++preparing_;
  return std::nullopt;
}

void Worker::add(Queue& queue, const std::shared_ptr<Job>& job) {
  {
    const std::lock_guard lock(mutex_);
    queue.jobs.push_back(job);
  }
  queue.wake.notify_one();
}

void Worker::prepared(const std::shared_ptr<Job>& job, const std::optional<ApiError>& problem) {
  if (job->ended) return;
  job->prepared = true;
  --preparing_;
  if (problem) {
    job->ended = true;
    jobs_.erase(job->id);
    const std::shared_ptr<JobListener> listener = std::exchange(job->listener, nullptr);
    try {
      listener->refused(*problem);
    } catch (...) {
      listener->lost();
    }
    return;
  }
  job->tokens_in = std::ssize(job->request.prompt);
  job->seed = job->request.sampling.seed;
  job->listener->accepted(*job);
  add(queue_, job);
}

void Worker::cancel(const std::string& id) {
  if (const auto found = jobs_.find(id); found != jobs_.end())
    end_early(std::shared_ptr<Job>(found->second), {499, "CANCELLED", "the job was cancelled", ""},
              "cancelled");
}

void Worker::abandon(const std::shared_ptr<Job>& job) {
  job->cancel = true;
  end_early(job, {499, "CANCELLED", "the client went away", ""}, "disconnected");
}

void Worker::end_early(const std::shared_ptr<Job>& job, const ApiError& problem,
                       const char* outcome) {
  job->cancel = true;
  {
    const std::lock_guard lock(mutex_);
    std::erase(unprepared_.jobs, job);
    std::erase(queue_.jobs, job);
  }
  JobEnd end;
  try {
    end.problem = problem;
  } catch (const std::bad_alloc&) {
    end.problem = out_of_memory();
  }
  end.tokens_out = std::ssize(job->told);
  this->end(job, end, outcome);
}

void Worker::stop(std::function<void()> done) {
  const ApiError problem = shutting_down();
  stopping_ = true;
  stopped_ = std::move(done);
  {
    const std::lock_guard lock(mutex_);
    unprepared_.jobs.clear();
    queue_.jobs.clear();
    closed_ = true;
  }
  queue_.wake.notify_one();
  for (auto next = jobs_.begin(); next != jobs_.end();) {
    const std::shared_ptr<Job> job = next++->second;
    if (job != computing_) end_early(job, problem, "shutdown");
  }
}

void Worker::end_active() {
  while (!jobs_.empty()) {
    const std::shared_ptr<Job> job = jobs_.begin()->second;
    end_early(job, {503, "SHUTTING_DOWN", "the server stopped before the job was done", ""},
              "shutdown");
  }
}

int64_t Worker::queue_length() const {
  const std::lock_guard lock(mutex_);
  return preparing_ + std::ssize(queue_.jobs);
}

std::string Worker::active() const {
  return computing_ != nullptr && !computing_->ended ? computing_->id : "";
}

void Worker::tell(const std::shared_ptr<Job>& job, std::function<void()> news) {
  boost::asio::post(network_, [this, job, news = std::move(news)] {
    try {
      news();
    } catch (...) {
      end_early(job, problem_of(caught_error()), "error");
    }
  });
}

void Worker::began(const std::shared_ptr<Job>& job) {
  computing_ = job;
  if (job->ended) return;
  job->listener->started(*job);
  job->started = true;
}

void Worker::take(const std::shared_ptr<Job>& job, const JobToken& token) {
  if (job->ended) return;
  using Seconds = std::chrono::duration<double>;
  if (!job->first_token)
    metrics_.first_token.add(Seconds(token.made - job->accepted).count());
  else
    metrics_.per_token.add(Seconds(token.made - *job->last_token).count());
  if (!job->first_token) job->first_token = token.made;
  job->last_token = token.made;
  ++metrics_.tokens_out;
  job->told.push_back(token.id);
  if (token.logprobs) job->told_logprobs.push_back(token.logprobs->chosen);
  if (const auto problem = job->listener->token(*job, token)) end_early(job, *problem, "error");
}

void Worker::over(const std::shared_ptr<Job>& job, const JobEnd& end) {
  computing_ = nullptr;
  if (!job->ended)
    this->end(job, end, end.problem ? "error" : std::string(engine::name(end.reason)).c_str());
}

void Worker::end(const std::shared_ptr<Job>& job, const JobEnd& end, const char* outcome) noexcept {
  if (job->ended) return;
  job->ended = true;
  jobs_.erase(job->id);
  metrics_.tokens_in += job->started ? job->tokens_in : 0;
  metrics_.tokens_reused += end.reused;
  if (!job->prepared) --preparing_;
  const std::shared_ptr<JobListener> listener = std::move(job->listener);
  job->listener = nullptr;
  try {
    metrics_.count_job(outcome);
    if (on_end) on_end(*job, !end.problem && end.reason == engine::StopReason::kEnd);
    if (!job->prepared) listener->accepted(*job);
    // Whatever becomes of a job, its first event is that it started.
    if (!job->started) listener->started(*job);
    job->started = true;
    listener->ended(*job, end);
  } catch (...) {
    listener->lost();
  }
}

std::shared_ptr<Job> Worker::next(Queue& queue) {
  std::unique_lock lock(mutex_);
  queue.wake.wait(lock, [&] { return closed_ || !queue.jobs.empty(); });
  if (queue.jobs.empty()) return nullptr;
  std::shared_ptr<Job> job = std::move(queue.jobs.front());
  queue.jobs.pop_front();
  return job;
}

void Worker::prepare() {
  while (const std::shared_ptr<Job> job = next(unprepared_)) {
    std::optional<ApiError> problem;
    try {
      if (options_.probe) options_.probe(*job, -1);
      if (!job->cancel) problem = model_.prepare(job->fields, job->request, job->prompt_text);
    } catch (...) {
      problem = problem_of(caught_error());
    }
    job->fields = {};
    insist([&] { tell(job, [this, job, problem] { prepared(job, problem); }); });
  }
}

void Worker::compute() {
  while (const std::shared_ptr<Job> job = next(queue_)) {
    insist([&] { tell(job, [this, job] { began(job); }); });
    JobEnd end;
    try {
      end = run(job);
    } catch (...) {
      end.problem = problem_of(caught_error());
    }
    insist([&] { tell(job, [this, job, end] { over(job, end); }); });
  }
  insist([this] {
    boost::asio::post(network_, [this] {
      if (stopped_) stopped_();
    });
  });
}

JobEnd Worker::run(const std::shared_ptr<Job>& job) {
  JobEnd end;
  engine::Session& session = *model_.session;
  trace::RecordOptions trace = job->record.value_or(options_.trace);
  const auto failed_to_record = [&](const Error& problem) {
    if (job->record) {
      end.problem = problem_of(problem);
      return;
    }
    std::error_code ignored;  // a folder that holds something stays
    if (!trace.folder.empty()) fs::remove(trace.folder, ignored);
    boost::asio::post(network_, [this, id = job->id, problem] {
      ++metrics_.recordings_failed;
      if (on_problem) on_problem(fmt::format("job {}: not recorded: {}", id, problem.message));
    });
  };
  // A recording that fails costs the job nothing, unless the job is about it.
  std::optional<engine::Recording> recording;
  if (!trace.folder.empty() || !options_.log.file.empty()) {
    const bool has_folder = trace.folder.empty() || job->record;
    Result<std::string> folder = has_folder ? trace.folder : trace_folder(job->id);
    trace.folder = folder.ok() ? *folder : "";
    if (!folder.ok()) failed_to_record(folder.error());
    auto started =
        engine::Recording::start(trace, job->record ? trace::JsonlLogOptions() : options_.log,
                                 session, model_.manifest, job->request, job->prompt_text);
    if (started.ok())
      recording.emplace(*std::move(started)).attach(job->request);
    else
      failed_to_record(started.error());
    if (end.problem) return end;
  }

  std::vector<JobToken> waiting;  // for the rest of a character, or of what may be a stop sequence
  int64_t count = 0;
  const auto send = [&] {
    for (JobToken& token : waiting)
      tell(job, [this, job, token = std::move(token)] { take(job, token); });
    waiting.clear();
  };
  const auto on_token = [&](const engine::Emitted& emitted) {
    if (emitted.id >= 0 && !emitted.ends) {
      JobToken token{count++, emitted.id, std::string(emitted.text), std::nullopt, Clock::now()};
      if (emitted.logprobs != nullptr) token.logprobs = *emitted.logprobs;
      waiting.push_back(std::move(token));
    } else if (!emitted.text.empty()) {
      LS_CHECK(!waiting.empty());  // its token was held back with it
      waiting.back().text += emitted.text;
    }
    if (!emitted.held) send();
    if (!hold_memory_reserve()) throw std::bad_alloc();
    if (options_.probe) options_.probe(*job, count);
  };
  if (options_.probe) options_.probe(*job, 0);
  const Result<engine::Outcome> outcome = session.generate(job->request, on_token, &job->cancel);
  send();
  if (recording)
    if (const auto written = recording->finish(
            job->request.prompt, outcome.ok() ? outcome->tokens : std::vector<engine::TokenId>(),
            outcome.ok() && outcome->reason != engine::StopReason::kCancelled);
        !written.ok())
      failed_to_record(written.error());
  if (!outcome.ok()) end.problem = problem_of(outcome.error());
  if (end.problem) return end;
  end.reason = outcome->reason;
  end.tokens_out = count;
  end.reused = outcome->reused;
  end.prompt_seconds = outcome->prompt_seconds;
  end.decode_seconds = outcome->decode_seconds;
  return end;
}

Result<std::string> Worker::trace_folder(const std::string& id) const {
  // An id may come again once its job has ended; a trace is never written over.
  const fs::path base = fs::path(options_.trace.folder) / safe_name(id);
  for (int number = 1; number < 1'000'000; ++number) {
    const fs::path folder =
        number == 1 ? base : fs::path(fmt::format("{}~{}", base.string(), number));
    std::error_code failed;
    if (fs::create_directory(folder, failed)) {
      if (options_.trace.durable) LS_TRY_VOID(sync_folder(options_.trace.folder));
      return folder.string();
    }
    if (failed) return error("{}: cannot create the folder: {}", folder.string(), failed.message());
  }
  return error("{}: too many traces of this name", base.string());
}

}  // namespace lockstep::server
