#include "models/certificates.h"

#include <array>
#include <cstdlib>
#include <filesystem>

namespace lockstep::models {
namespace {

constexpr std::array kPlaces = {
    "/etc/ssl/certs/ca-certificates.crt",                 // Debian, Ubuntu, Arch, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",                   // Fedora, Red Hat
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  // newer ones of these
    "/etc/ssl/ca-bundle.pem",                             // SUSE
    "/etc/ssl/cert.pem",
};

bool is_there(const char* path) {
  std::error_code failed;
  return path != nullptr && *path != '\0' && std::filesystem::is_regular_file(path, failed);
}

}  // namespace

std::string find_certificates(const char* usual, std::span<const char* const> places) {
  const char* named = std::getenv("SSL_CERT_FILE");
  if (named != nullptr && *named != '\0') return named;
  if (is_there(usual)) return usual;
  for (const char* place : places)
    if (is_there(place)) return place;
  return {};
}

std::string find_certificates(const char* usual) {
  return find_certificates(usual, kPlaces);
}

}  // namespace lockstep::models
