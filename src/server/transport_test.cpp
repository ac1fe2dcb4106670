#include "server/transport.h"

#include <vector>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <gtest/gtest.h>

#include "server/connection.h"

namespace lockstep::server {
namespace {

using boost::asio::ip::tcp;

// Clients that ask and then read nothing, each with the answer that it waits for.
class UnreadAnswers : public testing::Test {
 protected:
  void SetUp() override {
    transport_.handle = [this](const HttpRequest&, const std::shared_ptr<Responder>& responder) {
      responder->on_gone = [this, index = answers_.size()] { gone_.push_back(index); };
      answers_.push_back(responder);
    };
    transport_.hosts = Hosts::create("127.0.0.1", true, {}).value();
  }

  void add_client() {
    tcp::acceptor acceptor(network_, {boost::asio::ip::address_v4::loopback(), 0});
    clients_.emplace_back(network_);
    clients_.back().connect(acceptor.local_endpoint());
    std::make_shared<Connection>(acceptor.accept(), "client", transport_)->start();
    const std::string request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    boost::asio::write(clients_.back(), boost::asio::buffer(request));
    const size_t before = answers_.size();
    while (answers_.size() == before) network_.run_one();
    answers_.back()->begin_events();
  }

  // More than the system's own buffers take, in pieces.
  void send(size_t index, size_t megabytes) {
    const std::string piece(1 << 20, 'x');
    for (size_t i = 0; i < megabytes; ++i) answers_[index]->send(piece);
    network_.poll();
  }

  Metrics metrics_;
  Log log_{Log::Format::kText, metrics_};
  Transport transport_{.handle = {}, .log = log_, .metrics = metrics_, .api_key = ""};
  std::vector<size_t> gone_;
  boost::asio::io_context network_;
  std::vector<std::shared_ptr<Responder>> answers_;  // that go before the network does
  std::vector<tcp::socket> clients_;
};

TEST_F(UnreadAnswers, TheLargestGivesWay) {
  for (int i = 0; i < 4; ++i) add_client();
  send(0, 12);
  send(1, 15);
  send(2, 8);
  EXPECT_TRUE(gone_.empty());
  EXPECT_GT(transport_.unread_held, uint64_t{8} << 20);  // the system's buffers have the rest
  transport_.all_unread_bytes = transport_.unread_held + (uint64_t{2} << 20);
  for (size_t i = 0; i < 15 && gone_.empty(); ++i) send(3, 1);
  EXPECT_EQ(gone_, std::vector<size_t>{1});
  EXPECT_LE(transport_.unread_held, transport_.all_unread_bytes);
  EXPECT_EQ(metrics_.answers_given_up, 1);
}

TEST_F(UnreadAnswers, AStreamHasItsOwnBound) {
  transport_.unread_bytes = 4 << 20;
  add_client();
  add_client();
  send(1, 3);
  EXPECT_TRUE(gone_.empty());
  send(0, 16);
  EXPECT_EQ(gone_, std::vector<size_t>{0});
  EXPECT_EQ(metrics_.answers_given_up, 1);
  EXPECT_LE(transport_.unread_held, uint64_t{3} << 20);
}

}  // namespace
}  // namespace lockstep::server
