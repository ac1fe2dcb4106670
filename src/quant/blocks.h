// The layout of every format's block, and its one decoding, shared by CPU and CUDA code.
// A format is a struct with kFormat and kValues, a decode() below it, and a line in visit_format():
// everything that handles formats generically follows from these.
//
// The results are bit-for-bit those of the `gguf` Python package, so the order of operations
// matters: scale products first, then times the code, then plus or minus the offset, each rounded.
#pragma once

#include "quant/small_blocks.h"
#include "quant/superblocks.h"

namespace lockstep::quant {

// The one place that turns a Format into its block type: returns visitor(Block{}). The format must
// be decodable.
template <class Visitor>
decltype(auto) visit_format(Format format, Visitor&& visitor) {
  switch (format) {
    case Format::kF32:
      return visitor(BlockF32{});
    case Format::kF16:
      return visitor(BlockF16{});
    case Format::kBF16:
      return visitor(BlockBF16{});
    case Format::kQ4_0:
      return visitor(BlockQ4_0{});
    case Format::kQ4_1:
      return visitor(BlockQ4_1{});
    case Format::kQ5_0:
      return visitor(BlockQ5_0{});
    case Format::kQ5_1:
      return visitor(BlockQ5_1{});
    case Format::kQ8_0:
      return visitor(BlockQ8_0{});
    case Format::kQ2_K:
      return visitor(BlockQ2_K{});
    case Format::kQ3_K:
      return visitor(BlockQ3_K{});
    case Format::kQ4_K:
      return visitor(BlockQ4_K{});
    case Format::kQ5_K:
      return visitor(BlockQ5_K{});
    case Format::kQ6_K:
      return visitor(BlockQ6_K{});
    case Format::kIQ4_NL:
      return visitor(BlockIQ4_NL{});
    case Format::kIQ4_XS:
      return visitor(BlockIQ4_XS{});
    case Format::kMXFP4:
      return visitor(BlockMXFP4{});
  }
  not_decodable(format);
}

}  // namespace lockstep::quant
