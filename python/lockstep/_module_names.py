"""Which rules name the modules of a torch model: those of a known engine, the user's own, or a guess."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from . import _checkpoints
from ._watch import known_names, plain_names
from .capture._names import MapFile, NameMap, Rule, load_file, make_rule, parse_map

# A checkpoint, the fields of a rule, or several of either: a fused value.
Target = Union[str, Mapping[str, str], Sequence[Union[str, Mapping[str, str]]]]
Names = Union[str, Path, Mapping[str, Target]]
ENGINES = {"transformers": "transformers", "vllm": "vllm", "sglang": "vllm"}
_PARTS = {"q": "q", "k": "k", "v": "v", "ffn_gate": "gate", "ffn_up": "up"}


def _expression(pattern: str) -> "re.Pattern[str]":
    text = re.escape(pattern).replace(r"\{N\}", r"(?P<N>\d+)", 1).replace(r"\{N\}", r"(?P=N)").replace(r"\*", ".*")
    return re.compile(text + r"\Z")


def _targets(pattern: str, target: Target) -> Iterable[Dict[str, Any]]:
    several = [target] if isinstance(target, (str, Mapping)) else list(target) if isinstance(target, (list, tuple)) else []
    if not several or not all(isinstance(item, (str, Mapping)) for item in several):
        raise ValueError(f"names: {pattern!r}: {target!r}; expected a checkpoint, the fields of a rule, or a list of these")
    for item in several:
        fields: Dict[str, Any] = {"checkpoint": item} if isinstance(item, str) else dict(item)
        leaf = item.rpartition(".")[2] if isinstance(item, str) and len(several) > 1 else ""
        if leaf:
            if leaf not in _PARTS and all(isinstance(other, str) for other in several):
                raise ValueError(f"names: {pattern!r}: {item!r} is no part of a fused value; these are {', '.join(_PARTS)}")
            fields.update({"part": _PARTS[leaf]} if leaf in _PARTS else {})
        yield fields


def own_rules(names: Mapping[str, Target], modules: Mapping[str, Any]) -> List[Rule]:
    """The user's patterns ({N}: a number, *: anything), a rule for each module that fits."""
    rules = []
    taken: Dict[str, str] = {}  # module of each checkpoint
    for pattern, target in names.items():
        expression = _expression(pattern)
        found = [(name, match) for name in modules for match in [expression.match(name)] if match]
        if not found:
            known = ", ".join(dict.fromkeys(re.sub(r"\b\d+\b", "{N}", name) for name in modules if name))
            raise ValueError(f"names: no module is called {pattern!r}; modules are {known[:2000] or 'none'}")
        for name, match in found:
            layer = match.groupdict().get("N") or ""
            for fields in _targets(pattern, target):
                rule = make_rule({**fields, "nodes": [name]}, f"names: {pattern!r}")
                checkpoint = rule.checkpoint.replace("{N}", layer)
                if not layer and "{N}" in rule.checkpoint:
                    raise ValueError(f"names: {pattern!r} has no {{N}}, and {rule.checkpoint!r} has one")
                if not _checkpoints.is_checkpoint(checkpoint):
                    raise ValueError(f"names: {pattern!r}: {checkpoint!r} is no checkpoint; expected one of embedding, "
                                     "blk.{N}.q, ..., logits (docs/checkpoints.md)")  # fmt: skip
                other = taken.setdefault(checkpoint, name)
                if modules[other] is not modules[name]:
                    raise ValueError(f"names: {pattern!r}: {checkpoint!r} would be the value of both {other!r} and {name!r}")
                rules.append(Rule(checkpoint, (name,), part=rule.part, take=rule.take, order=rule.order))
    return rules


def layer_rules(model: Any) -> List[Rule]:
    """Of a model that nobody knows: the longest list of modules of one class is taken for its layers."""
    modules = plain_names(model)
    of_decoder = [(name, module) for name, module in modules if "decoder" in name.split(".")]
    has_encoder = any("encoder" in name.split(".") for name, _ in modules)
    layers = (has_encoder and _longest_list(of_decoder)) or _longest_list(modules)
    rules = [Rule(f"blk.{index}.output", (name,)) for index, name in enumerate(layers)]
    return [Rule("embedding", (layers[0],), take="input"), *rules] if rules else []


def _longest_list(modules: Iterable[Tuple[str, Any]]) -> List[str]:
    import torch

    layers: List[str] = []
    for name, module in modules:
        if isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)) and len(module) > max(1, len(layers)):
            kinds = Counter(type(getattr(child, "_orig_mod", child)) for child in module)
            if max(kinds.values()) == len(module) and any(True for _ in module[0].children()):
                layers = [f"{name}.{index}" if name else str(index) for index in range(len(module))]
    return layers


def with_config(model: Any) -> Any:
    """The model, or the first module within a wrapper that says by its config what it is."""
    inner = getattr(model, "_orig_mod", model)
    for module in (inner, *inner.modules()):
        if isinstance(getattr(getattr(module, "config", None), "model_type", None), str):
            return module
    return model


def whole_models(model: Any) -> List[Any]:
    """The model, and what it is a wrapper of: `generate` of a wrapper may call the inner one alone."""
    found = [model]
    while len(found) < 8:
        children = list(found[-1].named_children())
        if len(children) != 1 or children[0][0] == "_orig_mod" or not any(True for _ in children[0][1].children()):
            return found
        found.append(children[0][1])
    return found


def engine_of(model: Any) -> str:
    """What runs the model, by where its class was written."""
    inner = getattr(model, "_orig_mod", model)
    for kind in type(inner).__mro__:
        package = kind.__module__.partition(".")[0]
        if package in ENGINES:
            return package
    return "torch"


def rules_for(
    model: Any, engine: str, architecture: str, names: Optional[Names]
) -> Tuple[NameMap, Optional[str]]:
    """The rules, and a note where they were guessed."""
    modules = dict(plain_names(model))
    file: Optional[MapFile] = None
    mine: List[Rule] = []
    if isinstance(names, Mapping):
        mine = own_rules(names, modules)
    elif names is not None and not isinstance(names, (str, Path)):
        engines = ", ".join(ENGINES)
        raise TypeError(f"names: {type(names).__name__}; expected a mapping, the file of a name map, or one of {engines}")
    elif names is not None and str(names) not in ENGINES:
        path = Path(names)
        try:
            file = parse_map(path.read_text(encoding="utf-8"), str(path))
        except OSError as problem:
            engines = ", ".join(ENGINES)
            raise ValueError(f"names: {path}: {problem.strerror}; expected a name map, or one of {engines}") from problem
    if file is None:
        file = load_file(ENGINES.get(str(names), ENGINES.get(engine, "transformers")))
    own, architecture = architecture, file.known_as.get(architecture, architecture)
    known = NameMap(file.engine, file.rules, architecture, own)
    taken = {rule.checkpoint for rule in mine}
    if any(fits(known, name) for name in modules):
        rest = [rule for rule in known.rules if "{N}" in rule.checkpoint or rule.checkpoint not in taken]
        layered = {re.sub(r"\d+", "{N}", checkpoint, count=1) for checkpoint in taken}
        rest = [rule for rule in rest if rule.checkpoint not in layered]
        known = NameMap(file.engine, [_for_all(rule) for rule in rest], architecture)
        for rule in mine:  # a map may know the modules under a prefix, or without one
            known.exact.setdefault(rule.nodes[0], []).append(rule)
        return known, None
    note = None
    if not mine:
        mine = layer_rules(model)
        note = f"no name map knows the modules of {type(model).__name__}: "
        note += "layers and logits are recorded as checkpoints" if mine else "no layers were found"
    return NameMap(file.engine, mine, architecture), note


def _for_all(rule: Rule) -> Rule:
    """Chosen for the architecture already."""
    return Rule(rule.checkpoint, rule.nodes, rule.reads, rule.ops, rule.not_ops, rule.part, rule.take, rule.order)


def fits(names: NameMap, module: str) -> bool:
    ways = known_names(module, ("model.", "transformer."))
    return any("blk." in name for _, _, known in ways for _, name in names.find(known))
