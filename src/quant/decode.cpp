#include "quant/decode.h"

#include <cstring>

#include "base/check.h"
#include "quant/blocks.h"
#include "quant/decode_wide.h"

namespace lockstep::quant {

void decode(Format format, const std::byte* source, int64_t values, float* out) {
  visit_format(format, [&]<class Block>(Block block) {
    LS_CHECK(values % Block::kValues == 0, "{} values in blocks of {}", values, Block::kValues);
    if (const DecodeBlocks wide = wide_decode(format)) {
      wide(source, values / Block::kValues, out);
      return;
    }
    // `source` may be unaligned. Single numbers go many at a time, in wide registers.
    constexpr int64_t kTogether = Block::kValues == 1 ? 64 : 1;
    Block blocks[kTogether];
    int64_t done = 0;
    for (; done + kTogether * Block::kValues <= values; done += kTogether * Block::kValues) {
      std::memcpy(blocks, source, sizeof blocks);
      for (int64_t i = 0; i < kTogether; ++i) decode(blocks[i], out + done + i * Block::kValues);
      source += sizeof blocks;
    }
    for (; done < values; done += Block::kValues) {
      std::memcpy(&block, source, sizeof block);
      decode(block, out + done);
      source += sizeof block;
    }
  });
}

}  // namespace lockstep::quant
