"""Hooks on the modules of a torch model: which module, or function within one, gives which checkpoint."""

from __future__ import annotations

import dataclasses
import sys
import threading
from contextlib import ExitStack, contextmanager
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Set, Tuple

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
    "output": lambda _, results: results,
    "softmax_input": lambda arguments, _: arguments[0],
    "before_sinks": _before_sinks,
    "query": lambda arguments, _: arguments[1],
    "new_keys": lambda arguments, _: arguments[2][..., -arguments[1].shape[-2] :, :],  # those before are the cache's
    "new_values": lambda arguments, _: arguments[3][..., -arguments[1].shape[-2] :, :],
    "first_output": lambda _, results: results[0],
    "second_output": lambda _, results: results[1],
}
# What a rule takes of a module.
_OF_MODULES = ("output", "input", "first_output", "second_output", "third_output", "sum_of_outputs")
# Where nothing is computed, or where a value only passes.
_SILENT = ("Dropout", "Identity", "ModuleList", "ModuleDict", "ParameterList")
_OF_TEXT = ("language_model", "text_model")  # the part of a model that sees or hears too
# What torch.compile, activation checkpointing and FSDP put into the names of modules that they wrap.
_WRAPPERS = ("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module")


def plain_names(model: Any) -> List[Tuple[str, Any]]:
    """All modules by name, those under several names once for each; without what torch puts around them."""
    found: Dict[str, Any] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        parts = [part for part in name.split(".") if part not in _WRAPPERS]
        found[".".join(parts)] = module  # the inner one comes later
    return list(found.items())


def known_names(name: str, starts: Iterable[str]) -> Iterator[Tuple[str, str, str]]:
    """How a map may know a module: (what is taken off, what is put before, the name then)."""
    parts = name.split(".")
    for cut in range(len(parts)):
        off, rest = "".join(part + "." for part in parts[:cut]), ".".join(parts[cut:])
        yield off, "", rest
        if not cut or parts[cut - 1] in _OF_TEXT:
            yield from ((off, start, start + rest) for start in starts if rest)


def shift_names(modules: List[Tuple[str, Any]], names: NameMap) -> List[Tuple[str, str, Any]]:
    """(name as rules have it, own name, module): a wrapper's prefix is taken off, or what a part lacks is put before."""
    votes: Dict[Tuple[str, str], int] = {("", ""): 0}
    starts = {node.split(".")[0] + "." for rule in names.rules for node in rule.nodes if "." in node}
    for name, _ in modules:
        for off, on, known in known_names(name, starts):
            if names.find(known):
                votes[off, on] = votes.get((off, on), 0) + 1
    off, on = max(votes, key=lambda way: (votes[way], -len(way[0]) - len(way[1])))
    shifted = []
    for name, module in modules:
        known = name
        if off and not name.startswith(off):
            known = ""
        elif name:
            known = on + name[len(off) :]
        shifted.append((known, name, module))
    return shifted


def _is_within(name: str, around: str) -> bool:
    """Whether a module is part of another; either name may have a prefix that the other lacks."""
    parent = name.rpartition(".")[0]
    return parent == around or parent.endswith("." + around) or (parent != "" and around.endswith("." + parent))


def first_tensor(value: Any) -> Any:
    """The first tensor of floating-point numbers in what a module takes or gives; None where there is none."""
    if hasattr(value, "is_floating_point"):
        return value if value.is_floating_point() else None
    if isinstance(value, Mapping):
        value = list(value.values())
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = [getattr(value, field.name) for field in dataclasses.fields(value)]
    if isinstance(value, (tuple, list)):
        for item in value:
            found = first_tensor(item)
            if found is not None:
                return found
    return None


Told = Callable[[Tuple[Any, ...], Any], None]
# Functions that stand in for themselves while somebody listens: {(owner, function): (itself, listeners)}.
_LISTENERS: Dict[Tuple[Any, str], Tuple[Any, List[Told]]] = {}


def listen(owner: Any, function: str, told: Told) -> Callable[[], None]:
    """Tells of each call, and gives the way to end that. Recordings may end in another order than they began."""
    key = (owner, function)
    if key not in _LISTENERS:
        _LISTENERS[key] = (getattr(owner, function), [])
        original, listeners = _LISTENERS[key]

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            for listener in listeners:
                listener(args or (kwargs.get("input"),), result)
            return result

        setattr(owner, function, wrapper)
    _LISTENERS[key][1].append(told)

    def leave() -> None:
        original, listeners = _LISTENERS[key]
        listeners.remove(told)
        if not listeners:
            del _LISTENERS[key]
            setattr(owner, function, original)

    return leave


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
        self._turns: Dict[Tuple[str, ...], int] = {}  # calls in this pass of modules that have several names
        self._called: Set[str] = set()  # modules and functions that were, in this pass
        self._is_over = False  # the pass; what comes now may be values that were made after it, or the same ones again
        self._thread: Optional[int] = None  # the one that is within the model
        self.again: Dict[str, None] = {}  # recorded names of what a pass computes several times
        self._experts: Dict[str, ExpertCalls] = {}  # by module
        self._functions: Dict[str, Dict[str, Any]] = {}  # function that rules name: {module: it}
        self.modules = shift_names(plain_names(model), names)
        self.mapped = 0  # modules and functions that a rule takes
        self.scripted: List[str] = []  # modules that torch.jit compiled
        self.unmapped: Dict[str, None] = {}  # own names of modules that no rule takes, in order
        self.compiled = any(hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None
                            or hasattr(vars(module).get("forward"), "_torchdynamo_orig_callable")
                            for module in model.modules())  # fmt: skip
        self._of_experts = {known for known, _, _ in self.modules if self._has_experts(known)}
        places: Dict[int, Tuple[Any, List[Tuple[str, str]]]] = {}
        for known, name, module in self.modules:
            places.setdefault(id(module), (module, []))[1].append((known, name))
            for function in FUNCTIONS:
                if self._rules(f"{known}:{function}"):
                    self._functions.setdefault(function, {})[known] = module
        shared = {known.rpartition(".")[0] for _, ways in places.values() if len(ways) > 1 for known, _ in ways}
        ruled = {known for of in self._functions.values() for known in of}
        around = shared | ruled
        ruled |= {known for known, name, _ in self.modules if self._rules(known, name)}
        for module, ways in places.values():
            if isinstance(module, torch.jit.ScriptModule):  # torch lets nobody watch it
                self.unmapped[ways[0][1]] = None
                self.scripted += [] if any(_is_within(ways[0][1], known) for known in self.scripted) else [ways[0][1]]
                continue
            self._attach(module, ways, own)
            known_as = [known for known, _ in ways]
            if around.intersection(known_as):
                # Of several names those count that rules know, or know what is within.
                of_rules = [n for n in known_as if any(r == n or r.startswith(n + ".") for r in ruled)] if known_as[1:] else []
                self._follow(module, of_rules or known_as)
        self.mapped += sum(len(of) for of in self._functions.values())

    def _rules(self, node: str, own: str = "") -> List[Tuple[Rule, str]]:
        exact = [(rule, rule.checkpoint) for rule in self._names.exact.get(own, ())]
        return [(rule, name) for rule, name in [*self._names.find(node), *exact] if self._wanted(name)]

    def _has_experts(self, known: str) -> bool:
        return any(rule.take in EXPERT_TAKES for function in _OF_EXPERTS for rule, _ in self._names.find(f"{known}:{function}"))

    def watches(self, functions: Iterable[str]) -> bool:
        return any(function in self._functions for function in functions)

    def _hook(self, module: Any, function: Any) -> None:
        self._hooks.append(module.register_forward_hook(self._here(function), with_kwargs=True))

    def _here(self, function: Callable[..., None]) -> Callable[..., None]:
        """Passes over what other threads do during a pass; and nothing of it is part of a backward pass."""
        no_grad = self._torch.no_grad

        def told(*args: Any) -> None:
            if self._thread in (None, threading.get_ident()):
                with no_grad():
                    function(*args)

        return self._opaque(told)  # type: ignore[no-any-return]

    def _attach(self, module: Any, places: List[Tuple[str, str]], own: Callable[[str], bool]) -> None:
        rules = {known or name: found for known, name in places for found in [self._rules(known, name)] if found}
        if rules:
            for rule in {rule for found in rules.values() for rule, _ in found}:
                if rule.take not in _OF_MODULES:
                    raise ValueError(f"names: {places[0][1]!r}: take {rule.take!r} is for functions; of a module a rule takes "
                                     f"{', '.join(_OF_MODULES)}")  # fmt: skip
            self.mapped += sum(map(len, rules.values()))
            self._hook(module, self._keep(rules))
            return
        known, name = places[0]
        if known.rpartition(".")[0] in self._of_experts:
            return  # called for each expert, with the rows that chose it
        if name and not any(True for _ in module.children()) and not self._names.find(known) and name not in self._names.exact:
            if type(module).__name__ not in _SILENT and not type(module).__name__.startswith("Dropout"):
                self.unmapped[name] = None
                if own(name):
                    self._hook(module, self._keep_own([name for _, name in places]))

    def _follow(self, module: Any, names: List[str]) -> None:
        def enter(*_: Any) -> None:
            self._inside.append(self._place(names))

        def leave(_: Any, inputs: Any, *__: Any) -> None:
            entered = [index for index, place in enumerate(self._inside) if place in names]
            if entered:
                if self._inside[entered[-1]] in self._experts:
                    self._finish_experts(self._inside[entered[-1]], inputs)
                del self._inside[entered[-1] :]

        self._hooks.append(module.register_forward_pre_hook(self._here(enter)))
        self._hooks.append(module.register_forward_hook(self._here(leave)))

    def _finish_experts(self, known: str, inputs: Any) -> None:
        found = self._experts.pop(known).finish(inputs[1] if len(inputs) > 1 else None)
        for function in _OF_EXPERTS:
            for rule, name in self._rules(f"{known}:{function}"):
                if rule.take in found:
                    self._see(rule, name, found[rule.take])

    def _place(self, names: List[str]) -> str:
        """Which of a shared module's names is meant: the one within the module that runs, or each in its turn."""
        if len(names) == 1:
            return names[0]
        if self._inside and self._inside[-1] in names:
            return self._inside[-1]
        fitting = names
        for around in reversed(self._inside):
            within = [name for name in names if _is_within(name, around)]
            if within:
                fitting = within
                break
        turn = self._turns[tuple(fitting)] = self._turns.get(tuple(fitting), -1) + 1
        return fitting[min(turn, len(fitting) - 1)]

    def _comes_again(self, place: str, names: Iterable[str]) -> bool:
        """Whether a call tells what is known: a backward pass may compute again what it needs."""
        if place in self._called:
            if self._is_over:
                return True
            self.again.update(dict.fromkeys(names))
        self._called.add(place)
        return False

    def _keep(self, rules: Dict[str, List[Tuple[Rule, str]]]) -> Callable[..., None]:
        places = list(rules)

        def hook(module: Any, inputs: Any, named: Any, output: Any) -> None:
            place = self._place(places)
            if self._comes_again(place, [name for _, name in rules[place]]):
                return
            for rule, name in rules[place]:
                value = self._take(rule, inputs, named, output)
                if value is not None:
                    self._see(rule, name, value)

        return hook

    def _keep_own(self, names: List[str]) -> Callable[..., None]:
        def hook(module: Any, inputs: Any, named: Any, output: Any) -> None:
            value, name = first_tensor(output), self._place(names)
            if value is not None and not self._comes_again(name, [name]):
                self._see(None, name, value)

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
        """Functions that rules name tell of their calls meanwhile."""

        def watch(owner: Any, function: str) -> Callable[[], None]:
            within = self._functions[function]

            def told(arguments: Tuple[Any, ...], result: Any) -> None:
                if self._inside and self._inside[-1] in within:
                    seen(f"{self._inside[-1]}:{function}", arguments, result)

            return listen(owner, function, self._here(told))

        def seen(node: str, arguments: Tuple[Any, ...], result: Any) -> None:
            rules = self._rules(node)
            if self._is_over and node in self._called:
                return
            self._called.add(node)
            if any(rule.take in EXPERT_TAKES for rule, _ in rules):
                self._experts.setdefault(node.rpartition(":")[0], ExpertCalls()).add(arguments, result)
                return
            for rule, name in rules:
                value = _OF_FUNCTIONS[rule.take](arguments, result)
                if value is not None:
                    self._see(rule, name, value)

        with ExitStack() as listening:
            for function, within in self._functions.items():
                if function in _METHODS:
                    owners: List[Any] = list({type(module) for module in within.values()})
                elif function in _OF_TORCH:
                    owners = [sys.modules.get(_OF_TORCH[function])]
                else:  # of the file that the module's class is in
                    owners = [sys.modules.get(name) for name in {type(module).__module__ for module in within.values()}]
                for owner in owners:
                    if hasattr(owner, function):
                        listening.callback(watch(owner, function))
            yield

    def begin(self) -> None:
        """Before a pass: one that raised an exception left its modules entered."""
        self._inside.clear()
        self._experts.clear()
        self._turns.clear()
        self._called.clear()
        self._is_over = False
        self._thread = threading.get_ident()

    def end(self) -> None:
        """After a pass."""
        self._is_over = True
        self._thread = None

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
