"""Test-only: reads traces of f32 and f64, alters them and writes them, with the standard library alone (docs/trace-format.md)."""

import array
import dataclasses
import json
import struct
import sys
from pathlib import Path

CODES = {"f64": "d", "f32": "f"}


@dataclasses.dataclass
class Tensor:
    dtype: str
    shape: list
    numbers: array.array

    def copy(self):
        return Tensor(self.dtype, list(self.shape), self.numbers[:])

    def __getitem__(self, place):
        return self.numbers[place[0] * self.shape[1] + place[1]]

    def __setitem__(self, place, number):
        self.numbers[place[0] * self.shape[1] + place[1]] = number


def from_bytes(dtype, data):
    numbers = array.array(CODES[dtype])
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def to_bytes(numbers):
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


@dataclasses.dataclass
class Step:
    first_position: int
    tokens: int
    values: dict  # name to tensor, in order of execution


def read_shard(path):
    data = path.read_bytes()
    start = 8 + struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = (start + offset for offset in entry["data_offsets"])
        dtype = entry["dtype"].lower()
        tensors[name] = Tensor(dtype, entry["shape"], from_bytes(dtype, data[begin:end]))
    return tensors


class Trace:
    def __init__(self, folder):
        folder = Path(folder)
        self.manifest = json.loads((folder / "manifest.json").read_text())
        self.tokens = self.manifest["tokens"]
        self.n_prompt = self.manifest["n_prompt"]
        self.names = [checkpoint["name"] for checkpoint in self.manifest["checkpoints"]]
        shards = {step["shard"]: None for step in self.manifest["steps"]}
        for name in shards:
            shards[name] = read_shard(folder / name)
        self.steps = []
        for step in self.manifest["steps"]:
            tensors = ((name, shards[step["shard"]].get(f"{step['index']}/{name}")) for name in self.names)
            values = {name: tensor for name, tensor in tensors if tensor is not None}
            self.steps.append(Step(step["first_pos"], step["n_tokens"], values))

    def rows(self, name):
        return sum(step.values[name].shape[0] for step in self.steps if name in step.values)


def write(folder, steps, engine, tokens, n_prompt, precision=None, **fields):
    """All steps in one shard. `fields`: others of the manifest."""
    checkpoints, header, data = {}, {}, []
    offset = 0
    for index, step in enumerate(steps):
        for name, tensor in step.values.items():
            heads_first = len(tensor.shape) == 3
            checkpoints[name] = {"name": name, "dtype": tensor.dtype, "width": tensor.shape[0 if heads_first else 1]}
            data.append(to_bytes(tensor.numbers))
            ends = [offset, offset + len(data[-1])]
            offset = ends[1]
            header[f"{index}/{name}"] = {"dtype": tensor.dtype.upper(), "shape": tensor.shape, "data_offsets": ends}
    manifest = {
        "format": "lockstep-trace", "version": 1, "complete": True,
        "engine": {**({"name": engine} if isinstance(engine, str) else engine), "precision": precision or {}},
        "tokens": tokens, "n_prompt": n_prompt, "checkpoints": list(checkpoints.values()),
        "steps": [{"index": index, "first_pos": step.first_position, "n_tokens": step.tokens, "shard": "all.safetensors"}
                  for index, step in enumerate(steps)],
        **fields,
    }  # fmt: skip
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder = Path(folder)
    folder.mkdir(parents=True)
    (folder / "all.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def copy(trace, folder, change=lambda name, tensor, step: tensor, **fields):
    """Writes a trace again. `change` alters a value, or leaves it out with None; `fields` replace those of the manifest."""
    steps = []
    for step in trace.steps:
        changed = ((name, change(name, tensor, step)) for name, tensor in step.values.items())
        values = {name: tensor for name, tensor in changed if tensor is not None}
        steps.append(Step(step.first_position, step.tokens, values))
    engine = dict(trace.manifest["engine"])
    own = {"precision": engine.pop("precision"), "engine": engine, "model": trace.manifest["model"],
           "tokens": trace.tokens, "n_prompt": trace.n_prompt}  # fmt: skip
    return write(folder, steps, **{**own, **fields})
