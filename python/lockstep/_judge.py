"""Verdicts of the program as objects: `lockstep.compare`, `doctor`, `run`, `assert_parity`."""

from __future__ import annotations

import html
import os
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from ._given import token_ids
from ._program import PathLike, call_json, operand
from ._reader import Trace, open_trace
from ._record import Recording

TraceLike = Union[PathLike, Trace, Recording]


def _path(trace: TraceLike) -> str:
    if isinstance(trace, (Trace, Recording)):
        return operand(trace.folder)
    if not isinstance(trace, (str, os.PathLike)):
        kind = type(trace).__name__
        raise TypeError(f"found {kind}, expected a trace: its folder, an opened trace (lockstep.open_trace), or a recording")
    return operand(trace)


class Fields(Mapping[str, Any]):
    """A JSON object whose fields are attributes too."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data: Dict[str, Any] = dict(data)
        for name in self.data.keys() & {"values", "items", "keys", "get"}:  # a field goes before what mappings call so
            self.__dict__[name] = _wrapped(self.data[name])

    def __getattr__(self, name: str) -> Any:
        try:
            return _wrapped(self.__dict__["data"][name])
        except KeyError:
            known = ", ".join(self.__dict__.get("data", ()))
            raise AttributeError(f"{type(self).__name__} has no {name!r}; fields are {known}") from None

    def __getitem__(self, name: str) -> Any:
        return _wrapped(self.data[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def __dir__(self) -> Iterable[str]:
        return [*super().__dir__(), *self.data]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.data!r})"


def _wrapped(value: Any) -> Any:
    if isinstance(value, dict):
        return Fields(value)
    return [_wrapped(item) for item in value] if isinstance(value, list) else value


def _flat(value: Mapping[str, Any], prefix: str = "") -> Dict[str, Any]:
    """Fields of fields under names such as `suspect.own_error`."""
    row: Dict[str, Any] = {}
    for name, item in value.items():
        if isinstance(item, dict):
            row.update(_flat(item, f"{prefix}{name}."))
        else:
            row[prefix + name] = item
    return row


def data_frame(rows: Sequence[Mapping[str, Any]], field: str) -> Any:
    """Objects of the JSON's `field` as rows of pandas."""
    try:
        import pandas
    except ImportError as problem:
        raise ImportError(f"to_dataframe needs pandas: {problem}; `{field}` has the same as a list") from problem
    return pandas.DataFrame([_flat(row) for row in rows])


def shown_page(page: Optional[str], text: str) -> str:
    """For a notebook: the HTML page in a frame, or the text where there is no page."""
    if page is None:
        return f"<pre>{html.escape(text)}</pre>"
    return (
        f'<iframe srcdoc="{html.escape(page, quote=True)}" style="width: 100%; height: 40em; border: 0" '
        'sandbox="allow-scripts"></iframe>'
    )


class Comparison(Fields):
    """What `lockstep compare --json` says, each field an attribute (docs/compare-json.md): `parity`, `verdict`, `headline`,
    `first_defect`, `coverage`, `checkpoints`, ... True where the sides are in parity."""

    def __init__(self, data: Mapping[str, Any], page: Optional[str] = None) -> None:
        super().__init__(data)
        self.page = page  # the HTML page

    @property
    def diagnoses(self) -> List[Any]:
        """The causes of what is wrong; empty where nothing is, or where the program does not look for them."""
        found: List[Any] = _wrapped(self.data.get("diagnoses") or [])
        return found

    @property
    def cause(self) -> Optional[str]:
        """The first cause in a sentence."""
        for found in self.data.get("diagnoses") or []:
            return f"{found.get('cause')} ({found.get('proof')}): {found.get('text')}"
        return None

    def __bool__(self) -> bool:
        return bool(self.data.get("parity"))

    def to_dataframe(self) -> Any:
        """A row for each checkpoint, in order of execution; fields of the sides are `suspect.own_error` and so on."""
        return data_frame(self.data.get("checkpoints", []), "checkpoints")

    def summary(self) -> str:
        """The verdict, the cause and the first defect, for people."""
        lines = [str(self.data.get("headline", ""))]
        if self.cause:
            lines.append(f"Cause: {self.cause}")
        defect = self.data.get("first_defect")
        if defect:
            place = f"{defect['checkpoint']}, position {defect['position']}, side: {defect['side']}"
            error = f"own error {defect['own_error']}, bound {defect['bound']}"
            element = f"element {defect['element']} is {defect['recorded']}, should be {defect['replayed']}"
            lines.append(f"First defect: {place}; {error}; {element}.")
            if defect.get("after") is not None:
                lines.append(f"It lies after {defect['after'] or 'the tokens'}.")
        unproved = self.data.get("unproved")
        return "\n".join(lines + ([f"Not proved: {unproved}"] if unproved else []))

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return f"<lockstep.{type(self).__name__}: {self.data.get('headline')}>"

    def _repr_html_(self) -> str:
        return shown_page(self.page, self.summary())


class Diagnosis(Comparison):
    """What `lockstep doctor --json` says: a comparison with the experiments behind each of its `diagnoses`."""


class Generation(Fields):
    """What `lockstep run --json` says: `text`, `tokens`, `prompt_tokens`, `stop_reason`, times; and the trace."""

    def __init__(self, data: Mapping[str, Any], folder: Optional[str]) -> None:
        super().__init__(data)
        self.folder = folder

    @property
    def trace(self) -> Optional[Trace]:
        """The trace that was recorded, opened; None where none was."""
        return open_trace(self.folder) if self.folder else None

    def __str__(self) -> str:
        return str(self.data.get("text", ""))


def flags_of(options: Mapping[str, Any]) -> List[str]:
    """Options of a command by their names in Python: min_coverage=0.9 is --min-coverage=0.9; lists are joined by commas."""
    flags: List[str] = []
    for name, value in options.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if hasattr(value, "tolist"):  # numbers of numpy or torch
            value = value.tolist()
        if value is True:
            flags.append(flag)
        elif isinstance(value, (list, tuple, range)):
            flags.append(f"{flag}={','.join(map(str, value))}")
        else:
            flags.append(f"{flag}={os.fspath(value) if isinstance(value, os.PathLike) else value}")
    return flags


def compare(reference: TraceLike, suspect: TraceLike, model: Optional[PathLike] = None, **options: Any) -> Comparison:
    """Judges two traces (folders, opened ones, or recordings), by the GGUF file `model` or the one that they name.

    Options are those of `lockstep compare`: suspect_model (where the suspect ran another file), checkpoints, positions, budget,
    min_coverage, names, threads, junit, ... .
    LockstepError where a trace or the model cannot be read.
    """
    return Comparison(*_judged("compare", (reference, suspect), {"model": model, **options}))


def doctor(*traces: TraceLike, model: Optional[PathLike] = None, **options: Any) -> Diagnosis:
    """Why a trace is wrong: one trace, which the model file is the reference of, or two, the trusted one first."""
    return Diagnosis(*_judged("doctor", traces, {"model": model, **options}))


def _judged(command: str, traces: Sequence[TraceLike], options: Dict[str, Any]) -> Tuple[Dict[str, Any], str]:
    """What the program says, and its page, which may be kept: html=FILE."""
    with tempfile.TemporaryDirectory(prefix="lockstep-") as folder:
        if not options.get("html"):
            options["html"] = Path(folder) / "page.html"
        found = call_json([command, *map(_path, traces), *flags_of({**options, "json": True})], good=(0, 1))
        return found, Path(options["html"]).read_text(encoding="utf-8")


def run(
    prompt: Optional[str] = None,
    *,
    model: Optional[PathLike] = None,
    tokens: Optional[Sequence[int]] = None,
    trace: Optional[PathLike] = None,
    **options: Any,
) -> Generation:
    """Generates text with our own engine, from a prompt or from token ids; `trace` records it in that new folder.

    Options are those of `lockstep run`: max_tokens, temp, seed, device, checkpoints, chat, ... .
    """
    if (prompt is None) == (tokens is None):
        raise ValueError("run: give a prompt or tokens")
    if prompt is not None and not isinstance(prompt, str):
        raise TypeError(f"run: the prompt is of type {type(prompt).__name__}, expected a text; token ids go by tokens=")
    given = {"model": model, "tokens": None if tokens is None else token_ids("run: tokens", tokens), "trace": trace}
    arguments = ["run", "--json", *flags_of({**given, **options})]
    return Generation(call_json(arguments if prompt is None else [*arguments, f"--prompt={prompt}"]),
                      None if trace is None else os.fspath(trace))  # fmt: skip


def assert_parity(
    reference: TraceLike, suspect: TraceLike, model: Optional[PathLike] = None, **options: Any
) -> Comparison:
    """AssertionError with the verdict, the cause and the first defect, unless the two traces are in parity."""
    found = compare(reference, suspect, model, **options)
    if not found:
        raise AssertionError(found.summary())
    return found

