// The HTTP worker when memory is refused, at every point of a request in turn: that request may
// fail, the worker does not.
#include <string_view>
#include <thread>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/temporary_folder.h"
#include "faults/inject.h"
#include "server/server.h"

namespace lockstep {
namespace {

using faults::Refuse;

// A client that takes no memory, which would be refused as well.
class Client {
 public:
  explicit Client(uint16_t port) : port_(port) {}

  // What comes back until the connection ends. Empty: nothing did.
  std::string_view ask(std::string_view request) {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_port = htons(port_);
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    constexpr timeval kPatience{20, 0};
    ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
    size_t size = 0;
    timed_out_ = false;
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&place), sizeof place) == 0 &&
        ::send(socket, request.data(), request.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(request.size()))
      while (size < sizeof answer_) {
        const ssize_t got = ::recv(socket, answer_ + size, sizeof answer_ - size, 0);
        timed_out_ = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
        if (got <= 0) break;
        size += static_cast<size_t>(got);
      }
    ::close(socket);
    return {answer_, size};
  }
  bool timed_out() const { return timed_out_; }

 private:
  uint16_t port_;
  bool timed_out_ = false;
  char answer_[1 << 20];
};

std::string post(std::string_view path, std::string_view body) {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{}",
      path, body.size(), body);
}

class WorkerWithoutMemory : public testing::Test {
 protected:
  void SetUp() override {
    auto loaded = server::ServedModel::load(LOCKSTEP_MODELS "/haiku-granite-q4_k_m.gguf",
                                            **exec::find_device("cpu"), {.threads = 1}, 64);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    model_ = *std::move(loaded);
    auto folder = TemporaryFolder::create();
    ASSERT_TRUE(folder.ok());
    folder_.emplace(*std::move(folder));
    options_.port = 0;
    options_.worker.trace.folder = folder_->path().string();
  }

  std::string_view health() {
    return client_->ask("GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  }

  // The request, with the `number`-th piece of memory refused, for each number.
  void refuse_in_turn(const std::string& request, Refuse what) {
    if (HasFatalFailure()) return;
    const std::string after =
        post("/execute", R"({"job_id": "after", "prompt": "rain", "max_tokens": 2})");
    int64_t failed = 0;
    for (int64_t number = 1;; number = faults::next_point(number)) {
      faults::refuse_memory(number, what);
      const std::string_view answer = client_->ask(request);
      const bool refused = faults::grant();
      ASSERT_FALSE(client_->timed_out()) << request << " at " << number << ": " << answer;
      if (!answer.empty()) {
        ASSERT_TRUE(answer.starts_with("HTTP/1.1 ")) << number << ": " << answer;
      }
      failed += answer.find(" 200 OK") == answer.npos || answer.find("rror") != answer.npos ? 1 : 0;
      ASSERT_TRUE(health().starts_with("HTTP/1.1 200 OK")) << request << " at " << number;
      const std::string_view next = client_->ask(after);
      ASSERT_NE(next.find("event: end"), next.npos) << request << " at " << number << ": " << next;
      if (!refused) break;
    }
    EXPECT_GT(failed, 0) << request;
  }

  void run(const std::function<void()>& test) {
    std::thread server([&] {
      const auto served = server::serve(*model_, options_, [&](const std::string& url) {
        port_ = static_cast<uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)));
      });
      EXPECT_TRUE(served.ok()) << served.error().message;
    });
    while (port_ == 0) std::this_thread::yield();
    client_ = std::make_unique<Client>(port_.load());
    test();
    client_->ask(post("/shutdown", ""));
    server.join();
  }

  std::unique_ptr<server::ServedModel> model_;
  std::optional<TemporaryFolder> folder_;
  server::ServerOptions options_;
  std::atomic<uint16_t> port_{0};
  std::unique_ptr<Client> client_;
};

const std::pair<const char*, const char*> kRequests[] = {
    {"/execute", R"({"job_id": "a", "prompt": "Write a haiku", "max_tokens": 3})"},
    {"/v1/chat/completions", R"({"messages": [{"role": "user", "content": "rain"}],
       "max_tokens": 3, "stream": true, "logprobs": true, "top_logprobs": 20})"},
    {"/v1/completions", R"({"prompt": [1, 2, 3], "max_tokens": 3, "logprobs": 5})"},
    {"/v1/completions", R"({"prompt": "rain", "unknown": [[[{}]]]})"},
    {"/cancel", R"({"job_id": "nobody"})"},
};

TEST_F(WorkerWithoutMemory, LargePiecesAreRefused) {
  run([&] {
    for (const auto& [path, body] : kRequests) refuse_in_turn(post(path, body), Refuse::kLargeFrom);
  });
}

TEST_F(WorkerWithoutMemory, OnePieceIsRefused) {
  run([&] {
    faults::grant_json(true);
    for (const auto& [path, body] : kRequests) refuse_in_turn(post(path, body), Refuse::kOne);
    faults::grant_json(false);
  });
}

}  // namespace
}  // namespace lockstep
