#!/usr/bin/env python3
"""Decoding against the gguf package, bit for bit, on fresh random and edge blocks of every format.

Needs gguf and numpy. The blocks go through a GGUF file and `lockstep tensor`, raw and as JSON.

    tests/peer/check_quant.py [--lockstep build/lockstep] [--seed N]
"""
import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gguf
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))
from make_quant_decode import FORMATS, decoded, edge_and_random_blocks  # noqa: E402


def lockstep(program, *arguments):
    return subprocess.run([program, "tensor", *arguments], check=True, capture_output=True).stdout


def canonical(values):
    """Bits of f32 values, with one spelling of NaN."""
    values = np.array(values, np.float32)
    values[np.isnan(values)] = np.nan
    return values.view(np.uint32)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lockstep", default="build/lockstep")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    rng = np.random.default_rng(arguments.seed)
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "blocks.gguf")
        writer = gguf.GGUFWriter(path, "llama")
        blocks = {}
        for name in FORMATS:
            blocks[name] = edge_and_random_blocks(name, rng, 2000)
            kind = gguf.GGMLQuantizationType[name]
            if name == "F32":
                writer.add_tensor(name, blocks[name].view(np.float32))
            elif name == "F16":
                writer.add_tensor(name, blocks[name].view(np.float16))
            else:
                writer.add_tensor(name, blocks[name], raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        for name in FORMATS:
            expected = decoded(name, blocks[name])
            raw = np.frombuffer(lockstep(arguments.lockstep, "-m", path, name, "--raw"), "<f4")
            wrong = np.flatnonzero(canonical(raw) != canonical(expected.ravel()))
            row = int(rng.integers(len(expected)))
            told = json.loads(lockstep(arguments.lockstep, "-m", path, name, "--row", str(row),
                                       "--json"))
            values = [float(v) for v in told["values"]]
            same = np.array_equal(canonical(values), canonical(expected[row]))
            finite = expected[np.isfinite(expected)]
            counts = (told["type"] == name and told["count"] == expected.shape[1])
            whole = json.loads(lockstep(arguments.lockstep, "-m", path, name, "--json"))["stats"]
            stats = (whole["min"] == finite.min() and whole["max"] == finite.max()
                     and whole["zeros"] == int((expected == 0).sum())
                     and whole["non_finite"] == expected.size - finite.size
                     and np.isclose(whole["mean"], finite.mean(dtype=np.float64), rtol=1e-6,
                                    atol=1e-6 * np.abs(finite).max()))
            good = wrong.size == 0 and same and counts and stats
            failures += not good
            print(f"{name:8}{expected.size:9} values  {'same' if good else 'DIFFERENT'}")
            if wrong.size:
                at = wrong[0]
                print(f"  {wrong.size} differ; first at {at}: {raw[at]}, gguf {expected.flat[at]}")
            elif not good:
                print(f"  row {row}: values {same}, counts {counts}, stats {stats}: {whole}")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
