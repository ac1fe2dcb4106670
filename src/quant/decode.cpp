#include "quant/decode.h"

#include <cstring>

#include "base/check.h"
#include "quant/blocks.h"

namespace lockstep::quant {

void decode(Format format, const std::byte* source, int64_t values, float* out) {
  visit_format(format, [&]<class Block>(Block block) {
    LS_CHECK(values % Block::kValues == 0, "{} values in blocks of {}", values, Block::kValues);
    for (int64_t done = 0; done < values; done += Block::kValues) {
      std::memcpy(&block, source, sizeof block);  // `source` may be unaligned
      decode(block, out + done);
      source += sizeof block;
    }
  });
}

}  // namespace lockstep::quant
