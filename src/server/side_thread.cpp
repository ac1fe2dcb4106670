#include "server/side_thread.h"

#include <chrono>

#include <boost/asio/post.hpp>
#include <sys/resource.h>

#include "base/no_throw.h"

namespace lockstep::server {
namespace {

constexpr std::chrono::milliseconds kPauseWithoutMemory{10};
constexpr int kNiceness = 10;

}  // namespace

SideThread::SideThread(boost::asio::io_context& network, bool background)
    : network_(network), thread_([this, background] { run(background); }) {}

SideThread::~SideThread() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void SideThread::add(std::function<void()> work, std::function<void(bool failed)> done) {
  auto task = std::make_shared<Task>(Task{std::move(work), std::move(done)});
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  wake_.notify_all();
}

size_t SideThread::waiting() const {
  const std::lock_guard lock(mutex_);
  return tasks_.size();
}

void SideThread::run(bool background) {
  // In Linux this is of the thread alone; programs that it starts inherit it.
  if (background) static_cast<void>(::setpriority(PRIO_PROCESS, 0, kNiceness));
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return closed_ || !tasks_.empty(); });
    if (closed_) return;
    const std::shared_ptr<Task> task = tasks_.front();
    tasks_.pop_front();
    lock.unlock();
    const bool failed = !no_throw([&]() -> Result<void> {
                           task->work();
                           return {};
                         }).ok();
    while (!no_throw([&]() -> Result<void> {
              // What `done` holds is the network thread's, and ends there.
              boost::asio::post(network_, [task, failed] {
                const std::function<void(bool)> done = std::move(task->done);
                done(failed);
              });
              return {};
            }).ok())
      std::this_thread::sleep_for(kPauseWithoutMemory);
    lock.lock();
  }
}

}  // namespace lockstep::server
