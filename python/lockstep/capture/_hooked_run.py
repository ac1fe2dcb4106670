"""A model of transformers whose modules are watched while it runs."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

import numpy as np
import numpy.typing as npt

from .. import _checkpoints
from .._layout import Heads, Layout
from .._module_names import fits, layer_rules
from .._passes import whole_rows
from .._values import tensor_to_numpy as to_numpy
from .._watch import Watcher
from . import _command as command
from ._command import CaptureError
from ._names import NameMap, Rule, load_map, without_layer


class Run:
    """One sequence through a model. `notes` says what could not be recorded; `unmapped` what no rule takes."""

    def __init__(self, model: Any, checkpoints: str = "all") -> None:
        import torch

        self._torch = torch
        self.model = model
        self._checkpoints = checkpoints
        config = model.config.get_text_config()
        names = load_map("transformers", model.config.model_type)
        self.architecture = names.architecture
        heads = int(getattr(config, "num_attention_heads", 0) or 0)
        keys = int(getattr(config, "num_key_value_heads", None) or heads)
        self._heads = Heads(heads, keys, int(getattr(config, "qk_rope_head_dim", None) or 0))
        self.values: Dict[str, npt.NDArray[Any]] = {}
        self.logits: npt.NDArray[np.float32] = np.empty((0, 0), np.float32)
        self.notes: List[str] = []
        self._layout = Layout(1)
        self._end = 0  # the position after the last of the step
        self._cache: Any = None
        if not any(fits(names, name) for name, _ in model.named_modules()):
            rules = layer_rules(model)
            if not rules:
                raise CaptureError(f"architecture '{self.architecture}': no layers were found")
            names = NameMap(names.engine, rules, names.architecture)
            self.notes.append(
                f"architecture '{self.architecture}' has no name map: layers and logits alone are recorded"
            )
        self._watcher = Watcher(model, names, lambda name: command.wanted(checkpoints, name), self._record)
        self.unmapped: Dict[str, None] = {without_layer(name): None for name in self._watcher.unmapped}

    def _record(self, rule: Optional[Rule], name: str, tensor: Any) -> None:
        value = self._layout.value(rule, name, tensor, self._heads)
        if value is None:
            return
        self.values[name] = to_numpy(value, name)
        if _checkpoints.is_scores(name):
            self.values[name] = whole_rows(name, self.values[name], self._end)

    def step(self, tokens: Sequence[int], first: int) -> Dict[str, npt.NDArray[Any]]:
        self.values, self._end, self._layout = {}, first + len(tokens), Layout(len(tokens))
        self._watcher.begin()
        ids = self._torch.tensor([list(tokens)], device=self.model.device)
        with self._torch.no_grad(), self._watcher.functions_watched():
            output = self.model(input_ids=ids, past_key_values=self._cache, use_cache=True)
        self._cache = output.past_key_values
        logits = output.logits[0]
        self.logits = to_numpy(logits[-1:].double())
        if command.wanted(self._checkpoints, "logits"):
            self.values["logits"] = to_numpy(logits)
        return self.values

    def close(self) -> None:
        self._watcher.close()

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
