// Which cores the threads of this program are bound to, so that two of its processes do not bind
// theirs to the same ones.
#pragma once

namespace lockstep::exec::cpu {

// Held by one at a time on this machine, until it ends or its process does. Never fails: where
// nobody can tell, it is not held.
class CoreClaim {
 public:
  explicit CoreClaim(int core);
  CoreClaim(CoreClaim&& other) noexcept;
  CoreClaim& operator=(CoreClaim&& other) noexcept;
  ~CoreClaim();

  bool held() const { return socket_ >= 0; }

 private:
  int socket_ = -1;
};

}  // namespace lockstep::exec::cpu
