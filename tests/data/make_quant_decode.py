#!/usr/bin/env python3
"""Writes quant_decode.bin: blocks of every format and what the gguf package decodes them to.

Needs the packages gguf and numpy. The file is a sequence of records, little-endian:
u32 format, u32 blocks, the blocks' bytes, their values as f32. NaNs are all written as 7fc00000.
"""
import struct
import sys
from pathlib import Path

import gguf
import numpy as np

FORMATS = ("F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS "
           "MXFP4").split()
# Byte offsets of the halves (scales, offsets) in a block.
HALVES = {"F16": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
          "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
          "IQ4_NL": [0], "IQ4_XS": [0]}
# Zeros, smallest and largest subnormal, one, largest, infinities, a NaN; both signs.
EDGE_HALVES = [0x0000, 0x8000, 0x0001, 0x83ff, 0x3c00, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00]


def edge_and_random_blocks(name, rng, n_random):
    """Bytes [blocks, block_bytes]: whole-byte patterns, edge scales, and random blocks."""
    _, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    blocks = [np.full(size, byte, np.uint8) for byte in (0x00, 0xff, 0x80)]
    for half in EDGE_HALVES if name in HALVES else []:
        block = rng.integers(0, 256, size, dtype=np.uint8)
        for place in HALVES[name]:
            block[place:place + 2] = np.frombuffer(struct.pack("<H", half), np.uint8)
        blocks.append(block)
    if name == "MXFP4":
        for exponent in (0, 1, 2, 127, 252, 253, 254, 255):
            block = rng.integers(0, 256, size, dtype=np.uint8)
            block[0] = exponent
            blocks.append(block)
    blocks += [rng.integers(0, 256, size, dtype=np.uint8) for _ in range(n_random)]
    return np.stack(blocks)


def decoded(name, blocks):
    """f32 values [blocks, block_values] with one spelling of NaN."""
    with np.errstate(all="ignore"):
        values = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[name])
    values = np.array(values, np.float32).reshape(len(blocks), -1)
    values[np.isnan(values)] = np.nan
    return values


def main():
    rng = np.random.default_rng(20240611)
    out = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "quant_decode.bin")
    with out.open("wb") as file:
        for name in FORMATS:
            big = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][0] == 256
            blocks = edge_and_random_blocks(name, rng, 3 if big else 12)
            file.write(struct.pack("<II", gguf.GGMLQuantizationType[name], len(blocks)))
            file.write(blocks.tobytes())
            file.write(decoded(name, blocks).astype("<f4").tobytes())
    print(f"{out}: {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
