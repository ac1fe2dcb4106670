"""What a torch module computes for the experts that tokens chose, put in the order of those choices."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

# What a rule may take of a module of experts.
EXPERT_TAKES = ("expert_gate", "expert_up", "expert_act", "expert_out")


class ExpertCalls:
    """The products of one pass: two for each expert that some token chose, in order of the experts' numbers.

    The first gives gate and up, one after the other; the second reads the activation and gives the result. Rows of an
    expert are in order of slots, then of tokens.
    """

    def __init__(self) -> None:
        self._calls: List[Tuple[Any, Any]] = []  # input and result of each product

    def add(self, arguments: Tuple[Any, ...], result: Any) -> None:
        self._calls.append((arguments[0], result))

    def finish(self, choice: Any) -> Dict[str, Any]:
        """{take: [tokens, slots * width]} for a choice [tokens, slots]; nothing where the products are others."""
        calls, self._calls = self._calls, []
        if getattr(choice, "dim", lambda: 0)() != 2:
            return {}
        experts = choice.unique().tolist()
        if len(calls) != 2 * len(experts):
            return {}
        found: Dict[str, Any] = {}
        for expert, first, second in zip(experts, calls[0::2], calls[1::2]):
            slots, tokens = (choice.transpose(0, 1) == expert).nonzero(as_tuple=True)
            gate, up = first[1].chunk(2, dim=-1)
            for take, rows in zip(EXPERT_TAKES, (gate, up, second[0], second[1])):
                if rows.dim() != 2 or rows.shape[0] != slots.shape[0]:
                    return {}
                if take not in found:
                    found[take] = rows.new_zeros((*choice.shape, rows.shape[1]))
                found[take][tokens, slots] = rows
        return {take: rows.flatten(1) for take, rows in found.items()}
