// The file of the certificates that https trusts.
#pragma once

#include <span>
#include <string>

namespace lockstep::models {

// What the variable SSL_CERT_FILE names, else `usual` where this file is there, else the first of
// `places` that is there. "": none.
std::string find_certificates(const char* usual, std::span<const char* const> places);

// With the places of the distributions: a program from elsewhere knows only those of its own.
std::string find_certificates(const char* usual);

}  // namespace lockstep::models
