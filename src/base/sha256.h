// SHA-256, from OpenSSL's libcrypto: libcurl loads that library anyway, so that the hash adds a
// header package and nothing to install or load; it also uses the processor's SHA instructions.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace lockstep {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void add(std::span<const std::byte> bytes);
  std::string finish();  // 64 lower-case hexadecimal digits; call once

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Whether `text` is 64 hexadecimal digits.
bool is_sha256(const std::string& text);

}  // namespace lockstep
