"""Reading traces. Shards are mapped: only what is looked at comes in from the disk."""

from __future__ import annotations

import collections
import difflib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Set, Tuple, Union

import numpy as np
import numpy.typing as npt

from . import _limits
from ._dtypes import STORED, numpy_dtype

FORMAT = "lockstep-trace"
VERSION = 1
_LARGEST_HEADER = 100_000_000


class TraceError(ValueError):
    """A trace that cannot be read; the message says the file and what is wrong."""


@dataclass(frozen=True)
class Checkpoint:
    """A named value: its number type in the trace ("f32") and the numbers in a row."""

    name: str
    dtype: str
    width: int


@dataclass(frozen=True)
class Step:
    """One call of the forward pass: `tokens` positions from `first_position` on."""

    index: int
    first_position: int
    tokens: int
    shard: str


def _object(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    """An object of JSON; json.loads alone keeps the last of two values of a name."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        counts = collections.Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise ValueError(f"the name {twice!r} stands twice in an object")
    return fields


class _Shard:
    """A safetensors file, mapped. Its header is read once and checked against the file.

    The library's own reader copies a tensor when it is asked for; this one gives views, and takes
    bfloat16 without any other package.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            size = path.stat().st_size
            with open(path, "rb") as file:
                length = int.from_bytes(file.read(8), "little")
                if size < 8 or length > min(size - 8, _LARGEST_HEADER):
                    raise TraceError(f"{path}: the header does not fit into {size} bytes")
                header = json.loads(file.read(length), object_pairs_hook=_object)
        except OSError as problem:
            raise TraceError(f"{path}: {problem.strerror}") from problem
        except ValueError as problem:
            if isinstance(problem, TraceError):
                raise
            raise TraceError(f"{path}: the header is no JSON: {problem}") from problem
        if not isinstance(header, dict):
            raise TraceError(f"{path}: the header is no JSON object")
        header.pop("__metadata__", None)
        self._entries: Dict[str, Any] = header
        self._start = 8 + length
        self._data_bytes = size - self._start
        self._map: Optional[npt.NDArray[np.uint8]] = None

    def get(self, key: str, dtype: str) -> Optional[npt.NDArray[Any]]:
        """A read-only view of a tensor, or None where the shard does not have it."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        stored, size = STORED[dtype]
        try:
            found = entry["dtype"]
            shape = tuple(int(extent) for extent in entry["shape"])
            begin, end = (int(offset) for offset in entry["data_offsets"])
        except (KeyError, TypeError, ValueError) as problem:
            raise TraceError(f"{self.path}: tensor '{key}': no dtype, shape and offsets") from problem
        if found != stored:
            raise TraceError(f"{self.path}: tensor '{key}': dtype {found}, expected {stored}")
        count = 1
        for extent in shape:
            count *= extent
        if min(shape, default=0) < 0 or not 0 <= begin <= end <= self._data_bytes:
            raise TraceError(f"{self.path}: tensor '{key}': does not lie in the file")
        if end - begin != count * size:
            raise TraceError(
                f"{self.path}: tensor '{key}': {end - begin} bytes, its shape needs {count * size}"
            )
        if self._map is None:
            self._map = np.memmap(self.path, dtype=np.uint8, mode="r")
        view = np.asarray(self._map)[self._start + begin : self._start + end]
        return view.view(numpy_dtype(dtype)).reshape(shape)


class Trace(Mapping[str, "npt.NDArray[Any]"]):
    """A recorded trace; `open_trace` opens one.

    A mapping from the names of checkpoints to arrays `[positions, width]`. Where a checkpoint lies
    in one step the array is a view of the file, else a copy of all steps. Rows follow
    `positions(name)`, which are 0, 1, 2, ... for a trace that has all of them. Attention scores and
    probabilities are asked for by position (`row`), since their rows differ in length.
    """

    def __init__(self, folder: Union[str, "os.PathLike[str]"]) -> None:
        self.folder = Path(folder).absolute()  # a process may go elsewhere
        path = self.folder / "manifest.json"
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_object)
        except OSError as problem:
            raise TraceError(f"{path}: {problem.strerror}; expected the folder of a trace") from problem
        except ValueError as problem:
            raise TraceError(f"{path}: no JSON: {problem}") from problem
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise TraceError(f"{path}: format is not '{FORMAT}'")
        if manifest.get("version") != VERSION:
            raise TraceError(f"{path}: version {manifest.get('version')!r}, expected {VERSION}")
        self.manifest: Dict[str, Any] = manifest
        try:
            self.checkpoints: Dict[str, Checkpoint] = {
                c["name"]: Checkpoint(c["name"], c["dtype"], int(c["width"]))
                for c in manifest["checkpoints"]
            }
            self.steps: List[Step] = [
                Step(int(s["index"]), int(s["first_pos"]), int(s["n_tokens"]), str(s["shard"]))
                for s in manifest["steps"]
            ]
        except (KeyError, TypeError, ValueError) as problem:
            raise TraceError(f"{path}: {problem!r} in checkpoints or steps") from problem
        for kind, key in (("checkpoints", "name"), ("steps", "index")):
            seen: Set[Any] = set()
            for entry in manifest[kind]:
                if entry[key] in seen:
                    raise TraceError(f"{path}: two {kind} have the {key} {entry[key]!r}")
                seen.add(entry[key])
        if len(self.checkpoints) > _limits.MOST_CHECKPOINTS:
            raise TraceError(f"{path}: more than {_limits.MOST_CHECKPOINTS} checkpoints")
        for checkpoint in self.checkpoints.values():
            if not isinstance(checkpoint.name, str) or not _limits.is_name(checkpoint.name):
                raise TraceError(f"{path}: checkpoint {checkpoint.name!r}: expected {_limits.NAME_RULE}")
            if not 1 <= checkpoint.width <= _limits.MOST_WIDTH:
                raise TraceError(f"{path}: checkpoint '{checkpoint.name}': width {checkpoint.width}")
            if checkpoint.dtype not in STORED:
                raise TraceError(
                    f"{path}: checkpoint '{checkpoint.name}': dtype '{checkpoint.dtype}', "
                    f"expected one of {', '.join(STORED)}"
                )
        for step in self.steps:
            if not _limits.in_positions(step.first_position, step.tokens):
                raise TraceError(
                    f"{path}: step {step.index}: {step.tokens} tokens at position {step.first_position}, "
                    f"expected at most {_limits.MOST_POSITIONS} positions"
                )
            if "/" in step.shard or step.shard.startswith(".") or not step.shard:
                raise TraceError(f"{path}: shard '{step.shard}' is not a file of the folder")
        self._shards: Dict[str, _Shard] = {}

    @property
    def tokens(self) -> npt.NDArray[np.int32]:
        """All token ids, the prompt's first."""
        return np.asarray(self.manifest.get("tokens", []), dtype=np.int32)

    @property
    def n_prompt(self) -> int:
        """How many of the tokens are the prompt's."""
        return int(self.manifest.get("n_prompt", 0))

    @property
    def complete(self) -> bool:
        """False for a trace whose run was cut short; what it holds is whole all the same."""
        return bool(self.manifest.get("complete", False))

    def __iter__(self) -> Iterator[str]:
        return iter(self.checkpoints)

    def __len__(self) -> int:
        return len(self.checkpoints)

    def _checkpoint(self, name: str) -> Checkpoint:
        if name in self.checkpoints:
            return self.checkpoints[name]
        near = difflib.get_close_matches(str(name), self.checkpoints, n=3) or list(self.checkpoints)[:3]
        raise KeyError(f"{self.folder} has no {name!r}; it has {', '.join([*near, '...']) if near else 'no checkpoints'}")

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        checkpoint = self._checkpoint(name)
        parts = [value for _, value in self._values(checkpoint)]
        if any(value.ndim == 3 for value in parts):
            raise TraceError(f"{name} has rows of different lengths: use row() or value()")
        if not parts:
            return np.empty((0, checkpoint.width), dtype=numpy_dtype(checkpoint.dtype))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def positions(self, name: str) -> npt.NDArray[np.int64]:
        """The absolute position of each row of `trace[name]`."""
        ranges = []
        for step, value in self._values(self._checkpoint(name)):
            rows = value.shape[1] if value.ndim == 3 else value.shape[0]
            end = step.first_position + step.tokens  # fewer rows than tokens: the last ones
            ranges.append(np.arange(end - rows, end, dtype=np.int64))
        return np.concatenate(ranges) if ranges else np.empty(0, dtype=np.int64)

    def row(self, name: str, position: int) -> npt.NDArray[Any]:
        """One position's numbers, `[width]`; `[heads, positions]` for scores and probabilities.

        KeyError where the trace does not have them.
        """
        checkpoint = self._checkpoint(name)
        for step in self.steps:
            index = position - step.first_position
            if not 0 <= index < step.tokens:
                continue
            value = self._value(step, checkpoint)
            if value is None:
                break
            if value.ndim == 3:
                return value[:, index]
            index -= step.tokens - value.shape[0]
            if index >= 0:
                row: npt.NDArray[Any] = value[index]
                return row
        raise KeyError(f"{name} at position {position} was not recorded")

    def value(self, name: str, step: int) -> npt.NDArray[Any]:
        """What one step (an index into `steps`) recorded, as stored. KeyError where nothing."""
        if not -len(self.steps) <= step < len(self.steps):
            raise KeyError(f"step {step} of {len(self.steps)}")
        found = self._value(self.steps[step], self._checkpoint(name))
        if found is None:
            raise KeyError(f"{name} was not recorded in step {step}")
        return found

    def _value(self, step: Step, checkpoint: Checkpoint) -> Optional[npt.NDArray[Any]]:
        shard = self._shards.get(step.shard)
        if shard is None:
            shard = self._shards[step.shard] = _Shard(self.folder / step.shard)
        value = shard.get(f"{step.index}/{checkpoint.name}", checkpoint.dtype)
        if value is None:
            return None
        rows = value.ndim == 2 and value.shape[1] == checkpoint.width and (
            value.shape[0] == step.tokens
            or (checkpoint.name == "logits" and 1 <= value.shape[0] < step.tokens)
        )
        scores = value.ndim == 3 and value.shape[:2] == (checkpoint.width, step.tokens)
        if not rows and not scores:
            raise TraceError(
                f"{self.folder / step.shard}: '{step.index}/{checkpoint.name}' has the shape "
                f"{list(value.shape)}, expected {[step.tokens, checkpoint.width]}"
            )
        return value

    def _values(self, checkpoint: Checkpoint) -> Iterator[Tuple[Step, npt.NDArray[Any]]]:
        for step in self.steps:
            value = self._value(step, checkpoint)
            if value is not None:
                yield step, value

    def __repr__(self) -> str:
        engine = self.manifest.get("engine", {}).get("name", "?")
        return (
            f"<lockstep.Trace {str(self.folder)!r}: {engine}, {len(self.checkpoints)} checkpoints, "
            f"{sum(step.tokens for step in self.steps)} positions>"
        )


def open_trace(folder: Union[str, "os.PathLike[str]"]) -> Trace:
    """Opens a trace for reading. TraceError where it cannot be read."""
    return Trace(folder)
