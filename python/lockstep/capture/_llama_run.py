"""llama.cpp through the low-level API of llama-cpp-python: a model, and a run of it whose graph is watched."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from . import _command as command
from ._command import CaptureError
from ._ggml import SOFT_MAX, Ggml, Node
from ._names import NameMap, load_map, without_layer

KV_TYPES = {"f32": 0, "f16": 1, "bf16": 30}  # enum ggml_type
_LOG_ERROR = 4
_FLASH_OFF, _FLASH_ON = 0, 1
# What the CPU backend rounds the other factor of a product to, by the type of the weight.
_Q8_1_PARTNERS = ("q4_1", "q5_1")
_HALVES = ("f16", "bf16")


def load_api() -> Any:
    """The low-level API, quiet from here on."""
    try:
        from llama_cpp import llama_cpp as api
    except ImportError as problem:
        raise CaptureError(
            f"llama-cpp-python is missing ({problem}); {sys.executable} -m pip install llama-cpp-python"
        ) from problem
    _start(api)
    return api


class _Log:
    """The engine's messages: the first error, to tell why something failed."""

    def __init__(self, api: Any) -> None:
        self.error = ""
        self._callback = api.llama_log_callback(self._add)  # kept alive as long as the engine may call it
        api.llama_log_set(self._callback, ctypes.c_void_p())

    def _add(self, level: int, text: bytes, _: Any) -> None:
        if level == _LOG_ERROR and not self.error:
            self.error = text.decode(errors="replace").strip()

    def reason(self) -> str:
        return f": {self.error}" if self.error else ""


_log: Optional[_Log] = None


def _start(api: Any) -> _Log:
    global _log
    if _log is None:
        _log = _Log(api)
        api.llama_backend_init()
    return _log


class Model:
    """A loaded file."""

    def __init__(self, path: str, gpu_layers: int = 0) -> None:
        self.api = api = load_api()
        self.path = Path(path)
        if not self.path.is_file():
            raise CaptureError(f"{path}: no such file")
        if gpu_layers > 0 and not api.llama_supports_gpu_offload():
            raise CaptureError(
                "this llama.cpp was built without a GPU; LLAMA_CPP_LIB_PATH may name a folder with a libllama that has one, "
                "or CMAKE_ARGS=-DGGML_CUDA=ON pip install --force-reinstall --no-cache-dir llama-cpp-python"
            )
        log = _start(api)
        log.error = ""
        params = api.llama_model_default_params()
        params.n_gpu_layers = gpu_layers
        # Without kernels for repacked weights: a trace is to show the products of the weights as the file has them, and
        # some machines announce AMX, which such kernels use, yet stop a program that does.
        params.use_extra_bufts = False
        self.handle = api.llama_model_load_from_file(str(path).encode(), params)
        if not self.handle:
            raise CaptureError(f"{path}: llama.cpp cannot load it{log.reason()}")
        self.vocab = api.llama_model_get_vocab(self.handle)
        self.vocabulary = int(api.llama_vocab_n_tokens(self.vocab))
        self.positions = int(api.llama_model_n_ctx_train(self.handle))
        self.architecture = self.metadata("general.architecture")
        # What the name map calls it: a node of Granite is another checkpoint where there is a shared expert.
        shared = self.metadata("granitemoe.expert_shared_feed_forward_length") not in ("", "0")
        self.mapped_as = "granitemoeshared" if shared else self.architecture
        if api.llama_model_has_encoder(self.handle) or not api.llama_model_has_decoder(self.handle):
            self.close()
            raise CaptureError(f"{path}: architecture '{self.architecture}' does not generate text by itself")

    def close(self) -> None:
        if self.handle:
            self.api.llama_model_free(self.handle)
            self.handle = None

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def metadata(self, key: str) -> str:
        text = ctypes.create_string_buffer(256)
        found = self.api.llama_model_meta_val_str(self.handle, key.encode(), text, len(text))
        return text.value.decode(errors="replace") if found >= 0 else ""

    def tokenize(self, text: str, add_special: bool = True, parse_special: bool = True) -> List[int]:
        data = text.encode("utf-8", "replace")
        ids = (self.api.llama_token * (len(data) + 16))()
        count = self.api.llama_tokenize(self.vocab, data, len(data), ids, len(ids), add_special, parse_special)
        if count < 0:
            raise CaptureError(f"llama.cpp cannot tokenize {text[:40]!r}")
        return list(ids[:count])


class Run:
    """One sequence through the model. `values` holds the checkpoints of the last step."""

    def __init__(self, model: Model, positions: int, *, checkpoints: str = "all", batch: int = 512, kv: str = "f16",
                 threads: int = 1, flash: bool = False, gpu: bool = False,
                 all_nodes: bool = False) -> None:  # fmt: skip
        self.model, self.api = model, model.api
        self._checkpoints, self._all_nodes = checkpoints, all_nodes
        self._names: NameMap = load_map("llama.cpp", model.mapped_as)
        self._ggml = Ggml(self.api._lib)  # depends on libggml-base, where the functions are
        self._problem: Optional[BaseException] = None
        self._checked = False
        self._place: Tuple[int, int] = (0, 0)  # first position and tokens of the step
        self._held: Dict[int, Tuple[str, npt.NDArray[np.float32]]] = {}  # inputs of softmax, by address
        self._wants_scores = command.wanted(checkpoints, "blk.0.attn_scores")
        self.values: Dict[str, npt.NDArray[np.float32]] = {}
        self.weights: Dict[str, Dict[str, int]] = {}  # type: {name: bytes}, of products
        self.unmapped: Dict[str, None] = {}  # in order
        self.logits: npt.NDArray[np.float32] = np.empty((0, 0), np.float32)

        params = self.api.llama_context_default_params()
        params.n_ctx = positions
        params.n_batch = params.n_ubatch = batch  # every call of decode is one graph
        params.n_threads = params.n_threads_batch = threads
        params.type_k = params.type_v = KV_TYPES[kv]
        params.flash_attn_type = _FLASH_ON if flash else _FLASH_OFF
        params.offload_kqv = params.op_offload = gpu
        params.swa_full = True  # every position stays in the cache, at the index of its position
        params.no_perf = True
        self._callback = self.api.ggml_backend_sched_eval_callback(self._see)
        params.cb_eval = self._callback
        self.context = self.api.llama_init_from_model(model.handle, params)
        if not self.context:
            raise CaptureError(f"llama.cpp cannot make a context of {positions} positions{_start(self.api).reason()}")

    def close(self) -> None:
        if self.context:
            self.api.llama_free(self.context)
            self.context = None

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def step(self, tokens: Sequence[int], first: int) -> Dict[str, npt.NDArray[np.float32]]:
        """Evaluates `tokens` at positions from `first` on; the checkpoints of all of them."""
        self.values, self._held, self._place = {}, {}, (first, len(tokens))
        batch = self.api.llama_batch_init(len(tokens), 0, 1)
        try:
            batch.n_tokens = len(tokens)
            for i, token in enumerate(tokens):
                batch.token[i] = token
                batch.pos[i] = first + i
                batch.n_seq_id[i] = 1
                batch.seq_id[i][0] = 0
                batch.logits[i] = True
            status = self.api.llama_decode(self.context, batch)
        finally:
            self.api.llama_batch_free(batch)
        if self._problem is not None:
            raise self._problem
        if status != 0:
            raise CaptureError(f"llama.cpp failed at position {first} ({status}){_start(self.api).reason()}")
        rows = self.api.llama_get_logits(self.context)
        self.logits = np.ctypeslib.as_array(rows, (len(tokens), self.model.vocabulary)).copy()
        if command.wanted(self._checkpoints, "logits"):
            self.values["logits"] = self.logits  # what a sampler is given
        return self.values

    # The callback: asked before a node is computed whether we want it, called after that with its numbers.

    def _see(self, address: int, asking: bool, _: Any) -> bool:
        if self._problem is not None:
            return False
        try:
            node = self._ggml.at(address)
            if asking:
                return self._ask(node)
            self._take(node)
            return True
        except BaseException as problem:  # noqa: BLE001 - nothing may fly through C code
            self._problem = problem
            return False

    def _ask(self, node: Node) -> bool:
        if not self._checked:
            problem = self._ggml.layout_problem(node.address)
            if problem:
                raise CaptureError(problem)
            self._checked = True
        sources = node.sources()
        if node.op in ("MUL_MAT", "MUL_MAT_ID") and sources[0].op == "NONE" and sources[0].name.endswith("weight"):
            self.weights.setdefault(sources[0].type, {})[sources[0].name] = sources[0].nbytes
        rules = self._names.find(node.name, node.op, [source.name for source in sources])
        if not rules:
            unnamed = node.name.startswith("node_")
            self.unmapped[f"({node.op})" if unnamed else without_layer(node.name)] = None
        if node.op == SOFT_MAX and self._wants_scores:
            return True
        return self._all_nodes or any(command.wanted(self._checkpoints, name) for _, name in rules)

    def _take(self, node: Node) -> None:
        if node.op == SOFT_MAX:
            self._finish_scores(node)
        rules = self._names.find(node.name, node.op, [source.name for source in node.sources()])
        for rule, name in rules:
            if not command.wanted(self._checkpoints, name) or name == "logits":
                continue
            source = {"input": 0, "second_input": 1}.get(rule.take)
            array = (node if source is None else node.sources()[source]).array()
            if array is None:
                continue
            if rule.take == "softmax_input":
                self._held[node.address] = (name, array[0])
            elif name.endswith("attn_probs"):
                self.values[name] = array[0][:, :, : sum(self._place)]
            else:
                rows = array.reshape(self._place[1], -1)
                half = rows.shape[1] // 2
                cut = {"gate": rows[:, :half], "up": rows[:, half:]}
                self.values[name] = cut[rule.part] if rule.part else rows
        if self._all_nodes and not rules:
            self._take_unknown(node)

    def _take_unknown(self, node: Node) -> None:
        """Under its own name; `#2` for the second of that name."""
        array = node.array()
        if array is None or list(node.tensor.ne)[1] != self._place[1] or array.size % self._place[1]:
            return  # not a row a token
        name, count = node.name, 1
        while name in self.values:
            count += 1
            name = f"{node.name}#{count}"
        self.values[name] = array.reshape(self._place[1], -1)

    def _finish_scores(self, node: Node) -> None:
        """Scaled and masked as this softmax does: float32 numbers, product first. [heads, tokens, positions]"""
        sources = node.sources()
        held = self._held.pop(sources[0].address, None)
        if held is None or node.float_param(1) != 0:  # a bias that grows with the distance: not of our architectures
            return
        name, scores = held
        scores = scores * np.float32(node.float_param(0))
        if len(sources) > 1:
            mask = sources[1].array()
            if mask is None:
                return
            scores = scores + mask[0, 0, : scores.shape[1]]
        self.values[name] = scores[:, :, : sum(self._place)]

    def precision(self, kv: str, gpu: bool) -> Dict[str, str]:
        """What this backend computes with, by the weights that products read."""
        quantized = [kind for kind in self.weights if kind not in ("f32", *_HALVES)]
        halves = [kind for kind in self.weights if kind in _HALVES]
        if gpu:
            return self._gpu_precision("q8_1" if quantized else "by_weight" if halves else "", kv)
        if any(kind.endswith("_K") or (kind.startswith(("iq", "tq")) and kind != "iq4_nl") for kind in quantized):
            activations = "q8_k"
        elif any(kind in _Q8_1_PARTNERS for kind in quantized):
            activations = "q8_1"
        elif quantized:
            activations = "q8_0"
        elif halves:
            activations = "by_weight"
        else:
            activations = "f32"
        return {"compute": "f32", "activations": activations, "kv": kv}

    @staticmethod
    def _gpu_precision(activations: str, kv: str) -> Dict[str, str]:
        """As the CUDA backend works on tensor cores: it reads single precision as TF32, rounds activations to 8 bits
        (blocks of 32) for quantized weights, and adds up products of f16 numbers in f16 (CUBLAS_COMPUTE_16F)."""
        precision = {"compute": "tf32", "kv": kv, "sums": "f16"}
        if activations:
            precision["activations"] = activations
        return precision

    def context_length(self) -> int:
        """Positions that llama.cpp made room for, which may be more than were asked for."""
        return int(self.api.llama_n_ctx(self.context))

    def quantization(self) -> str:
        """The type of most bytes of the weights."""
        sizes = {kind: sum(of.values()) for kind, of in self.weights.items()}
        return max(sizes, key=lambda kind: sizes[kind]).upper() if sizes else ""
