"""A model of transformers whose modules are watched while it runs."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from .. import _checkpoints
from . import _command as command
from ._command import CaptureError
from ._names import Rule, load_map, without_layer


def to_numpy(tensor: Any) -> npt.NDArray[Any]:
    """A copy of the numbers as they are; bfloat16 as its bits."""
    tensor = tensor.detach().cpu().contiguous()
    if str(tensor.dtype) == "torch.bfloat16":
        import torch

        return np.array(tensor.view(torch.int16).numpy().view(np.uint16))
    return np.array(tensor.numpy())


class Run:
    """One sequence through a model. `notes` says what could not be recorded; `unmapped` what no rule takes."""

    def __init__(self, model: Any, checkpoints: str = "all") -> None:
        import torch

        self._torch = torch
        self.model = model
        self._checkpoints = checkpoints
        config = model.config.get_text_config()
        self._names = load_map("transformers", model.config.model_type)
        self.architecture = self._names.architecture
        self.heads = int(getattr(config, "num_attention_heads", 0) or 0)
        self.kv_heads = int(getattr(config, "num_key_value_heads", None) or self.heads)
        self.values: Dict[str, npt.NDArray[Any]] = {}
        self.logits: npt.NDArray[np.float32] = np.empty((0, 0), np.float32)
        self.notes: List[str] = []
        self.unmapped: Dict[str, None] = {}
        self._end = 0  # the position after the last of the step
        self._cache: Any = None
        self._hooks: List[Any] = []
        self._inside: Optional[str] = None  # the attention module that runs
        self._functions: Dict[str, List[str]] = {}  # of functions that rules name: modules they are called in
        self._attach()

    # Where values come from

    def _attach(self) -> None:
        found = 0
        modules = dict(self.model.named_modules())
        for name, module in modules.items():
            rules = self._wanted(name)
            found += len(rules)
            for function in ("apply_rotary_pos_emb", "softmax"):
                if self._wanted(f"{name}:{function}"):
                    self._functions.setdefault(function, []).append(name)
            if any(name in of for of in self._functions.values()):
                self._hooks.append(module.register_forward_pre_hook(self._enter(name)))
                self._hooks.append(module.register_forward_hook(self._leave))
            if rules:
                self._hooks.append(module.register_forward_hook(self._keep(rules), with_kwargs=True))
            elif name and not list(module.children()) and not self._names.find(name):
                self.unmapped[without_layer(name)] = None
        if not any(self._names.find(name) for name in modules):
            self._attach_generic(modules)

    def _wanted(self, node: str) -> List[Tuple[Rule, str]]:
        return [(r, n) for r, n in self._names.find(node) if command.wanted(self._checkpoints, n) and n != "logits"]

    def _attach_generic(self, modules: Dict[str, Any]) -> None:
        """The longest list of modules of one class is taken for the layers."""
        layers: Sequence[Any] = ()
        for module in modules.values():
            if isinstance(module, self._torch.nn.ModuleList) and len(module) > len(layers):
                if max(Counter(type(child) for child in module).values()) == len(module):
                    layers = list(module)
        if not layers:
            raise CaptureError(f"architecture '{self.architecture}': no layers were found")
        self.notes.append(f"architecture '{self.architecture}' has no name map: layers and logits alone are recorded")
        rule = Rule("generic", nodes=("",))
        for index, layer in enumerate(layers):
            if command.wanted(self._checkpoints, f"blk.{index}.output"):
                self._hooks.append(layer.register_forward_hook(
                    self._keep([(rule, f"blk.{index}.output")]), with_kwargs=True))  # fmt: skip
        if command.wanted(self._checkpoints, "embedding"):
            entering = Rule("generic", nodes=("",), take="input")
            self._hooks.append(layers[0].register_forward_hook(
                self._keep([(entering, "embedding")]), with_kwargs=True))  # fmt: skip

    def _enter(self, name: str) -> Callable[..., None]:
        def hook(module: Any, inputs: Any) -> None:
            self._inside = name

        return hook

    def _leave(self, module: Any, inputs: Any, output: Any) -> None:
        self._inside = None

    def _keep(self, rules: List[Tuple[Rule, str]]) -> Callable[..., None]:
        def hook(module: Any, inputs: Any, named: Any, output: Any) -> None:
            for rule, name in rules:
                if rule.take == "input":
                    value = inputs[0] if inputs else named.get("hidden_states", next(iter(named.values()), None))
                elif rule.take == "second_output":
                    value = output[1] if isinstance(output, tuple) and len(output) > 1 else None
                else:
                    value = output[0] if isinstance(output, tuple) else output
                if value is not None:
                    self._record(rule, name, value)

        return hook

    def _record(self, rule: Rule, name: str, tensor: Any) -> None:
        """`tensor` is [1, tokens, ...], or [1, heads, tokens, ...] for what attention handles head by head."""
        value = tensor[0]
        if _checkpoints.is_scores(name):
            if name.endswith("scores"):  # what is hidden has the type's lowest number added
                hidden = value <= self._torch.finfo(value.dtype).min / 2
                value = value.masked_fill(hidden, -float("inf"))
            self.values[name] = self._whole_rows(name, to_numpy(value))
            return
        if rule.take in ("first_output", "second_output"):
            value = value.transpose(0, 1)
        if rule.order == "adjacent":
            heads = self.kv_heads if name.endswith((".k", ".k_rope")) else self.heads
            value = value.reshape(value.shape[0], heads, 2, -1).transpose(2, 3)
        value = value.reshape(value.shape[0], -1)
        if rule.part:
            value = value[:, self._part(rule.part, value.shape[1])]
        self.values[name] = to_numpy(value)

    def _part(self, part: str, width: int) -> slice:
        if part in ("gate", "up"):
            return slice(0, width // 2) if part == "gate" else slice(width // 2, width)
        head = width // (self.heads + 2 * self.kv_heads)
        q, k = head * self.heads, head * self.kv_heads
        return {"q": slice(0, q), "k": slice(q, q + k), "v": slice(q + k, width)}[part]

    def _whole_rows(self, name: str, value: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A cache that forgets what lies before a window has fewer columns; those it lacks are hidden."""
        lacking = self._end - value.shape[2]
        if lacking <= 0:
            return value[:, :, : self._end]
        hidden: Any = 0
        if name.endswith("scores"):
            hidden = np.uint16(0xFF80) if value.dtype == np.uint16 else -np.inf
        return np.pad(value, ((0, 0), (0, 0), (lacking, 0)), constant_values=hidden)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Functions that rules name stand in for themselves while the model runs."""
        replaced: List[Tuple[Any, str, Any]] = []

        def replace(owner: Any, function: str, see: Callable[[str, Any, Any], None]) -> None:
            original = getattr(owner, function)

            def wrapper(*args: Any, **kwargs: Any) -> Any:
                result = original(*args, **kwargs)
                if self._inside in self._functions[function]:
                    see(f"{self._inside}:{function}", args[0] if args else kwargs["input"], result)
                return result

            setattr(owner, function, wrapper)
            replaced.append((owner, function, original))

        def rotated(node: str, _: Any, result: Any) -> None:
            for rule, name in self._wanted(node):
                self._record(rule, name, result[rule.take == "second_output"])

        def scored(node: str, argument: Any, _: Any) -> None:
            for rule, name in self._wanted(node):
                self._record(rule, name, argument)

        try:
            if "softmax" in self._functions:
                replace(self._torch.nn.functional, "softmax", scored)
            rotating = self._functions.get("apply_rotary_pos_emb", ())
            owners = {type(self.model.get_submodule(name)).__module__ for name in rotating}
            for owner in owners:
                replace(sys.modules[owner], "apply_rotary_pos_emb", rotated)
            yield
        finally:
            for owner, function, original in replaced:
                setattr(owner, function, original)

    # Running

    def step(self, tokens: Sequence[int], first: int) -> Dict[str, npt.NDArray[Any]]:
        self.values, self._end = {}, first + len(tokens)
        ids = self._torch.tensor([list(tokens)], device=self.model.device)
        with self._torch.no_grad(), self._watched():
            output = self.model(input_ids=ids, past_key_values=self._cache, use_cache=True)
        self._cache = output.past_key_values
        logits = output.logits[0]
        self.logits = to_numpy(logits[-1:].double())
        if command.wanted(self._checkpoints, "logits"):
            self.values["logits"] = to_numpy(logits)
        return self.values

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
