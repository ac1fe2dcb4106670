// Work that may wait, for files or other programs: on a thread of its own, since nothing on the
// network thread waits.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include <boost/asio/io_context.hpp>

namespace lockstep::server {

class SideThread {
 public:
  // `background`: the thread, and what it starts, gives way to all others.
  explicit SideThread(boost::asio::io_context& network, bool background = false);
  ~SideThread();  // waits for what is under way; what waits is not done

  // `work` there, in the order in which it came, then `done` on the network thread.
  // `failed`: it threw, for want of memory.
  void add(std::function<void()> work, std::function<void(bool failed)> done);
  size_t waiting() const;

 private:
  struct Task {
    std::function<void()> work;
    std::function<void(bool failed)> done;
  };
  void run(bool background);  // the thread

  boost::asio::io_context& network_;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Task>> tasks_;
  bool closed_ = false;

  std::thread thread_;  // last: it starts when all else is there
};

}  // namespace lockstep::server
