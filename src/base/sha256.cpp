#include "base/sha256.h"

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>
#include <openssl/evp.h>

#include "base/check.h"

namespace lockstep {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  State() {
    LS_CHECK(context != nullptr && EVP_DigestInit_ex(context, EVP_sha256(), nullptr) == 1,
             "OpenSSL has no SHA-256");
  }
  ~State() { EVP_MD_CTX_free(context); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Sha256::Sha256() : state_(std::make_unique<State>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::add(std::span<const std::byte> bytes) {
  LS_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1, "SHA-256 failed");
}

std::string Sha256::finish() {
  std::array<unsigned char, 32> digest{};
  unsigned int size = 0;
  LS_CHECK(EVP_DigestFinal_ex(state_->context, digest.data(), &size) == 1 && size == digest.size(),
           "SHA-256 failed");
  std::string text;
  for (const unsigned char byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

bool is_sha256(const std::string& text) {
  return text.size() == 64 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isxdigit(c); });
}

}  // namespace lockstep
