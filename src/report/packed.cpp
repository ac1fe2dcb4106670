#include "report/packed.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <openssl/evp.h>
#include <zlib.h>

#include "base/check.h"

namespace lockstep::report {

uint16_t size_code(double value) {
  if (!std::isfinite(value)) return kInfiniteCode;
  if (value <= 0) return kZeroCode;
  constexpr double kOne = 16384;  // code of 1
  return static_cast<uint16_t>(
      std::clamp(std::round(16 * std::log2(value)) + kOne, kZeroCode + 1.0, kInfiniteCode - 1.0));
}

std::string base64(std::span<const std::byte> bytes) {
  std::string out;
  // The library counts in int, and ends what it writes with a zero.
  constexpr size_t kAtOnce = 3 << 20;
  for (size_t first = 0; first < bytes.size(); first += kAtOnce) {
    const auto some = bytes.subspan(first, std::min(kAtOnce, bytes.size() - first));
    std::vector<unsigned char> text((some.size() + 2) / 3 * 4 + 1);
    const int length =
        EVP_EncodeBlock(text.data(), reinterpret_cast<const unsigned char*>(some.data()),
                        static_cast<int>(some.size()));
    out.append(text.begin(), text.begin() + length);
  }
  return out;
}

std::string packed(std::span<const uint16_t> codes) {
  std::vector<Bytef> bytes;
  bytes.reserve(2 * codes.size());
  for (const uint16_t code : codes) {
    bytes.push_back(static_cast<Bytef>(code & 255));
    bytes.push_back(static_cast<Bytef>(code >> 8));
  }
  uLongf size = compressBound(bytes.size());
  std::vector<std::byte> out(size);
  const int failed = compress2(reinterpret_cast<Bytef*>(out.data()), &size, bytes.data(),
                               bytes.size(), Z_DEFAULT_COMPRESSION);
  LS_CHECK(failed == Z_OK);
  return base64({out.data(), size});
}

}  // namespace lockstep::report
