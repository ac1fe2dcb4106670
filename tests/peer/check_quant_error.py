#!/usr/bin/env python3
"""Measures the encoders' error beside llama.cpp's: root mean square, same rows, both decoded by gguf.

Needs gguf, numpy and llama-cpp-python (its ggml library exports ggml_quantize_chunk). The rows are
those of src/quant/encode_test.cpp, made by the same generator, so the column `llama.cpp` is where the
figures of that test come from. Ours go through `lockstep quantize --pure`.

    tests/peer/check_quant_error.py [--lockstep build/lockstep] [--fresh SEED]

Exit status 1 where ours is more than 5% worse anywhere.
"""
import argparse
import ctypes
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np

# Format: the recipe whose base format it is.
FORMATS = {"Q4_0": "Q4_0", "Q4_1": "Q4_1", "Q5_0": "Q5_0", "Q5_1": "Q5_1", "Q8_0": "Q8_0",
           "Q2_K": "Q2_K", "Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M", "Q6_K": "Q6_K",
           "MXFP4": "MXFP4"}
ROWS, WIDTH = 32, 2048


def uniforms(seed, n):
    """The first n numbers of lockstep::Random(seed).uniform()."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def gaussians(seed, n):
    u = uniforms(seed, 2 * n)
    return np.sqrt(-2 * np.log(1 - u[0::2])) * np.cos(2 * np.pi * u[1::2])


def make_rows(seed):
    n = ROWS * WIDTH
    centred = uniforms(seed + 1, n) - 0.5
    g = gaussians(seed + 2, 4 * n).reshape(n, 4)
    return {
        "gauss": gaussians(seed, n),
        "laplace": -np.sign(centred) * np.log(1 - 2 * np.abs(centred)),
        "student3": g[:, 0] / np.sqrt((g[:, 1:] ** 2).sum(axis=1) / 3),
    }


def llama_encode(rows, kind):
    import llama_cpp
    library = Path(llama_cpp.__file__).parent / "lib" / "libggml-base.so"
    quantize = ctypes.CDLL(str(library)).ggml_quantize_chunk
    quantize.restype = ctypes.c_size_t
    quantize.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_int64] * 3 + [
        ctypes.c_void_p]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    out = np.zeros((ROWS, WIDTH // block * size), np.uint8)
    quantize(int(kind), rows.ctypes.data, out.ctypes.data, 0, ROWS, WIDTH, None)
    return out


def our_encode(program, folder, data, recipe):
    """Quantizes all rows in one file; returns the encoded tensors by name."""
    source, target = folder / "source.gguf", folder / f"{recipe}.gguf"
    if not source.exists():
        writer = gguf.GGUFWriter(source, "llama")
        for name, rows in data.items():
            writer.add_tensor(f"{name}.weight", rows)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    subprocess.run([program, "quantize", "--pure", source, target, recipe], check=True,
                   stdout=subprocess.DEVNULL)
    return {t.name: (t.tensor_type, np.array(t.data)) for t in gguf.GGUFReader(target).tensors}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lockstep", default="build/lockstep")
    parser.add_argument("--fresh", type=int, default=100, help="seed of the rows")
    arguments = parser.parse_args()
    data = {name: rows.astype(np.float32).reshape(ROWS, WIDTH)
            for name, rows in make_rows(arguments.fresh).items()}
    worst = 0
    print(f"{'format':8}{'rows':10}{'llama.cpp':>12}{'ours':>12}{'ratio':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for name, recipe in FORMATS.items():
            kind = gguf.GGMLQuantizationType[name]
            ours = our_encode(arguments.lockstep, Path(folder), data, recipe)
            for rows_name, rows in data.items():
                our_kind, encoded = ours[f"{rows_name}.weight"]
                assert our_kind == kind, (our_kind, kind)
                errors = [
                    np.sqrt(np.mean((gguf.quants.dequantize(e, kind).astype(np.float64) - rows)**2))
                    for e in (llama_encode(rows, kind), encoded)]
                ratio = errors[1] / errors[0]
                worst = max(worst, ratio)
                print(f"{name:8}{rows_name:10}{errors[0]:12.7f}{errors[1]:12.7f}{ratio:8.4f}")
    print(f"worst ratio {worst:.4f}")
    return int(worst > 1.05)


if __name__ == "__main__":
    sys.exit(main())
