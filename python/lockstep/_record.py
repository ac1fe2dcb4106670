"""Recording any torch module while it runs: `lockstep.record`."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import sys
import threading
import weakref
from types import TracebackType
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Type, Union

from . import _call, _checkpoints, _limits
from ._copies import Copier, Copy
from ._given import model_file, texts, whole
from ._layout import Heads, Layout
from ._module_names import Names, engine_of, rules_for, whole_models, with_config
from ._passes import Pass, PassWriter
from ._watch import Watcher, first_tensor, listen, plain_names
from ._writer import TraceWriter
from .capture._names import Rule

_SHORT = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16"}

_RAISED = "a call of the module that raised an exception was not recorded"
_COMPILED = ("the model is compiled by torch.compile: each module that is watched breaks a graph, so what the compiler fuses "
             "across modules runs apart here")  # fmt: skip


def _frames_compiled() -> int:
    """How many torch.compile has looked at in this process; functions that call the model are among them."""
    utils = sys.modules.get("torch._dynamo.utils")
    return 0 if utils is None else int(utils.counters["frames"]["total"])


def _kind(dtype: Any) -> str:
    return _SHORT.get(str(dtype).rpartition(".")[2], "")


def _number(config: Any, field: str) -> int:
    """0 where the config has none, or one for each layer."""
    value = getattr(config, field, 0)
    return value if isinstance(value, int) else 0


class Recording:
    """A recording that goes on; `lockstep.record` makes one.

    folder     of the trace
    notes      what is to be known of the recording, sentences
    own_names  values that no rule knows: they are recorded under the names of their modules
    """

    def __init__(
        self,
        model: Any,
        folder: Union[str, "os.PathLike[str]"],
        *,
        checkpoints: Union[str, Sequence[str]] = "all",
        names: Optional[Names] = None,
        own_names: bool = True,
        sequence: int = 0,
        gguf: Union[None, str, "os.PathLike[str]", Mapping[str, str]] = None,
        precision: Optional[Mapping[str, str]] = None,
        engine: Union[None, str, Mapping[str, str]] = None,
        architecture: Optional[str] = None,
        heads: Optional[int] = None,
        kv_heads: Optional[int] = None,
        prompt: str = "",
        n_prompt: Optional[int] = None,
        sampling: Optional[Mapping[str, Any]] = None,
        forward: Optional[Mapping[str, Any]] = None,
        durable: bool = False,
    ) -> None:
        import torch

        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"record: {type(model).__name__} is no torch.nn.Module")
        if isinstance(model, torch.jit.ScriptModule):
            raise TypeError("record: the module was compiled by torch.jit, which calls no hooks; record what it was made of")
        if precision is not None and not isinstance(precision, Mapping):
            raise TypeError(f'record: precision={precision!r}; expected a mapping such as {{"activations": "bf16"}}')
        self._torch, self._model, self._sequence = torch, model, whole("record: sequence", sequence)
        self._wants_own = own_names
        self._precision = dict(precision) if precision is not None else None
        inner = with_config(model)
        config: Any = getattr(inner, "config", None)
        text = config.get_text_config() if hasattr(config, "get_text_config") else config
        kind = engine_of(inner)
        found = architecture or str(getattr(text, "model_type", "") or "")
        self._names, note = rules_for(model, kind, found, names)
        self.architecture = self._names.architecture
        self._checkpoints = self._checked(checkpoints)
        queries = whole("record: heads", heads or _number(text, "num_attention_heads"))
        keys = whole("record: kv_heads", kv_heads or _number(text, "num_key_value_heads") or queries)
        self._heads = Heads(queries, keys, _number(text, "qk_rope_head_dim"))
        self.notes: List[str] = [note] if note else []
        self.own_names: List[str] = []
        self._kind, self._config = kind, text
        self._has_encoder = bool(getattr(config, "is_encoder_decoder", False))
        self._copier = Copier()
        self._widths: Dict[str, int] = {}  # of values under names of their own
        self._pass: Optional[Pass] = None
        self._vocabularies = {int(m.num_embeddings) for m in model.modules() if hasattr(m, "num_embeddings")}
        self._context = contextlib.ExitStack()
        self._running = False
        self._called = False
        self._described = self._autocast = False  # what the trace says of the precision
        self._thread: Optional[int] = None  # the one that is within the module
        self._within: Any = None  # the module that a pass began with
        self._caches: "weakref.WeakKeyDictionary[Any, int]" = weakref.WeakKeyDictionary()  # a number for each
        self._gone = False  # the sequence
        self._raised: Optional[BaseException] = None  # what was being handled when a pass began
        entry = model_file("record: gguf", gguf)
        if gguf is None and self.architecture:
            entry = {"architecture": self.architecture}
        if forward is None and kind == "transformers":
            # Where a model has rope factors for long contexts, the positions so far decide in every step.
            forward = {"context_length": "positions so far"}
        self._writer = TraceWriter(
            folder, engine=engine or self._engine(kind), precision=precision, model=entry, forward=forward, prompt=prompt,
            n_prompt=n_prompt, sampling=sampling, notes=self.notes, durable=durable,
        )  # fmt: skip
        self.notes = self._writer.notes
        self.folder = self._writer.folder
        self._passes = PassWriter(self._writer, n_prompt is None, bool(sampling))

    def _engine(self, kind: str) -> Dict[str, str]:
        package = sys.modules.get(kind, self._torch)
        parameter = next(self._model.parameters(), None)
        device = "cpu" if parameter is None else str(parameter.device)
        return {"name": kind, "version": str(getattr(package, "__version__", "")), "device": device}

    # Beginning and end

    def start(self) -> "Recording":
        """Attaches the hooks; a `with` block does it by itself."""
        if self._running:
            return self
        if self._writer.closed:
            raise ValueError(f"record: {self.folder} is written and closed; lockstep.record makes a new recording")
        try:
            self._watcher = Watcher(self._model, self._names, self._wanted, self._see, self._wants_own_name)
            self._context.callback(self._watcher.close)
            self._tell_of_fused_parts()
            self._context.enter_context(self._watcher.functions_watched())
            if self._watcher.scripted:
                self._say("modules that torch.jit compiled call no hooks and were not recorded: "
                          f"{', '.join(self._watcher.scripted)}")  # fmt: skip
            if self._watcher.compiled:
                self._say(_COMPILED)
            self._context.enter_context(self._compiler_sees_hooks())
            disable = getattr(getattr(self._torch, "compiler", None), "disable", lambda function: function)
            for module in whole_models(self._model):
                before = module.register_forward_pre_hook(disable(self._begin), with_kwargs=True)
                after = module.register_forward_hook(disable(self._end), always_call=True)
                self._context.callback(before.remove)
                self._context.callback(after.remove)
            self._context.enter_context(self._beams_followed())
        except BaseException:
            self._context.close()
            self._writer.abandon()
            raise
        self._running = True
        return self

    def _tell_of_fused_parts(self) -> None:
        """What transformers does in one call has no values within."""
        for part, functions in (("attn", ("softmax", "eager_attention_forward")), ("experts", ("linear", "_apply_gate"))):
            chosen = getattr(self._config, f"_{part}_implementation", None)
            if self._kind == "transformers" and chosen not in (None, "eager") and self._watcher.watches(functions):
                self._say(f'{part}_implementation="{chosen}" shows no values within; "eager" does')

    @contextlib.contextmanager
    def _compiler_sees_hooks(self) -> Any:
        """Code that was compiled without hooks would go on without them; and what is compiled with them, after their end."""
        before = _frames_compiled()
        with contextlib.ExitStack() as meanwhile:
            if before or self._watcher.compiled:
                dynamo = self._torch._dynamo
                dynamo.reset()
                if hasattr(dynamo.config, "skip_nnmodule_hook_guards"):
                    meanwhile.enter_context(dynamo.config.patch(skip_nnmodule_hook_guards=False))
            yield
        if _frames_compiled() > before:
            self._say(_COMPILED)
        if _frames_compiled():
            self._torch._dynamo.reset()

    def close(self) -> None:
        """Removes the hooks and writes what is left; the trace is complete."""
        self._context.close()
        try:
            if self._running:
                self._running = False
                self._finish_pass()
                self._passes.drain(everything=True)
            self._describe()
            self._writer.close()
        except BaseException:
            with contextlib.suppress(Exception):  # the first problem is the one to tell
                self._writer.abandon()
            raise

    def __enter__(self) -> "Recording":
        return self.start()

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        problem: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if kind is None:
            self.close()
            return
        self._context.close()
        self._running = False
        with contextlib.suppress(Exception):  # the first problem is the one to tell
            self._finish_pass()
            self._passes.drain(everything=True)
        self._describe()
        self._writer.abandon()

    def __repr__(self) -> str:
        steps = f"{self._passes.steps} step{'s' * (self._passes.steps != 1)}"
        done = f"{len(self._passes.names)} checkpoints in {steps}" if self._writer.closed else "not closed yet"
        return f"<lockstep.Recording {self.folder}: {done}>"

    def _describe(self) -> None:
        self.own_names = [name for name in self._passes.names if not _checkpoints.is_checkpoint(name)]
        if not self._called:
            self._say("the module was not called while it was recorded")
        elif self._passes.steps and self._wanted("logits") and "logits" not in self._passes.names:
            self._say("no logits were recorded; names= tells which module gives them")
        left = getattr(self, "_watcher", None)
        if left is not None:
            again = [name for name in left.again if name in self._passes.names]
            if again:
                self._say(f"computed several times in a pass, and recorded as they were the last time: {', '.join(again[:8])}"
                          f"{f' and {len(again) - 8} more' * (len(again) > 8)}")  # fmt: skip
            self._writer.unmapped = texts("unmapped", (name for name in left.unmapped if name not in self._passes.names))

    def _say(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def _checked(self, checkpoints: Union[str, Sequence[str]]) -> List[str]:
        """The sets, names and globs; ValueError for one that nothing fits."""
        if not isinstance(checkpoints, Iterable):
            raise TypeError(f"record: checkpoints={checkpoints!r}; expected names in a text or a list")
        parts = checkpoints.split(",") if isinstance(checkpoints, str) else list(checkpoints)
        modules = [name for name, _ in plain_names(self._model)]
        layers = 1 + max((int(part) for name in modules for part in name.split(".") if part.isdecimal()), default=0)
        known = [*_checkpoints.SETS, *_checkpoints.names(layers), *modules]
        for part in parts:
            if not any(fnmatch.fnmatchcase(name, part) for name in known):
                sets = ", ".join(_checkpoints.SETS)
                raise ValueError(f"record: checkpoints: nothing is called {part!r}; sets are {sets}; names are such as "
                                 "embedding, blk.0.q, blk.*.ffn_out, logits, or those of modules")  # fmt: skip
        return parts

    def _wants_own_name(self, name: str) -> bool:
        if not self._wants_own or not any(part == "all" or fnmatch.fnmatchcase(name, part) for part in self._checkpoints):
            return False
        if not _limits.is_name(name):
            self._say(f"{name!r} was not recorded: a name in a trace has {_limits.NAME_RULE}")
        return _limits.is_name(name)

    def _wanted(self, name: str) -> bool:
        for part in self._checkpoints:
            if _checkpoints.in_set(name, part) if part in _checkpoints.SETS else fnmatch.fnmatchcase(name, part):
                return True
        return False

    # A pass: one call of the module

    def _tensors(self, named: Mapping[str, Any]) -> Dict[str, Any]:
        found = {name: value for name, value in named.items() if isinstance(value, self._torch.Tensor)}
        if self._has_encoder or "decoder_input_ids" in found:
            found = _call.of_decoder(found)
            self._say("of an encoder and a decoder the decoder is recorded: the positions are its own")
        return found

    def _begin(self, module: Any, args: Any, kwargs: Any) -> None:
        thread = threading.get_ident()
        if self._thread not in (None, thread):
            self._say("several threads called the module at once: of passes at the same time one was recorded")
            return
        if self._thread == thread and self._within is not module:
            return  # within the pass of a wrapper
        self._finish_pass()
        self._called = True
        self._watcher.begin()
        self._thread, self._within, self._raised = thread, module, sys.exc_info()[1]
        if self._gone:
            return
        named = _call.arguments(module, args, kwargs)
        tensors = self._tensors(named)
        ids, shape = _call.ids_and_shape(tensors)
        if not shape or 0 in shape:
            self._say("a call of the module without token ids or rows of numbers was not recorded")
            return
        batch, tokens = (1, shape[0]) if len(shape) == 1 else shape
        if self._sequence >= batch or self._sequence < 0:
            raise ValueError(f"record: sequence={self._sequence}, but the module is called with {batch} sequences")
        if not self._described:
            self._described = True
            self._declare_precision()

        def of_sequence(value: Any) -> Optional[Copy]:
            if value is None or value.dim() not in (1, 2) or (value.dim() == 2 and value.shape[0] not in (1, batch)):
                return None  # such as a mask for each pair of positions
            if value.dim() == 1 and value.shape[0] == batch != tokens:  # one for each sequence
                value = value[:, None]
            rows = value if value.dim() == 1 else value[self._sequence if value.shape[0] > 1 else 0]
            return self._copier.copy(rows)

        past = _call.past(named)
        layout = Layout(int(tokens), int(batch), self._sequence, past or 0)
        mask = tensors.get("attention_mask")
        if mask is not None and mask.dim() == 4:
            has_window = getattr(self._config, "sliding_window", None) and "full_attention" not in named
            mask = None if has_window or mask.shape[0] != batch else _call.seen_last(mask, (past or 0) + tokens)
        # The places in a cache count padding too.
        places = next((tensors[name] for name in _call.PLACES[: 4 if mask is None else 3] if name in tensors), None)
        cache = self._number_of(_call.cache_of(named))
        self._pass = Pass(layout, of_sequence(ids), of_sequence(mask), of_sequence(places), past, cache=cache)

    def _number_of(self, cache: Any) -> int:
        if not hasattr(cache, "get_seq_length"):
            return 0
        with contextlib.suppress(TypeError):  # no weak references
            return self._caches.setdefault(cache, len(self._caches) + 1)
        return 0

    @contextlib.contextmanager
    def _beams_followed(self) -> Any:
        """Beam search moves sequences from row to row of the batch, and drops some."""

        def told(arguments: Any, _: Any) -> None:
            if len(arguments) < 2 or arguments[0] not in self._caches or self._gone:
                return
            rows = [int(row) for row in arguments[1]]
            if self._sequence in rows[self._sequence : self._sequence + 1]:
                return
            self._gone = self._sequence not in rows
            if self._gone:
                self._say("beam search gave up the sequence that was recorded: what it went on with was not recorded")
            else:
                self._sequence = rows.index(self._sequence)

        module = sys.modules.get("transformers.cache_utils")
        with contextlib.ExitStack() as listening:
            for owner in ("Cache", "EncoderDecoderCache"):
                kind = getattr(module, owner, None)
                if "reorder_cache" in vars(kind or object):
                    listening.callback(listen(kind, "reorder_cache", told))
            yield

    def _declare_precision(self) -> None:
        """What the module computes in, by its parameters, autocast and the settings of torch."""
        parameter = next((p for p in self._model.parameters() if p.is_floating_point()), None)
        if self._precision is not None or parameter is None:
            return
        kind, device = _kind(parameter.dtype), parameter.device.type
        exact = kind == "f64" and (self._kind != "transformers" or self.architecture == "gpt2")
        found = {"compute": "f64" if exact else "f32", "activations": kind, "kv": kind}
        autocast = self._autocast_on(device)
        if autocast:
            self._autocast = True
            self._say(f"autocast was on: products are computed in {autocast}")
            found.update(activations=autocast, kv=autocast, weights=autocast)
        elif kind == "f32" and device == "cuda" and self._torch.get_float32_matmul_precision() != "highest":
            found.update(activations="tf32", weights="tf32")
        self._writer.declare(precision={field: name for field, name in found.items() if name})

    def _autocast_on(self, device: str) -> str:
        """The type of its products, if autocast is on."""
        with contextlib.suppress(TypeError, RuntimeError):  # devices without it
            if self._torch.is_autocast_enabled(device):
                return _kind(self._torch.get_autocast_dtype(device))
        return ""

    def _see(self, rule: Optional[Rule], name: str, tensor: Any) -> None:
        if self._pass is None or (rule is None and self._has_encoder and "encoder" in name.split(".")):
            return
        if tensor.is_nested:
            self._say("nested tensors have no row for each token and were not recorded")
            return
        value = self._pass.layout.value(rule, name, tensor, self._heads)
        if rule is None:
            value = self._own_rows(name, tensor, value)
        if value is None:
            if rule is not None:
                self._say(f"{name} was not recorded: its shape {list(tensor.shape)} has no row for each of "
                          f"{self._pass.layout.tokens} tokens")  # fmt: skip
            return
        if self._pass.layout.is_open(rule, name, tensor):
            self._say(f"there are as many heads as tokens: the order of {name} was told by its memory; with another number of "
                      "tokens there is no doubt")  # fmt: skip
        if not self._autocast and self._autocast_on(tensor.device.type):  # which began within the module
            self._declare_precision()
        copy = self._copier.copy(value)
        if copy is not None:
            self._pass.values[name] = copy

    def _own_rows(self, name: str, tensor: Any, rows: Any) -> Any:
        """As wide as in the first pass: one token with many rows of the cache looks like one token of many heads."""
        assert self._pass is not None
        width = self._widths.get(name)
        if rows is None or width not in (None, rows.shape[1]):
            newer = self._pass.layout.new_rows(tensor)
            if newer is not None and width in (None, newer.shape[1]):
                rows = newer
        if rows is not None:
            self._widths.setdefault(name, rows.shape[1])
        return rows

    def _end(self, module: Any, _: Any, output: Any) -> None:
        if self._thread != threading.get_ident() or self._within is not module:
            return
        self._thread = self._within = None
        self._watcher.end()
        raised = sys.exc_info()[1]
        if raised is not None and raised is not self._raised:
            self._pass = None
            self._say(_RAISED)
            return
        if self._pass is None or not self._wanted("logits") or "logits" in self._pass.values:
            return
        logits = getattr(output, "logits", None)
        if logits is None and isinstance(output, dict):
            logits = output.get("logits")
        if logits is None:
            logits = first_tensor(output)
            if logits is None or logits.shape[-1] not in self._vocabularies:
                return
        self._see(None, "logits", logits)

    def _finish_pass(self) -> None:
        """Ends the last pass: engines may compute logits after the module's own call."""
        done, self._pass = self._pass, None
        if done is not None and self._thread is not None:  # KeyboardInterrupt calls no hooks
            self._say(_RAISED)
        elif done is not None:
            self._passes.add(done)


def record(model: Any, folder: Union[str, "os.PathLike[str]"], **options: Any) -> Recording:
    """Records what a torch module computes, from here to the end of the `with` block.

    >>> with lockstep.record(model, "out.trace", gguf="model.gguf") as recording:
    ...     model.generate(ids, max_new_tokens=8, do_sample=False)
    >>> recording.own_names, recording.notes

    A call of the module is a step of the trace. Modules of known architectures are recorded as checkpoints; others under
    names of their own. All options:

    checkpoints   logits, layers, ops, all (default), or names and globs: embedding,blk.*.q; names of modules too
    names         {"layers.{N}.attention.wq": "blk.{N}.q", ...}: {N} is a number, * is anything; a fused value has several:
                  {"layers.{N}.wqkv": ("blk.{N}.q", "blk.{N}.k", "blk.{N}.v")}; or the fields of a rule:
                  {"layers.{N}.wo": {"checkpoint": "blk.{N}.attn_mix", "take": "input"}}; or a file (docs/name-maps.md); or
                  transformers, vllm, sglang
    own_names     False: what no rule knows is not recorded
    sequence      which one of a batch (default 0)
    gguf          the model file, for `compare`
    precision     of the arithmetic; else found by parameters, autocast and settings of torch
    heads, kv_heads  for fused values, where the module's config does not say them
    architecture  as GGUF files call it, where the module's config does not say it
    engine, prompt, n_prompt, sampling, forward, durable  as TraceWriter has them
    """
    return Recording(model, folder, **options)
