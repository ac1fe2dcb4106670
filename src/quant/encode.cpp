#include "quant/encode.h"

#include <cstring>

#include "base/check.h"
#include "quant/encode_block.h"

namespace lockstep::quant {
namespace {

template <class Block>
constexpr bool kHasEncoder = requires(const float* x, Block& block) {
  encode_block(x, x, block);
};

}  // namespace

bool encodable(Format format) {
  if (!info(format).decodable) return false;
  return visit_format(format, []<class Block>(Block) { return kHasEncoder<Block>; });
}

void encode(Format format, const float* source, int64_t values, std::byte* out,
            const float* weights) {
  visit_format(format, [&]<class Block>(Block block) {
    LS_CHECK(values % Block::kValues == 0, "{} values in blocks of {}", values, Block::kValues);
    if constexpr (kHasEncoder<Block>) {
      for (int64_t done = 0; done < values; done += Block::kValues) {
        encode_block(source + done, weights != nullptr ? weights + done : nullptr, block);
        std::memcpy(out, &block, sizeof block);  // `out` may be unaligned
        out += sizeof block;
      }
    } else {
      LS_CHECK(kHasEncoder<Block>, "{} has no encoder", info(format).name);
    }
  });
}

}  // namespace lockstep::quant
