"""Writing traces from other engines."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple, Type, Union

import numpy.typing as npt

from . import _limits, _precision, _values
from ._dtypes import STORED, manifest_dtype
from ._given import model_file, plain_fields, text, texts, token_ids, whole
from ._program import describe_model
from ._reader import FORMAT, VERSION

_SHARD_BYTES = 16 << 20


_GROWS = "positions so far"


def _check_fields(what: str, given: Mapping[str, Any], known: Tuple[str, ...]) -> None:
    for field, value in given.items():
        if field not in known:
            raise ValueError(f"{what}: found the field {field!r}, expected {', '.join(known)}")
        if not isinstance(value, str):
            raise TypeError(f"{what}: {field}={value!r}; expected a text")


def _model_entry(model: Union[None, str, "os.PathLike[str]", Mapping[str, str]]) -> Dict[str, str]:
    if model is None:
        return {}
    if isinstance(model, Mapping):
        _check_fields("model", model, ("file", "path", "architecture", "fingerprint", "quantization"))
        return dict(model)
    return describe_model(model_file("model", model))


def _sync_folder(path: Path) -> None:
    """The names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as problem:
        # Some file systems have no such call for folders: their names need none.
        if problem.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _replace_nothing(source: Path, target: Path) -> None:
    """Gives a file another name; FileExistsError where that name is taken."""
    try:
        os.link(source, target)
        source.unlink()
    except FileExistsError:
        raise
    except OSError:  # a file system without links: an empty file holds the place
        open(target, "x").close()
        os.replace(source, target)


def _forward_entry(forward: Mapping[str, Any]) -> Dict[str, Any]:
    for field, value in forward.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e30
        if field == "context_length":
            good = value == _GROWS or (number and value == int(value))
            expected = f'a number of positions, or "{_GROWS}"'
        elif field in ("rope_base", "rope_scale"):
            good, expected = number, "a number above 0"
        else:
            raise ValueError(f"forward: {field!r}; known are context_length, rope_base, rope_scale")
        if not good:
            raise ValueError(f"forward: {field}: {value!r}; expected {expected}")
    return dict(forward)


class TraceWriter:
    """Writes a trace, step by step.

    >>> with TraceWriter("mine.trace", engine="my engine",
    ...                  precision={"compute": "f32"}, tokens=prompt) as trace:
    ...     trace.step(0, {"embedding": embedding, "blk.0.q": q, ...})
    ...     trace.tokens.append(chosen)
    ...     trace.step(len(prompt), {...})

    Names are those of docs/checkpoints.md: `embedding`, `blk.0.q`, ..., `logits`. Checkpoints are
    listed in the order in which they are first given, which should be that of execution.

    A shard appears under its name when it is whole, and the manifest names it only then: a process
    that dies leaves a trace that opens and says that it is not complete. Only `close()`, or a
    `with` block that ends without an exception, makes it complete. A recording that fails before
    any step is on the disk leaves nothing, and no folder that was made for it.

    engine     its name, or {"name", "version", "device"}
    precision  of its arithmetic: {"compute", "activations", "kv", "weights", "sums"}, such as f32,
               bf16 or e4m3:row; docs/numerics.md has all names; leave out what is not known
    model      the GGUF file, of which the program tells the rest, or {"file", "path",
               "architecture", "fingerprint", "quantization"}; the fingerprint is what `lockstep
               inspect --fingerprint` prints, and with the path `compare` finds the file again
    forward    what the forward pass depends on besides the file: {"context_length", "rope_base",
               "rope_scale"}; context_length is a number of positions, or "positions so far" where
               the engine decides anew in every step; leave out what is not known
    tokens     all token ids, the prompt's first; `trace.tokens` may grow until the end
    n_prompt   how many of them are the prompt's; without it, those that were given here
    notes      what else is to be known of the run, sentences; `compare` shows them
    unmapped   what the engine computes besides, by its own names, and is not recorded
    durable    syncs the folder too, after every file: what is written outlasts a power failure
    """

    def __init__(
        self,
        folder: Union[str, "os.PathLike[str]"],
        *,
        engine: Union[str, Mapping[str, str]],
        precision: Optional[Mapping[str, str]] = None,
        model: Union[None, str, "os.PathLike[str]", Mapping[str, str]] = None,
        forward: Optional[Mapping[str, Any]] = None,
        tokens: Iterable[int] = (),
        n_prompt: Optional[int] = None,
        prompt: str = "",
        sampling: Optional[Mapping[str, Any]] = None,
        notes: Iterable[str] = (),
        unmapped: Iterable[str] = (),
        durable: bool = False,
    ) -> None:
        for field, given in (("precision", precision), ("forward", forward), ("sampling", sampling)):
            if given is not None and not isinstance(given, Mapping):
                raise TypeError(f"{field}={given!r}; expected a mapping")
        if not isinstance(engine, (str, Mapping)):
            raise TypeError(f"engine={engine!r}; expected its name, or a mapping of name, version and device")
        if isinstance(engine, Mapping):
            _check_fields("engine", engine, ("name", "version", "device"))
        if not (engine if isinstance(engine, str) else engine.get("name")):
            raise ValueError("engine: the name is missing")
        _precision.check(precision or {})
        self.folder = Path(folder).absolute()  # a process may go elsewhere
        self.tokens: List[int] = token_ids("tokens", tokens)
        self._engine: Dict[str, Any] = {"name": engine} if isinstance(engine, str) else dict(engine)
        self._engine["precision"] = dict(precision or {})
        self._model = _model_entry(model)
        self._forward = _forward_entry(forward or {})
        self._prompt = text("prompt", prompt)
        self._n_prompt = len(self.tokens) if n_prompt is None else whole("n_prompt", n_prompt)
        self._sampling = plain_fields("sampling", sampling or {})
        self.notes: List[str] = texts("notes", notes)
        self.unmapped: List[str] = texts("unmapped", unmapped)
        self._checkpoints: Dict[str, Dict[str, Any]] = {}
        self._steps: List[Dict[str, Any]] = []  # on the disk
        self._pending: List[Dict[str, Any]] = []
        self._data: Dict[str, npt.NDArray[Any]] = {}  # of the pending steps
        self._pending_bytes = 0
        self._next_position = 0
        self._index = 0
        self._shards = 0
        self._closed = False
        self._durable = durable
        self._taken = False  # the manifest is this writer's
        self._made = [path for path in (self.folder, *self.folder.parents) if not path.exists()]
        try:
            self._take_folder()
        except BaseException:
            self._give_up()
            raise

    @property
    def closed(self) -> bool:
        """Nothing more is written."""
        return self._closed

    def declare(
        self,
        *,
        precision: Optional[Mapping[str, str]] = None,
        n_prompt: Optional[int] = None,
        sampling: Optional[Mapping[str, Any]] = None,
    ) -> None:
        """What is known of the run only after its beginning."""
        if precision is not None:
            _precision.check(precision)
            self._engine["precision"] = dict(precision)
        if n_prompt is not None:
            self._n_prompt = whole("n_prompt", n_prompt)
        if sampling is not None:
            self._sampling = plain_fields("sampling", sampling)

    def _take_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if any(self.folder.iterdir()):
            raise FileExistsError(f"{self.folder}: is not empty; a trace is never written over")
        # Of several writers that found the folder empty, one creates the manifest.
        self._write_manifest(complete=False, new=True)
        self._taken = True
        if self._durable:
            for made in self._made:
                _sync_folder(made.parent)

    def _give_up(self) -> None:
        """Where no step is on the disk, nothing is left, and no folder that was made."""
        self._closed = True
        if self._steps:
            return
        with contextlib.suppress(OSError):  # what is not empty stays
            if self._taken:
                (self.folder / "manifest.json").unlink()
            for made in self._made:
                made.rmdir()

    def step(
        self,
        first_pos: int,
        values: Mapping[str, Any],
        *,
        tokens: Optional[int] = None,
        batch: Optional[int] = None,
    ) -> None:
        """Records one call of the forward pass, on tokens from position `first_pos` on.

        `values`: name to an array, or a tensor of torch: `[tokens, width]`, or `[width]` for one token;
        `[heads, tokens, positions]` for attention scores and probabilities. Queries, keys and values may
        be `[tokens, heads, size]`. A batch may be the first dimension of all; where it has more than one
        sequence, `batch` says which one is recorded. `logits` may have only the last rows of the step.

        `tokens`: how many tokens the step has. Without it the values tell, where they can be read in one
        way only. Numbers are copied, in the type that they have.
        """
        if self._closed:
            raise ValueError("the trace is closed")
        if not isinstance(values, Mapping):
            raise TypeError(f"the values of a step are of type {type(values).__name__}; expected a mapping of names to arrays")
        if not values:
            raise ValueError("a step without values")
        first_pos = whole("first_pos", first_pos)
        tokens = None if tokens is None else whole("tokens", tokens, 1)
        batch = None if batch is None else whole("batch", batch)
        if first_pos < self._next_position:
            raise ValueError(f"a step at position {first_pos}, expected {self._next_position} or later, after what is recorded")
        for name in values:
            if not _limits.is_name(name):
                raise ValueError(f"{name!r} is no name: expected {_limits.NAME_RULE}")
        arrays = {name: _values.to_array(name, value) for name, value in values.items()}
        shapes = {name: array.shape for name, array in arrays.items()}
        count = self._count(first_pos, shapes, batch) if tokens is None else tokens
        if count is not None:
            self._check_positions(first_pos, count)
        arrays = {name: _values.shaped(name, array, count, batch) for name, array in arrays.items()}
        rows = {name: array.shape[-2] for name, array in arrays.items()}
        if count is None:
            count = max(rows.values())
            self._check_positions(first_pos, count)
        known = dict(self._checkpoints)
        for name, array in arrays.items():
            if rows[name] != count and name != _values.LOGITS:
                raise _values.wrong_shape(name, array.shape, count, f"{rows[name]} rows in a step of {count} tokens")
            entry = {
                "name": name,
                "dtype": manifest_dtype(array.dtype),
                "width": array.shape[0] if array.ndim == 3 else array.shape[1],
            }
            was = known.setdefault(name, entry)
            if was != entry:
                raise ValueError(
                    f"{name}: {entry['width']} numbers of type {entry['dtype']} in a row, expected {was['width']} of "
                    f"type {was['dtype']} as in the steps before"
                )
        if len(known) > _limits.MOST_CHECKPOINTS:
            raise ValueError(f"a trace has at most {_limits.MOST_CHECKPOINTS} checkpoints")
        self._checkpoints = known
        for name, array in arrays.items():
            self._data[f"{self._index}/{name}"] = array
            self._pending_bytes += array.nbytes
        self._pending.append({"index": self._index, "first_pos": first_pos, "n_tokens": count})
        self._index += 1
        self._next_position = first_pos + count
        if self._pending_bytes >= _SHARD_BYTES:
            self.flush()

    @staticmethod
    def _check_positions(first_pos: int, tokens: int) -> None:
        if not _limits.in_positions(first_pos, tokens):
            raise ValueError(
                f"{tokens} tokens at position {first_pos}: a trace has at most {_limits.MOST_POSITIONS} positions"
            )

    def _count(self, first_pos: int, shapes: Mapping[str, Tuple[int, ...]], batch: Optional[int]) -> Optional[int]:
        """How many tokens a step has, by its values; None where they leave it open."""
        count = _values.infer_tokens(shapes, batch is not None)
        left = self._n_prompt - first_pos
        if count is None and set(shapes) == {_values.LOGITS} and len(shapes[_values.LOGITS]) in (1, 2, 3):
            shape = shapes[_values.LOGITS]
            count = 1 if len(shape) == 1 else shape[-2]
            if 0 < count < left:
                # The last rows of the prompt, or the first ones: a guess would file logits under wrong positions.
                raise ValueError(
                    f"logits: {count} row{'s' if count > 1 else ''} at position {first_pos}, where {left} tokens of the "
                    f"prompt begin; tokens={left} says that these are the last rows, tokens={count} that the step has "
                    "no more tokens"
                )
        elif count is None and 0 < left and any(left in shape[:-1] for shape in shapes.values()):
            count = left  # the prompt in one step
        elif count is None and left <= 0 < self._n_prompt and all(shape and shape[0] == 1 for shape in shapes.values()):
            count = 1  # generation
        return count

    def flush(self) -> None:
        """Puts what was recorded so far on the disk."""
        if self._pending:
            shard = f"{self._shards:06}.safetensors"
            self._write_aside(shard, self._shard_parts())
            self._shards += 1
            self._steps += [dict(step, shard=shard) for step in self._pending]
            self._pending, self._data, self._pending_bytes = [], {}, 0
        self._write_manifest(complete=False)

    def close(self) -> None:
        """Writes what is left; the trace is complete."""
        if self._closed:
            return
        self.flush()
        self._closed = True
        self._write_manifest(complete=True)

    def __enter__(self) -> "TraceWriter":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        problem: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if kind is not None:
            self.abandon()
            return
        try:
            self.close()
        except BaseException:
            self._give_up()
            raise

    def abandon(self) -> None:
        """Writes what there is and leaves the trace as one that was cut short."""
        if self._closed:
            return
        try:
            self.flush()
        finally:
            self._give_up()

    def _shard_parts(self) -> Iterable[bytes]:
        header: Dict[str, Any] = {}
        offset = 0
        for key, array in self._data.items():
            stored, _ = STORED[manifest_dtype(array.dtype)]
            header[key] = {
                "dtype": stored,
                "shape": list(array.shape),
                "data_offsets": [offset, offset + array.nbytes],
            }
            offset += array.nbytes
        head = json.dumps(header, separators=(",", ":")).encode()
        head += b" " * (-len(head) % 8)  # data starts at a multiple of 8
        yield len(head).to_bytes(8, "little")
        yield head
        for array in self._data.values():
            yield array.tobytes()

    def _write_manifest(self, complete: bool, new: bool = False) -> None:
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "complete": complete,
            "engine": self._engine,
            "model": self._model,
            "forward": self._forward,
            "prompt": self._prompt,
            "tokens": token_ids("tokens", self.tokens),
            "n_prompt": min(self._n_prompt, len(self.tokens)),
            "sampling": self._sampling,
            "checkpoints": list(self._checkpoints.values()),
            "steps": self._steps,
        }
        manifest.update({k: v for k, v in (("notes", self.notes), ("unmapped", self.unmapped)) if v})
        self._write_aside("manifest.json", [json.dumps(manifest, indent=1).encode() + b"\n"], new)

    def _write_aside(self, name: str, parts: Iterable[bytes], new: bool = False) -> None:
        """Under another name, to the disk, then to its own name; nothing is left of a failure.

        `new`: never in the place of another file, and FileExistsError where there is one.
        """
        target = self.folder / name
        aside = self.folder / f".{name}.{'first' if new else 'part'}"
        file = open(aside, "xb" if new else "wb")
        try:
            with file:
                for part in parts:
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
            _replace_nothing(aside, target) if new else os.replace(aside, target)
            if self._durable:
                _sync_folder(self.folder)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
