"""Tensors of one pass through a torch model, as rows of one sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

from . import _checkpoints
from .capture._names import Rule


@dataclass(frozen=True)
class Heads:
    """Numbers of heads, for rows that hold several things, or in another order; 0: not known."""

    queries: int = 0
    keys: int = 0
    rotated: int = 0  # numbers at the end of each head that turn by themselves, in latent attention

    def part(self, part: str, width: int, name: str) -> slice:
        """Where a part of a fused row lies."""
        if part in ("gate", "up"):
            return slice(0, width // 2) if part == "gate" else slice(width // 2, width)
        every = self.queries + 2 * self.keys
        if not self.queries or not self.keys or width % every:
            raise ValueError(
                f"{name}: a fused row of {width} numbers cannot be cut into q, k and v of {self.queries} and {self.keys} "
                "heads; heads= and kv_heads= say how many there are"
            )
        head = width // every
        q, k = head * self.queries, head * self.keys
        return {"q": slice(0, q), "k": slice(q, q + k), "v": slice(q + k, width)}[part]

    def adjacent(self, rows: Any, name: str) -> Any:
        """The two halves of each head, number by number side by side."""
        heads = 1 if name.endswith(".k_pe") else self.keys if name.endswith((".k", ".k_rope")) else self.queries
        width = rows.shape[1]
        if not heads or width % (2 * heads):
            raise ValueError(f"{name}: {width} numbers are no {heads} heads of an even size; heads= and kv_heads= say how "
                             "many there are")  # fmt: skip
        return rows.reshape(rows.shape[0], heads, 2, -1).transpose(2, 3).reshape(rows.shape[0], -1)

    def adjacent_end(self, rows: Any, name: str) -> Any:
        """The same of the last numbers of each head alone."""
        heads, size = self.queries, rows.shape[1] // max(1, self.queries)
        if not heads or rows.shape[1] % heads or self.rotated % 2 or not 0 < self.rotated <= size:
            raise ValueError(f"{name}: {rows.shape[1]} numbers are no {heads} heads that end in {self.rotated} rotated "
                             "ones; heads= says how many there are")  # fmt: skip
        cut = rows.reshape(rows.shape[0], heads, size)
        still, turned = cut[..., : size - self.rotated], cut[..., size - self.rotated :]
        pairs = turned.reshape(rows.shape[0], heads, 2, -1).transpose(2, 3).reshape(turned.shape)
        import torch

        return torch.cat((still, pairs), dim=-1).reshape(rows.shape)


@dataclass(frozen=True)
class Layout:
    """A pass of `tokens` tokens for each of `batch` sequences, of which `sequence` is recorded; a cache has `past` more."""

    tokens: int
    batch: int = 1
    sequence: int = 0
    past: int = 0

    def scores(self, tensor: Any) -> Any:
        """[heads, tokens, positions]; None where that is not what the tensor is."""
        if tensor.dim() == 4 and tensor.shape[0] == self.batch:
            tensor = tensor[self.sequence]
        return tensor if tensor.dim() == 3 and tensor.shape[1] == self.tokens else None

    def rows(self, tensor: Any, heads_first: bool = False, last_rows: bool = False) -> Any:
        """[tokens, width]; fewer rows where `last_rows`; None where the tensor has no row for each token."""
        shape, at = tuple(tensor.shape), self.sequence
        if len(shape) == 4 and shape[0] == self.batch and shape[2] == self.tokens:
            # Where both orders fit, the memory tells of most transposed tensors.
            if heads_first or shape[1] != self.tokens or tensor.stride(1) < tensor.stride(2):
                return tensor[at].transpose(0, 1).reshape(self.tokens, -1)
        if len(shape) >= 3 and shape[0] == self.batch and shape[1] == self.tokens:
            return tensor[at].reshape(self.tokens, -1)
        if len(shape) == 3 and last_rows and shape[0] == self.batch and shape[1] < self.tokens:
            return tensor[at]
        if len(shape) >= 3 and shape[0] == self.tokens and shape[1] == self.batch:  # the batch second
            return tensor[:, at].reshape(self.tokens, -1)
        if len(shape) >= 2 and shape[0] == self.batch * self.tokens:
            return tensor[at * self.tokens : (at + 1) * self.tokens].reshape(self.tokens, -1)
        if len(shape) == 2 and last_rows and shape[0] == self.batch:
            return tensor[at : at + 1]
        if len(shape) == 2 and last_rows and self.batch == 1 and shape[0] < self.tokens:
            return tensor
        return None

    def new_rows(self, tensor: Any) -> Any:
        """[tokens, width] of a tensor that has rows for the cache too, such as keys made anew of latent rows; or None."""
        shape = tuple(tensor.shape)
        if not self.past or len(shape) not in (3, 4) or shape[0] != self.batch or shape[-2] != self.past + self.tokens:
            return None
        return self.rows(tensor[..., self.past :, :], heads_first=True)

    def is_open(self, rule: Optional[Rule], name: str, tensor: Any) -> bool:
        """Whether tokens or heads may come first."""
        shape = tuple(tensor.shape)
        told = _checkpoints.is_scores(name) or (rule is not None and any(":" in node for node in rule.nodes))
        return len(shape) == 4 and shape[1] == shape[2] == self.tokens > 1 and not told

    def value(self, rule: Optional[Rule], name: str, tensor: Any, heads: Heads) -> Any:
        """What a trace has of the tensor; None where it does not fit."""
        if rule is not None and _checkpoints.is_scores(name):
            value = self.scores(tensor)
            if value is not None and name.endswith("scores"):  # what is hidden has the type's lowest number added
                import torch

                value = value.masked_fill(value <= torch.finfo(value.dtype).min / 2, -float("inf"))
            return value
        is_function = rule is not None and any(":" in node for node in rule.nodes)
        rows = self.rows(tensor, heads_first=is_function, last_rows=name == "logits")
        if rows is None or rule is None:
            return rows
        if rule.part:
            rows = rows[:, heads.part(rule.part, rows.shape[1], name)]
        if rule.order == "adjacent_end":
            return heads.adjacent_end(rows, name)
        return heads.adjacent(rows, name) if rule.order == "adjacent" else rows
