// "Judge this answer": its job is computed again, recorded, and held against double precision, one
// at a time. All but the work itself happens on the network thread.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "base/temporary_folder.h"
#include "server/judgement.h"
#include "server/page_thread.h"
#include "server/worker.h"

namespace lockstep::server {

class Judgements {
 public:
  Judgements(boost::asio::io_context& network, Worker& worker, const ServedModel& model,
             Metrics& metrics, JudgeOptions options);
  ~Judgements();  // ends what is under way; recordings and reports go

  // Of every job that ended.
  void keep(const Job& job, bool ended) noexcept;

  // Answers that a job's answer will be judged, or is; or why not.
  HttpResponse begin(const std::string& job_id);
  // GET of a path below /judge/.
  void show(const std::string& path, const std::shared_ptr<Responder>& responder);
  void cancel(const std::string& id);
  void stop();  // nothing is judged any more

  bool possible() const { return options_.disk_bytes > 0; }

 private:
  using Stage = Judgement::Stage;
  using One = std::shared_ptr<Judgement>;

  void next() noexcept;
  void prepare(Judgement& one, const std::vector<std::string>& dropped);  // on the thread
  void record(const One& one);
  void recorded(const One& one, const std::optional<ApiError>& problem);
  void finish(const One& one, std::optional<ApiError> problem) noexcept;
  template <class Step>
  void guard(const One& one, const Step& step) noexcept;
  std::vector<std::string> make_room(const Judgement& one);
  One find(const std::string& id) const;

  boost::asio::io_context& network_;
  Worker& worker_;
  const ServedModel& model_;
  Metrics& metrics_;
  const JudgeOptions options_;
  const int64_t position_bytes_;  // of both recordings
  Answers answers_;
  std::deque<One> all_;  // the newest last; those that wait, the active one, those that are over
  One active_;
  bool stopping_ = false;

  std::optional<TemporaryFolder> root_;  // the thread's
  std::atomic<bool> cancel_{false};      // the active one
  std::unique_ptr<PageThread> reports_;
  std::unique_ptr<SideThread> thread_;  // last: it ends first
};

}  // namespace lockstep::server
