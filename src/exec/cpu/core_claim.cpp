#include "exec/cpu/core_claim.h"

#include <cstddef>
#include <cstdio>
#include <utility>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace lockstep::exec::cpu {

// The name of a socket that begins with a zero is no file: it needs no folder, is free again when
// its process ends, however that ends, and only one can have it.
CoreClaim::CoreClaim(int core) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const int length =
      std::snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "lockstep/core/%d", core);
  socket_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket_ < 0) return;
  const auto size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
  if (::bind(socket_, reinterpret_cast<const sockaddr*>(&name), size) != 0)
    ::close(std::exchange(socket_, -1));
}

CoreClaim::CoreClaim(CoreClaim&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}

CoreClaim& CoreClaim::operator=(CoreClaim&& other) noexcept {
  std::swap(socket_, other.socket_);
  return *this;
}

CoreClaim::~CoreClaim() {
  if (socket_ >= 0) ::close(socket_);
}

}  // namespace lockstep::exec::cpu
