"""Hooks on the modules of a torch model: which module, or function within one, gives which checkpoint."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

from ._experts import EXPERT_TAKES, ExpertCalls
from .capture._names import NameMap, Rule

# See(rule, name of the checkpoint, tensor); own values: See(None, name of the module, tensor).
See = Callable[[Optional[Rule], str, Any], None]
FUNCTIONS = ("apply_rotary_pos_emb", "apply_rotary_pos_emb_interleave", "apply_rotary_emb", "eager_attention_forward",
             "softmax", "linear", "cat", "_apply_gate")  # fmt: skip
# Where functions are that the file of a module's class does not have: torch's, or methods of the class.
_OF_TORCH = {"softmax": "torch.nn.functional", "linear": "torch.nn.functional", "cat": "torch"}
_METHODS = ("_apply_gate",)
_OF_EXPERTS = ("linear", "_apply_gate")


def _before_sinks(arguments: Tuple[Any, ...], _: Any) -> Any:
    """Scores that a column of sinks is put behind; None where other things are joined."""
    parts = arguments[0]
    if len(parts) != 2 or any(getattr(part, "dim", lambda: 0)() != 4 for part in parts):
        return None
    return parts[0] if parts[1].shape[-1] == 1 and parts[0].shape[:-1] == parts[1].shape[:-1] else None


# What a rule takes of a function: of its arguments and of its results.
_OF_FUNCTIONS: Dict[str, Callable[[Tuple[Any, ...], Any], Any]] = {
    "softmax_input": lambda arguments, _: arguments[0],
    "before_sinks": _before_sinks,
    "query": lambda arguments, _: arguments[1],
    "new_keys": lambda arguments, _: arguments[2][..., -arguments[1].shape[-2] :, :],  # those before are the cache's
    "new_values": lambda arguments, _: arguments[3][..., -arguments[1].shape[-2] :, :],
    "first_output": lambda _, results: results[0],
    "second_output": lambda _, results: results[1],
}
# Where nothing is computed, or where a value only passes.
_SILENT = ("Dropout", "Identity", "ModuleList", "ModuleDict", "ParameterList")


def plain_names(model: Any) -> List[Tuple[str, Any]]:
    """All modules by name, those under several names once for each; without what torch.compile puts around them."""
    found: Dict[str, Any] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        parts = [part for part in name.split(".") if part != "_orig_mod"]
        found[".".join(parts)] = module  # the inner one comes later
    return list(found.items())


def shift_names(modules: List[Tuple[str, Any]], names: NameMap) -> List[Tuple[str, str, Any]]:
    """(name as rules have it, own name, module): a wrapper's prefix is taken off, or what a part lacks is put before."""
    votes: Dict[Tuple[str, str], int] = {("", ""): 0}
    starts = {node.split(".")[0] + "." for rule in names.rules for node in rule.nodes if "." in node}
    for name, _ in modules:
        parts = name.split(".")
        for cut in range(len(parts)):
            if names.find(".".join(parts[cut:])):
                off = "".join(part + "." for part in parts[:cut])
                votes[off, ""] = votes.get((off, ""), 0) + 1
        for start in starts:
            if name and names.find(start + name):
                votes["", start] = votes.get(("", start), 0) + 1
    off, on = max(votes, key=lambda way: (votes[way], -len(way[0]) - len(way[1])))
    shifted = []
    for name, module in modules:
        known = name
        if off and name.startswith(off):
            known = name[len(off) :]
        elif off:
            known = ""
        elif on and name:
            known = on + name
        shifted.append((known, name, module))
    return shifted


def first_tensor(value: Any) -> Any:
    """The first tensor of floating-point numbers in what a module takes or gives; None where there is none."""
    if hasattr(value, "is_floating_point"):
        return value if value.is_floating_point() else None
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        for item in value:
            found = first_tensor(item)
            if found is not None:
                return found
    return None


class Watcher:
    """Shows `see` the values that rules name, and of modules that no rule knows the outputs of those that are `own`."""

    def __init__(
        self, model: Any, names: NameMap, wanted: Callable[[str], bool], see: See, own: Callable[[str], bool] = lambda _: False
    ) -> None:
        import torch

        self._torch, self._names, self._wanted, self._see = torch, names, wanted, see
        disable: Callable[[Any], Any] = getattr(getattr(torch, "compiler", None), "disable", lambda function: function)
        self._opaque = disable  # the compiler leaves hooks alone, and its graphs break there
        self._hooks: List[Any] = []
        self._inside: List[str] = []  # modules that run, as far as they matter, the innermost last
        self._experts: Dict[str, ExpertCalls] = {}  # by module
        self._functions: Dict[str, Dict[str, Any]] = {}  # function that rules name: {module: it}
        self.modules = shift_names(plain_names(model), names)
        self.mapped = 0  # modules and functions that a rule takes
        self.unmapped: Dict[str, None] = {}  # own names of modules that no rule takes, in order
        self.compiled = any(hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None
                            for module in model.modules())  # fmt: skip
        self._of_experts = {known for known, _, _ in self.modules if self._has_experts(known)}
        places: Dict[int, List[Tuple[str, str]]] = {}
        for known, name, module in self.modules:
            places.setdefault(id(module), []).append((known, name))
        for known, name, module in self.modules:
            if places[id(module)][0][1] == name:
                self._attach(module, places[id(module)], own)
            for function in FUNCTIONS:
                if self._rules(f"{known}:{function}"):
                    self._functions.setdefault(function, {})[known] = module
        shared = {known.rpartition(".")[0] for ways in places.values() if len(ways) > 1 for known, _ in ways}
        around = shared | {known for of in self._functions.values() for known in of}
        for known, _, module in self.modules:
            if known in around:
                self._follow(module, known)
        self.mapped += sum(len(of) for of in self._functions.values())

    def _rules(self, node: str) -> List[Tuple[Rule, str]]:
        return [(rule, name) for rule, name in self._names.find(node) if self._wanted(name)]

    def _has_experts(self, known: str) -> bool:
        return any(rule.take in EXPERT_TAKES for function in _OF_EXPERTS for rule, _ in self._names.find(f"{known}:{function}"))

    def watches(self, functions: Iterable[str]) -> bool:
        return any(function in self._functions for function in functions)

    def _hook(self, module: Any, function: Any) -> None:
        self._hooks.append(module.register_forward_hook(self._opaque(function), with_kwargs=True))

    def _attach(self, module: Any, places: List[Tuple[str, str]], own: Callable[[str], bool]) -> None:
        rules = {known: self._rules(known) for known, _ in places}
        if any(rules.values()):
            self.mapped += sum(map(len, rules.values()))
            self._hook(module, self._keep(rules))
            return
        known, name = places[0]
        if known.rpartition(".")[0] in self._of_experts:
            return  # called for each expert, with the rows that chose it
        if name and not any(True for _ in module.children()) and not self._names.find(known):
            if type(module).__name__ not in _SILENT and not type(module).__name__.startswith("Dropout"):
                self.unmapped[name] = None
                if own(name):
                    self._hook(module, self._keep_own([name for _, name in places]))

    def _follow(self, module: Any, known: str) -> None:
        def enter(*_: Any) -> None:
            self._inside.append(known)

        def leave(_: Any, inputs: Any, *__: Any) -> None:
            if known in self._experts:
                self._finish_experts(known, inputs)
            if known in self._inside:
                del self._inside[len(self._inside) - 1 - self._inside[::-1].index(known) :]

        self._hooks.append(module.register_forward_pre_hook(self._opaque(enter)))
        self._hooks.append(module.register_forward_hook(self._opaque(leave)))

    def _finish_experts(self, known: str, inputs: Any) -> None:
        found = self._experts.pop(known).finish(inputs[1] if len(inputs) > 1 else None)
        for function in _OF_EXPERTS:
            for rule, name in self._rules(f"{known}:{function}"):
                if rule.take in found:
                    self._see(rule, name, found[rule.take])

    def _place(self, names: List[str]) -> str:
        """Which of a shared module's names is meant: the one within the module that runs."""
        for around in reversed(self._inside):
            for name in names:
                if name.rpartition(".")[0] == around or name.rpartition(".")[0].endswith("." + around):
                    return name
        return names[0]

    def _keep(self, rules: Dict[str, List[Tuple[Rule, str]]]) -> Callable[..., None]:
        def hook(module: Any, inputs: Any, named: Any, output: Any) -> None:
            for rule, name in rules[self._place(list(rules)) if len(rules) > 1 else next(iter(rules))]:
                value = self._take(rule, inputs, named, output)
                if value is not None:
                    self._see(rule, name, value)

        return hook

    def _keep_own(self, names: List[str]) -> Callable[..., None]:
        def hook(module: Any, inputs: Any, named: Any, output: Any) -> None:
            value = first_tensor(output)
            if value is not None:
                self._see(None, self._place(names) if len(names) > 1 else names[0], value)

        return hook

    @staticmethod
    def _take(rule: Rule, inputs: Any, named: Any, output: Any) -> Any:
        outputs = output if isinstance(output, (tuple, list)) else (output,)
        if rule.take == "input":
            found = first_tensor(inputs)
            return first_tensor(named.get("hidden_states", named)) if found is None else found
        if rule.take == "second_output":
            return first_tensor(outputs[1:2])
        if rule.take == "third_output":  # which may be whole numbers, such as those of experts
            return outputs[2].float() if len(outputs) > 2 else None
        if rule.take == "sum_of_outputs" and len(outputs) > 1 and first_tensor(outputs[1:2]) is not None:
            return outputs[0] + outputs[1]
        return first_tensor(output)

    @contextmanager
    def functions_watched(self) -> Iterator[None]:
        """Functions that rules name stand in for themselves meanwhile."""
        replaced: List[Tuple[Any, str, Any]] = []

        def replace(owner: Any, function: str, see: Callable[[str, Tuple[Any, ...], Any], None]) -> None:
            original = getattr(owner, function)
            within = self._functions[function]

            def told(arguments: Tuple[Any, ...], result: Any) -> None:
                if self._inside and self._inside[-1] in within:
                    see(f"{self._inside[-1]}:{function}", arguments, result)

            told = self._opaque(told)

            def wrapper(*args: Any, **kwargs: Any) -> Any:
                result = original(*args, **kwargs)
                told(args or (kwargs.get("input"),), result)
                return result

            setattr(owner, function, wrapper)
            replaced.append((owner, function, original))

        def seen(node: str, arguments: Tuple[Any, ...], result: Any) -> None:
            rules = self._rules(node)
            if any(rule.take in EXPERT_TAKES for rule, _ in rules):
                self._experts.setdefault(node.rpartition(":")[0], ExpertCalls()).add(arguments, result)
                return
            for rule, name in rules:
                value = _OF_FUNCTIONS[rule.take](arguments, result)
                if value is not None:
                    self._see(rule, name, value)

        try:
            for function, within in self._functions.items():
                if function in _METHODS:
                    owners: List[Any] = list({type(module) for module in within.values()})
                elif function in _OF_TORCH:
                    owners = [sys.modules.get(_OF_TORCH[function])]
                else:  # of the file that the module's class is in
                    owners = [sys.modules.get(name) for name in {type(module).__module__ for module in within.values()}]
                for owner in owners:
                    if hasattr(owner, function):
                        replace(owner, function, seen)
            yield
        finally:
            for owner, function, original in replaced:
                setattr(owner, function, original)

    def begin(self) -> None:
        """Before a pass: one that raised an exception left its modules entered."""
        self._inside.clear()
        self._experts.clear()

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
