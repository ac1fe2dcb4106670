"""Name maps: what an engine calls the checkpoints of a trace. docs/name-maps.md has the schema."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

FORMAT = "lockstep-names"
VERSION = 1
PARTS = ("q", "k", "v", "gate", "up")
ORDERS = ("adjacent", "adjacent_end")
TAKES = ("output", "input", "second_input", "softmax_input", "before_sinks", "query", "new_keys", "new_values", "first_output",
         "second_output", "third_output", "sum_of_outputs", "expert_gate", "expert_up", "expert_act", "expert_out")  # fmt: skip


@dataclass(frozen=True)
class Rule:
    """One way in which a checkpoint is found; of several nodes that fit, the last one computed counts."""

    checkpoint: str
    nodes: Tuple[str, ...] = ()  # names of nodes; none: any name
    reads: Tuple[str, ...] = ()  # the node has one of these among its inputs; none: any
    ops: Tuple[str, ...] = ()  # what computes it; none: anything
    not_ops: Tuple[str, ...] = ()
    part: Optional[str] = None  # of a fused value
    take: str = "output"
    order: Optional[str] = None  # of the numbers of a head
    architectures: Tuple[str, ...] = ()  # none: all that no rule with the same checkpoint names
    not_architectures: Tuple[str, ...] = ()

    @property
    def plain(self) -> bool:
        """The name alone tells it."""
        return bool(self.nodes) and not (
            self.reads or self.ops or self.not_ops or self.part or self.order or self.take != "output"
        )


def _pattern(name: str) -> "re.Pattern[str]":
    return re.compile(re.escape(name).replace(re.escape("{N}"), r"(\d+)") + r"\Z")


class NameMap:
    """The rules of one engine for one architecture, which the engine may have a name of its own for."""

    def __init__(self, engine: str, rules: Sequence[Rule], architecture: str, own: str = "") -> None:
        self.engine = engine
        self.architecture = architecture
        known = {architecture, own or architecture}
        named = {rule.checkpoint for rule in rules if known & set(rule.architectures)}
        self.rules = [
            rule
            for rule in rules
            if not known & set(rule.not_architectures)
            and (known & set(rule.architectures) or (not rule.architectures and rule.checkpoint not in named))
        ]
        self.exact: Dict[str, List[Rule]] = {}  # of modules by the names that they have themselves
        self._by_name = [(r, [_pattern(n) for n in r.nodes], [_pattern(n) for n in r.reads]) for r in self.rules]
        self._found: Dict[Tuple[str, ...], List[Tuple[Rule, str]]] = {}

    def find(self, node: str, op: str = "", reads: Iterable[str] = ()) -> List[Tuple[Rule, str]]:
        """The rules that fit a node, each with the checkpoint's name in full."""
        key = (node, op, *reads)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = list(self._search(node, op, key[2:]))
        return found

    def _search(self, node: str, op: str, reads: Sequence[str]) -> Iterable[Tuple[Rule, str]]:
        for rule, names, inputs in self._by_name:
            if op in rule.not_ops or (rule.ops and op not in rule.ops):
                continue
            layer = ""
            if names:
                match = next((m for m in (p.match(node) for p in names) if m), None)
                if match is None:
                    continue
                layer = match.group(1) if match.groups() else ""
            if inputs:
                match = next((m for m in (p.match(n) for p in inputs for n in reads) if m), None)
                if match is None:
                    continue
                layer = match.group(1) if match.groups() else layer
            yield rule, rule.checkpoint.replace("{N}", layer)


def make_rule(item: Dict[str, Any], where: str) -> Rule:
    lists = {"nodes", "reads", "ops", "not_ops", "architectures", "not_architectures"}
    known = lists | {"checkpoint", "part", "take", "order"}
    if not isinstance(item, dict) or not isinstance(item.get("checkpoint"), str):
        raise ValueError(f"{where}: no checkpoint")
    for key, value in item.items():
        if key not in known:
            raise ValueError(f"{where}: unknown field {key!r}")
        if key in lists and not (isinstance(value, list) and value and all(isinstance(v, str) for v in value)):
            raise ValueError(f"{where}: {key} is no list of names")
    if not (item.get("nodes") or item.get("reads")):
        raise ValueError(f"{where}: neither nodes nor reads")
    if item.get("part", "q") not in PARTS:
        raise ValueError(f"{where}: part {item['part']!r}, expected one of {', '.join(PARTS)}")
    if item.get("take", "output") not in TAKES:
        raise ValueError(f"{where}: take {item['take']!r}, expected one of {', '.join(TAKES)}")
    if item.get("order", "adjacent") not in ORDERS:
        raise ValueError(f"{where}: order {item['order']!r}, expected one of {', '.join(ORDERS)}")
    fields: Dict[str, Any] = {key: tuple(value) if key in lists else value for key, value in item.items()}
    return Rule(**fields)


@dataclass(frozen=True)
class MapFile:
    engine: str
    rules: List[Rule]
    known_as: Dict[str, str]  # the engine's names of architectures: ours, where they differ


def parse_map(text: str, path: str = "name map") -> MapFile:
    """ValueError where it is none."""
    try:
        data = json.loads(text)
    except ValueError as problem:
        raise ValueError(f"{path}: no JSON: {problem}") from problem
    if not isinstance(data, dict) or data.get("format") != FORMAT or data.get("version") != VERSION:
        raise ValueError(f"{path}: not a map of format {FORMAT!r}, version {VERSION}")
    if not isinstance(data.get("engine"), str) or not isinstance(data.get("rules"), list):
        raise ValueError(f"{path}: engine or rules are missing")
    rules = [make_rule(item, f"{path}: rule {i}") for i, item in enumerate(data["rules"])]
    return MapFile(data["engine"], rules, dict(data.get("known_as", {})))


def load_file(engine: str) -> MapFile:
    """The map that comes with the package: `llama.cpp`, `transformers` or `vllm`."""
    path = Path(__file__).with_name("names") / f"{engine}.json"
    return parse_map(path.read_text(encoding="utf-8"), str(path))


def load_map(engine: str, architecture: str) -> NameMap:
    file = load_file(engine)
    return NameMap(file.engine, file.rules, file.known_as.get(architecture, architecture), architecture)


def without_layer(node: str) -> str:
    """A node's name with {N} for its number: one entry for all layers in a list of unknown ones."""
    return re.sub(r"(?<=[-.])\d+(?=$|[. (])|(?<=_l)\d+(?=$|[ (])", "{N}", node)
