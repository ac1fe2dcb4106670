// Which names a client may call this server by. A page in a browser can let its own name point to
// this machine (DNS rebinding) and would then count as a page of this server; its requests still
// carry that name in `Host`.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep::server {

// The name or address of a Host field: lower case, without port, brackets and last dot. Nothing
// where the field is malformed.
std::optional<std::string> host_name(std::string_view field);

class Hosts {
 public:
  Hosts() = default;  // allows all

  // `listens_on`: what --host says; `loopback`: that is an address of this machine only. There,
  // only names and addresses of the loopback, `listens_on` and `more` are allowed. Elsewhere the
  // names are nobody's business unless `more` says which they are; an address needs no permission,
  // since no page can let it point anywhere else.
  static Result<Hosts> create(const std::string& listens_on, bool loopback,
                              const std::vector<std::string>& more);

  bool allows(std::string_view field) const;

 private:
  bool all_ = true;
  bool all_addresses_ = true;
  std::set<std::string> names_;
};

}  // namespace lockstep::server
