"""From passes of a torch module to steps of a trace: which positions they have, and which rows are new."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional

import numpy as np
import numpy.typing as npt

from . import _checkpoints
from ._copies import Copy
from ._layout import Layout
from ._writer import TraceWriter

# Copies that wait for the device; with more, the host waits.
_MOST_WAITING = 1 << 30


@dataclass
class Pass:
    """One call of the module. Copies may still be on their way."""

    layout: Layout
    ids: Optional[Copy]
    mask: Optional[Copy]  # of all positions: 0 is padding
    places: Optional[Copy]  # the positions of the tokens
    past: Optional[int]  # positions in the cache; None: there is no cache to ask
    values: Dict[str, Copy] = field(default_factory=dict)

    def copies(self) -> List[Copy]:
        return [copy for copy in (self.ids, self.mask, self.places, *self.values.values()) if copy is not None]


@dataclass
class _Step:
    first: int
    end: int
    ids: Optional[List[int]]
    values: "Dict[str, npt.NDArray[Any]]"


def _whole(copy: Optional[Copy]) -> "Optional[npt.NDArray[Any]]":
    return None if copy is None else np.asarray(copy.host().tolist())


class PassWriter:
    """Writes passes in their order, as soon as their numbers are on the host."""

    def __init__(self, writer: TraceWriter, first_is_prompt: bool) -> None:
        self._writer = writer
        self._first_is_prompt = first_is_prompt
        self._waiting: List[Pass] = []
        self._end = 0  # the position after the last that was written
        self.names: Dict[str, None] = {}
        self._kinds: Dict[str, Any] = {}  # of values without a checkpoint's name: width and type
        self.steps = 0
        self._held: Optional[_Step] = None  # the first one, which may come again with a token more

    def add(self, done: Pass) -> None:
        self._waiting.append(done)
        self.drain()

    def drain(self, everything: bool = False) -> None:
        while self._waiting:
            waiting = sum(copy.bytes for one in self._waiting for copy in one.copies())
            if not everything and waiting < _MOST_WAITING and not all(c.ready() for c in self._waiting[0].copies()):
                return
            self._take(self._waiting.pop(0))
        if everything:
            self._write_held()

    def _say(self, note: str) -> None:
        if note not in self._writer.notes:
            self._writer.notes.append(note)

    def _take(self, done: Pass) -> None:
        tokens = done.layout.tokens
        ids, mask, places = _whole(done.ids), _whole(done.mask), _whole(done.places)
        keep = np.ones(tokens, bool)
        columns: "Optional[npt.NDArray[Any]]" = None
        first = done.past or 0
        if mask is not None and len(mask) >= tokens and set(mask.tolist()) <= {0, 1}:
            keep = mask[-tokens:] != 0
            if len(mask) > tokens:
                first = int(np.count_nonzero(mask[:-tokens]))
                columns = np.flatnonzero(mask)
            elif not first:
                columns = np.flatnonzero(mask)
            if not keep.any():
                return
        if places is not None and len(places) == tokens:
            first = int(places[keep][0])
        count = int(keep.sum())
        kept = None if ids is None else [int(token) for token in ids[keep]]
        end = self._held.end if self._held else self._end
        if first < end:
            held = self._held
            if held and not first and held.ids is not None and kept is not None and kept[: held.end] == held.ids:
                # Rows of several passes do not fit together: each pass has rounded the earlier positions in its own way.
                self._say("the module computes all positions anew for each token: the last pass is recorded, as one step")
            else:
                self._say("a trace holds one sequence: passes that began anew, on other tokens, were not recorded")
                return
        else:
            self._write_held()
        values = {}
        for name, copy in done.values.items():
            array = self._rows(name, copy.array(name), keep, columns, first + count)
            if array is not None and self._is_as_before(name, array):
                values[name] = array
        if not values:
            return
        if self._first_is_prompt and not self.steps and not self._held:
            self._writer.declare(n_prompt=first + count)
        self._held = _Step(first, first + count, kept, values)
        if self.steps:  # the cache is at work: nothing comes again
            self._write_held()

    def _write_held(self) -> None:
        held, self._held = self._held, None
        if held is None:
            return
        self._take_tokens(held.first, held.ids)
        ordered = sorted(held.values, key=lambda name: _checkpoints.execution_order(name)[:3])
        self._writer.step(held.first, {name: held.values[name] for name in ordered}, tokens=held.end - held.first)
        self.names.update(dict.fromkeys(held.values))
        self.steps += 1
        self._end = held.end

    def _take_tokens(self, first: int, ids: Optional[List[int]]) -> None:
        tokens = self._writer.tokens
        if ids is None or first > len(tokens):
            self._say("the token ids are not known at all positions: the module was given none")
        else:
            tokens[first:] = ids

    def _is_as_before(self, name: str, array: "npt.NDArray[Any]") -> bool:
        """Whether a trace can hold the value. One that nobody asked for by name does not end a recording."""
        kind = (array.shape[1:], array.dtype)
        if _checkpoints.is_checkpoint(name) or self._kinds.setdefault(name, kind) == kind:
            return True
        self._say(f"{name} was left out where its rows have another width or type than in its first pass")
        return False

    @staticmethod
    def _rows(name: str, array: "npt.NDArray[Any]", keep: "npt.NDArray[Any]", columns: "Optional[npt.NDArray[Any]]",
              end: int) -> "Optional[npt.NDArray[Any]]":  # fmt: skip
        if not _checkpoints.is_scores(name):
            array = array[keep[len(keep) - len(array) :]]
            return array if len(array) else None
        array = array[:, keep]
        if columns is not None and len(columns) and columns[-1] < array.shape[2]:
            array = array[:, :, columns]
        return whole_rows(name, array, end)


def whole_rows(name: str, scores: "npt.NDArray[Any]", end: int) -> "npt.NDArray[Any]":
    """Scores of all positions before `end`: a cache that forgets what lies before a window has fewer; these are hidden."""
    lacking = end - scores.shape[2]
    if lacking <= 0:
        return scores[:, :, :end]
    hidden: Any = 0
    if name.endswith("scores"):
        hidden = np.uint16(0xFF80) if scores.dtype == np.uint16 else -np.inf
    return np.pad(scores, ((0, 0), (0, 0), (lacking, 0)), constant_values=hidden)
