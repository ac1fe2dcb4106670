"""From passes of a torch module to steps of a trace: which positions they have, and which rows are new."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional

import numpy as np
import numpy.typing as npt

from . import _checkpoints
from ._copies import Copy
from ._given import is_token
from ._layout import Layout
from ._writer import TraceWriter

# Copies that wait for the device; with more, the host waits.
_MOST_WAITING = 1 << 30


_PIECES = "several passes of several tokens were taken for the prompt; n_prompt= says how long it is"
_ANOTHER = "a trace holds one sequence: passes that began anew, on other tokens, were not recorded"
_NOWHERE = "; a module with a cache of its own is to be given positions too, by an argument such as position_ids or start_pos"


@dataclass
class Pass:
    """One call of the module. Copies may still be on their way."""

    layout: Layout
    ids: Optional[Copy]
    mask: Optional[Copy]  # of all positions: 0 is padding
    places: Optional[Copy]  # the positions of the tokens
    past: Optional[int]  # positions in the cache; None: there is no cache to ask
    values: Dict[str, Copy] = field(default_factory=dict)
    cache: int = 0  # which one; 0: not known

    def copies(self) -> List[Copy]:
        return [copy for copy in (self.ids, self.mask, self.places, *self.values.values()) if copy is not None]


@dataclass
class _Step:
    first: int
    end: int
    ids: Optional[List[int]]
    values: "Dict[str, npt.NDArray[Any]]"

    def until(self, end: int) -> "_Step":
        """Without what lies from position `end` on."""
        values = {}
        for name, array in self.values.items():
            rows = end - self.end + array.shape[-2]  # of logits there may be the last ones alone
            if rows > 0:
                values[name] = array[:, :rows, :end] if array.ndim == 3 else array[:rows]
        return _Step(self.first, end, None if self.ids is None else self.ids[: end - self.first], values)


def _whole(copy: Optional[Copy]) -> "Optional[npt.NDArray[Any]]":
    return None if copy is None else np.asarray(copy.host().tolist())


class PassWriter:
    """Writes passes in their order, as soon as their numbers are on the host."""

    def __init__(self, writer: TraceWriter, first_is_prompt: bool, has_sampling: bool = False) -> None:
        self._writer = writer
        self._first_is_prompt, self._has_sampling = first_is_prompt, has_sampling
        self._waiting: List[Pass] = []
        self._end = 0  # the position after the last that was written
        self.names: Dict[str, None] = {}
        self._kinds: Dict[str, Any] = {}  # of values without a checkpoint's name: width and type
        self.steps = 0
        # The last one: it may come again with a token more, or lose rows that turn out to be of tokens nobody chose.
        self._held: Optional[_Step] = None
        self._cache = 0  # of the sequence that is recorded
        self._other = 0  # where a sequence ends that is not recorded
        self._prompt: List[int] = []  # where its pieces end
        self._in_pieces = False
        self._piece = 0  # tokens of the first pass, while the prompt may go on; 0: it is over

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
        length = 0 if mask is None else len(mask)
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
            if (np.diff(places[keep]) != 1).any() or places[keep][0] < 0:
                self._say("passes at positions that do not follow one another, such as several sequences in one row, were "
                          "not recorded")  # fmt: skip
                return
            first = int(places[keep][0])
        count = int(keep.sum())
        kept = None if ids is None else [int(token) for token in ids[keep]]
        held = self._held
        end = held.end if held else self._end
        if not first and done.past is None and places is None and done.cache and done.cache == self._cache:
            first = end  # the cache of the passes before, which does not tell how much it holds
        is_first = not self.steps and not held
        if done.cache and self._cache and done.cache != self._cache:
            self._say(_ANOTHER)
            return
        if first and first == self._other:
            self._other = first + count
            self._say(_ANOTHER)
            return
        if first < end:
            if held and held.first < first and (done.past is not None or places is not None):
                self._held = held.until(first)  # tokens that were tried and not chosen
                if self._prompt[1:] and first < self._prompt[-1]:  # no piece of the prompt
                    self._prompt.pop()
                    self._writer.declare(n_prompt=self._prompt[-1])
                    self._piece = 0
                    if not self._prompt[1:]:
                        self._writer.notes.remove(_PIECES)
                self._write_held()
            elif is_anew(held, first, kept) and not self.steps:
                # Rows of several passes do not fit together: each pass has rounded the earlier positions in its own way.
                self._say("the module computes all positions anew for each token: the last pass is recorded, as one step")
            else:
                is_told = done.past is not None or places is not None or mask is not None
                self._say(_ANOTHER if is_told else _ANOTHER + _NOWHERE)
                self._other = count if not first else self._other
                if done.cache and done.cache == self._cache:
                    self._cache = -1  # it holds something else from now on
                return
        else:
            self._write_held()
        self._cache = self._cache or done.cache
        values = {}
        for name, copy in done.values.items():
            array = self._rows(name, copy.array(name), keep, columns, length, first + count)
            if array is not None and self._is_as_before(name, array):
                values[name] = array
        if not values:
            return
        if self._first_is_prompt:
            self._follow_prompt(is_first, bool(held) and first >= end, first + count, count)
        self._held = _Step(first, first + count, kept, values)

    def _follow_prompt(self, is_first: bool, goes_on: bool, end: int, count: int) -> None:
        """A prompt may come in pieces of one size, the last one shorter: who is to say that its tokens were chosen?"""
        if is_first:
            self._piece, self._prompt = count, [end]
            self._writer.declare(n_prompt=end)
        elif goes_on and 1 < self._piece >= count and (count > 1 or self._in_pieces):
            self._in_pieces = count == self._piece
            self._piece = self._piece if self._in_pieces else 0
            self._prompt.append(end)
            self._writer.declare(n_prompt=end)
            self._say(_PIECES)
        elif goes_on:
            if count > 1 and self._has_sampling:
                self._writer.declare(sampling={})
                self._say("passes of several tokens came after the first ones that were chosen: which tokens of theirs were "
                          "chosen is not known, and sampling is left out")  # fmt: skip
            self._piece = 0

    def _write_held(self) -> None:
        held, self._held = self._held, None
        if held is None or not held.values:
            return
        self._take_tokens(held.first, held.ids)
        ordered = sorted(held.values, key=lambda name: _checkpoints.execution_order(name)[:3])
        self._writer.step(held.first, {name: held.values[name] for name in ordered}, tokens=held.end - held.first)
        self.names.update(dict.fromkeys(held.values))
        self.steps += 1
        self._end = held.end

    def _take_tokens(self, first: int, ids: Optional[List[int]]) -> None:
        tokens = self._writer.tokens
        if ids is None or not all(map(is_token, ids)):
            self._say("the token ids are not known at all positions: the module was given none")
        elif first > len(tokens):
            self._say("the token ids are not known at all positions: it began after the first ones")
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
              length: int, end: int) -> "Optional[npt.NDArray[Any]]":  # fmt: skip
        """Without padding: `keep` says which tokens, `columns` which of the `length` positions of the mask are none."""
        if not _checkpoints.is_scores(name):
            array = array[keep[len(keep) - len(array) :]]
            return array if len(array) else None
        array = array[:, keep]
        if columns is not None:
            # A cache that forgets has the last positions alone; one of a fixed size has room for more.
            there = columns - max(0, length - array.shape[2])
            array = array[:, :, there[there >= 0]]
        return whole_rows(name, array, end)


def is_anew(held: Optional[_Step], first: int, ids: Optional[List[int]]) -> bool:
    """Whether a pass has the positions of the one before once more."""
    return held is not None and not first and held.ids is not None and ids is not None and ids[: held.end] == held.ids


def whole_rows(name: str, scores: "npt.NDArray[Any]", end: int) -> "npt.NDArray[Any]":
    """Scores of all positions before `end`: a cache that forgets what lies before a window has fewer; these are hidden."""
    lacking = end - scores.shape[2]
    if lacking <= 0:
        return scores[:, :, :end]
    hidden: Any = 0
    if name.endswith("scores"):
        hidden = np.uint16(0xFF80) if scores.dtype == np.uint16 else -np.inf
    return np.pad(scores, ((0, 0), (0, 0), (lacking, 0)), constant_values=hidden)
