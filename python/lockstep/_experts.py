"""What a torch module computes for the experts that tokens chose, put in the order of those choices."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

# What a rule may take of a module of experts.
EXPERT_TAKES = ("expert_gate", "expert_up", "expert_act", "expert_out")


class ExpertCalls:
    """What one pass computes for each expert that some token chose, in order of the experts' numbers.

    Modules of experts call two products for each: the first gives gate and up, one after the other; the second reads
    the activation and gives the result. Others, whose products are no calls, have a method for the activation alone,
    from gate and up; the result is then computed here as they do it. Rows of an expert are in order of slots, then of
    tokens.
    """

    def __init__(self) -> None:
        self._products: List[Tuple[Any, Any]] = []  # input and result of each
        self._gates: List[Tuple[Any, Any, Any]] = []  # module, gate and up, activation of each

    def add(self, arguments: Tuple[Any, ...], result: Any) -> None:
        if hasattr(arguments[0], "down_proj"):
            self._gates.append((arguments[0], arguments[1], result))
        else:
            self._products.append((arguments[0], result))

    def finish(self, choice: Any) -> Dict[str, Any]:
        """{take: [tokens, slots * width]} for a choice [tokens, slots]; nothing where the calls are others."""
        products, self._products = self._products, []
        gates, self._gates = self._gates, []
        if getattr(choice, "dim", lambda: 0)() != 2:
            return {}
        experts = choice.unique().tolist()
        values: List[Tuple[Any, ...]] = []  # of each expert, in order of EXPERT_TAKES
        if gates and len(gates) == len(experts):
            values = [_of_gate(expert, *call) for expert, call in zip(experts, gates)]
        elif not gates and len(products) == 2 * len(experts):
            values = [
                (*first[1].chunk(2, dim=-1), second[0], second[1]) for first, second in zip(products[0::2], products[1::2])
            ]
        found: Dict[str, Any] = {}
        for expert, of_expert in zip(experts, values):
            slots, tokens = (choice.transpose(0, 1) == expert).nonzero(as_tuple=True)
            for take, rows in zip(EXPERT_TAKES, of_expert):
                if rows.dim() != 2 or rows.shape[0] != slots.shape[0]:
                    return {}
                if take not in found:
                    found[take] = rows.new_zeros((*choice.shape, rows.shape[1]))
                found[take][tokens, slots] = rows
        return {take: rows.flatten(1) for take, rows in found.items()}


def _of_gate(expert: int, module: Any, gate_up: Any, act: Any) -> Tuple[Any, Any, Any, Any]:
    if getattr(module, "is_concatenated", True):
        gate, up = gate_up.chunk(2, dim=-1)
    else:
        gate, up = gate_up[..., 0::2], gate_up[..., 1::2]
    down = module.down_proj[expert]
    out = act @ (down if getattr(module, "is_transposed", False) else down.T)
    if getattr(module, "down_proj_bias", None) is not None:
        out = out + module.down_proj_bias[expert]
    return gate, up, act, out
