// The queue of jobs, the thread that prepares them and the thread that computes them, each one at a
// time.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include <boost/asio/io_context.hpp>

#include "server/job.h"
#include "server/metrics.h"
#include "server/served_model.h"
#include "trace/jsonl_logger.h"
#include "trace/recorder.h"

namespace lockstep::server {

struct WorkerOptions {
  int64_t queue = 64;          // jobs that may wait
  trace::RecordOptions trace;  // `folder`: where each job's trace gets a folder; empty: no traces
  trace::JsonlLogOptions log;
  // For tests: called before a job is prepared (-1), computed (0), and after each of its tokens.
  std::function<void(const Job&, int64_t tokens)> probe = {};
};

// A job is first prepared: templates and tokenizers take their time with what a client sent, so
// they have a thread of their own. Everything but the loops of the two threads runs on the network
// thread, so that what clients see has one order: a job that was ended (by its client, by /cancel,
// by a stop) says nothing more, however long the computing takes to notice.
class Worker {
 public:
  Worker(boost::asio::io_context& network, ServedModel& model, WorkerOptions options,
         Metrics& metrics);
  ~Worker();  // cancels what is under way and waits for it

  // Takes the job, or says why not: QUEUE_FULL, DUPLICATE_JOB, SHUTTING_DOWN. What is wrong with
  // its fields the listener is told.
  std::optional<ApiError> submit(const std::shared_ptr<Job>& job);

  // Ends the job of that name, if there is one.
  void cancel(const std::string& id);
  // The same for a job whose client went away.
  void abandon(const std::shared_ptr<Job>& job);

  // No new jobs; those that wait end now. `done` is called when nothing is computed any more.
  void stop(std::function<void()> done);
  // Ends the active job too.
  void end_active();

  std::function<void(const std::string&)> on_problem;  // what an operator should know
  // A job has ended, well or not; `ended`: the model itself ended its text.
  std::function<void(const Job&, bool ended)> on_end;

  bool stopping() const { return stopping_; }
  int64_t queue_length() const;
  std::string active() const;  // the active job's id; empty: none

 private:
  struct Queue {
    std::condition_variable wake;
    std::deque<std::shared_ptr<Job>> jobs;
  };

  void prepare();  // a thread
  void compute();  // a thread
  std::shared_ptr<Job> next(Queue& queue);
  void add(Queue& queue, const std::shared_ptr<Job>& job);
  JobEnd run(const std::shared_ptr<Job>& job);
  Result<std::string> trace_folder(const std::string& id) const;

  // Has the network thread do it. What it throws there ends the job.
  void tell(const std::shared_ptr<Job>& job, std::function<void()> news);
  void prepared(const std::shared_ptr<Job>& job, const std::optional<ApiError>& problem);
  void began(const std::shared_ptr<Job>& job);
  void take(const std::shared_ptr<Job>& job, const JobToken& token);
  void over(const std::shared_ptr<Job>& job, const JobEnd& end);
  void end(const std::shared_ptr<Job>& job, const JobEnd& end, const char* outcome) noexcept;
  void end_early(const std::shared_ptr<Job>& job, const ApiError& problem, const char* outcome);
  void finish();  // the threads

  boost::asio::io_context& network_;
  ServedModel& model_;
  const WorkerOptions options_;
  Metrics& metrics_;

  std::map<std::string, std::shared_ptr<Job>> jobs_;  // waiting and active, by id
  std::shared_ptr<Job> computing_;                    // until the thread is through with it
  int64_t preparing_ = 0;                             // of jobs_, those that are not prepared yet
  bool stopping_ = false;
  std::function<void()> stopped_;

  mutable std::mutex mutex_;  // of what follows
  Queue unprepared_, queue_;
  bool closed_ = false;

  std::thread preparer_, computer_;  // last: they start when all else is there
};

// A folder name for any job id: letters, digits, '-', '_' and inner '.' stay, other bytes become
// %XX; what is too long is cut and gets a hash.
std::string safe_name(std::string_view id);

}  // namespace lockstep::server
