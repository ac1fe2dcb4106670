// What all connections share, and how many there may be.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>

#include <boost/asio/ip/address.hpp>

#include "server/hosts.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/responder.h"

namespace lockstep::server {

class Connection;

// Silent connections cost nothing to open, so they never keep anybody out: a new one takes the
// place of the one that has been silent for longest. Only those that a job answers keep theirs, and
// there are fewer jobs than places.
struct Transport {
  // Answers a request, now or later.
  std::function<void(const HttpRequest&, const std::shared_ptr<Responder>&)> handle;
  Log& log;
  Metrics& metrics;
  std::string api_key;  // empty: none is asked for
  Hosts hosts = {};

  uint32_t header_bytes = 16 << 10;
  uint64_t body_bytes = 1 << 20;
  uint64_t all_bodies_bytes = 64 << 20;   // that have arrived in part
  uint64_t unread_bytes = 16 << 20;       // of a stream that its client does not read
  uint64_t all_unread_bytes = 256 << 20;  // of all answers together
  std::chrono::milliseconds idle_time{std::chrono::minutes(5)};      // between requests
  std::chrono::milliseconds request_time{std::chrono::seconds(10)};  // for one to arrive
  std::chrono::milliseconds stall_time{std::chrono::minutes(2)};     // without a byte taken
  std::chrono::milliseconds linger_time{std::chrono::seconds(2)};  // for a client to read the last
  size_t most_connections = 4096;
  size_t most_of_a_client() const { return (most_connections + 1) / 2; }

  std::list<Connection*> connections = {};  // whose last news are oldest comes first
  std::map<std::string, size_t> of_client = {};
  uint64_t bodies_held = 0;
  uint64_t unread_held = 0;

  // Closes a connection, where that is needed for one more of this client. False: none can be.
  bool make_room(const std::string& client);
  // Closes what waits for the rest of a body until all bodies together are within bounds.
  void bound_bodies();
  // Whether this stream, or all answers together, wait for clients that do not read.
  bool has_too_much(const Connection& stream) const;
  // Gives up this stream, or the largest answers, until that is over.
  void bound_unread(Connection& stream);
  // Closes one that `eligible` allows and no job answers: a silent one before others.
  bool close_one(const std::function<bool(const Connection&)>& eligible);
  bool answering() const;  // somebody waits for an answer, or for the rest of one
};

// Who counts as one client: an address; of IPv6 the network, since one client has all of it.
std::string client_of(const boost::asio::ip::address& address);

}  // namespace lockstep::server
