#include "server/transport.h"

#include <algorithm>

#include "server/connection.h"

namespace lockstep::server {

std::string client_of(const boost::asio::ip::address& address) {
  if (!address.is_v6() || address.to_v6().is_v4_mapped() || address.is_loopback())
    return address.to_string();
  auto bytes = address.to_v6().to_bytes();
  std::fill(bytes.begin() + 8, bytes.end(), uint8_t{0});
  return boost::asio::ip::address_v6(bytes).to_string() + "/64";
}

bool Transport::close_one(const std::function<bool(const Connection&)>& eligible) {
  // What a job has computed goes last: nobody can get it back.
  bool (*const kinds[])(const Connection&) = {
      [](const Connection& c) { return c.silent(); },
      [](const Connection& c) { return !c.has_job() && !c.has_jobs_answer(); },
      [](const Connection& c) { return !c.has_job(); }};
  for (const auto kind : kinds) {
    const auto found = std::ranges::find_if(
        connections, [&](const Connection* c) { return kind(*c) && eligible(*c); });
    if (found == connections.end()) continue;
    (*found)->drop();
    return true;
  }
  return false;
}

bool Transport::make_room(const std::string& client) {
  const auto mine = of_client.find(client);
  if (mine != of_client.end() && mine->second >= most_of_a_client())
    return close_one([&](const Connection& c) { return c.client() == client; });
  return connections.size() < most_connections || close_one([](const Connection&) { return true; });
}

void Transport::bound_bodies() {
  while (bodies_held > all_bodies_bytes) {
    const auto holds = [](const Connection* c) { return c->body_held() > 0; };
    const auto found = std::ranges::find_if(connections, holds);
    if (found == connections.end()) return;
    (*found)->drop();
  }
}

bool Transport::has_too_much(const Connection& stream) const {
  return unread_held > all_unread_bytes ||
         (stream.has_job() && stream.unread_held() > unread_bytes);
}

void Transport::bound_unread(Connection& stream) {
  const auto less = [](const Connection* a, const Connection* b) {
    return a->unread_held() < b->unread_held();
  };
  while (has_too_much(stream) && !connections.empty()) {
    Connection& largest =
        unread_held > all_unread_bytes ? **std::ranges::max_element(connections, less) : stream;
    ++metrics.answers_given_up;
    log.note(fmt::format("{}: gave up an answer: {} bytes were not read, and {} of all answers",
                         largest.client(), largest.unread_held(), unread_held));
    largest.drop();
  }
}

bool Transport::answering() const {
  return std::ranges::any_of(connections, [](const Connection* c) { return c->answering(); });
}

}  // namespace lockstep::server
