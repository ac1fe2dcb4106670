#include "server/hosts.h"

#include <algorithm>

#include <boost/asio/ip/address.hpp>

#include "base/lower.h"
#include "base/text.h"

namespace lockstep::server {
namespace {

std::optional<boost::asio::ip::address> as_address(const std::string& name) {
  boost::system::error_code failed;
  const auto address = boost::asio::ip::make_address(name, failed);
  if (failed) return std::nullopt;
  return address;
}

bool is_loopback(const boost::asio::ip::address& address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    return boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, address.to_v6())
        .is_loopback();
  return address.is_loopback();
}

bool is_port(std::string_view text) {
  return text.size() <= 5 && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::optional<std::string> host_name(std::string_view field) {
  std::string_view name = field;
  std::string_view rest;
  if (name.starts_with('[')) {
    const size_t close = name.find(']');
    if (close == name.npos) return std::nullopt;
    rest = name.substr(close + 1);
    name = name.substr(1, close - 1);
    if (name.find(':') == name.npos) return std::nullopt;
  } else if (const size_t colon = name.find(':'); colon != name.npos) {
    rest = name.substr(colon);
    name = name.substr(0, colon);
  }
  if (!rest.empty() && (rest[0] != ':' || !is_port(rest.substr(1)))) return std::nullopt;
  if (name.ends_with('.')) name.remove_suffix(1);
  const auto odd = [](char c) { return c <= ' ' || c == '/' || c == '@' || c == ',' || c == 0x7F; };
  if (name.empty() || std::ranges::any_of(name, odd)) return std::nullopt;
  return ascii_lower(name);
}

Result<Hosts> Hosts::create(const std::string& listens_on, bool loopback,
                            const std::vector<std::string>& more) {
  Hosts hosts;
  hosts.all_ = !loopback && more.empty();
  hosts.all_addresses_ = !loopback;
  hosts.names_ = {"localhost", ascii_lower(listens_on)};
  for (const std::string& given : more) {
    const bool bare = as_address(given).has_value();  // an IPv6 address, without its brackets
    const std::optional<std::string> name = bare ? ascii_lower(given) : host_name(given);
    const bool has_port = !bare && !given.starts_with('[') && given.find(':') != given.npos;
    if (!name || has_port)
      return error("--allow-host {}: expected the name or address of a host, without a port",
                   printable(given, 200));
    hosts.names_.insert(*name);
  }
  return hosts;
}

bool Hosts::allows(std::string_view field) const {
  if (all_) return true;
  const std::optional<std::string> name = host_name(field);
  if (!name) return false;
  if (names_.contains(*name)) return true;
  const auto address = as_address(*name);
  return address && (all_addresses_ || is_loopback(*address));
}

}  // namespace lockstep::server
