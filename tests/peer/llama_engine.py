"""llama.cpp on token ids through the low-level API of llama-cpp-python: F32 cache, no flash attention."""

import ctypes
import sys

import numpy as np
from llama_cpp import _ggml
from llama_cpp import llama_cpp as api

_GGML_TYPE_F32 = 0


class _Tensor(ctypes.Structure):
    """struct ggml_tensor of ggml.h, as far as it is read here."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("ne", ctypes.c_int64 * 4),
        ("nb", ctypes.c_size_t * 4),
        ("op", ctypes.c_int),
        ("op_params", ctypes.c_int32 * 16),
        ("flags", ctypes.c_int32),
        ("src", ctypes.c_void_p * 10),
        ("view_src", ctypes.c_void_p),
        ("view_offs", ctypes.c_size_t),
        ("data", ctypes.c_void_p),
        ("name", ctypes.c_char * 64),
    ]

    def array(self):
        """A copy as numpy counts dimensions: the last one fastest; leading ones of 1 dropped."""
        shape = list(self.ne)[::-1]
        strides = list(self.nb)[::-1]
        extent = sum((count - 1) * stride for count, stride in zip(shape, strides)) + 4
        flat = np.frombuffer((ctypes.c_char * extent).from_address(self.data), np.float32, 1)
        values = np.lib.stride_tricks.as_strided(flat, shape, strides).copy()
        while values.ndim > 1 and values.shape[0] == 1:
            values = values[0]
        return values


_op_name = _ggml.libggml.ggml_op_name
_op_name.restype = ctypes.c_char_p
_op_name.argtypes = [ctypes.c_int]


@api.llama_log_callback
def _no_log(level, text, user_data):
    if level == 4:  # errors
        print("llama.cpp:", text.decode(errors="replace").rstrip(), file=sys.stderr)


api.llama_log_set(_no_log, ctypes.c_void_p())
api.llama_backend_init()


class Engine:
    def __init__(self, path, context, threads=2):
        params = api.llama_model_default_params()
        params.n_gpu_layers = 0
        # Without kernels for repacked weights: AMX traps on machines that announce it but do not let it run.
        params.use_extra_bufts = False
        self.model = api.llama_model_load_from_file(str(path).encode(), params)
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        self.vocab = api.llama_model_get_vocab(self.model)
        self.context = context
        self.threads = threads

    def close(self):
        api.llama_model_free(self.model)

    def tokenize(self, text, parse_special=False):
        data = text.encode()
        ids = (api.llama_token * (len(data) + 8))()
        count = api.llama_tokenize(self.vocab, data, len(data), ids, len(ids), False, parse_special)
        if count < 0:
            raise RuntimeError(f"llama.cpp cannot tokenize {text!r}")
        return list(ids[:count])

    def evaluate(self, tokens, nodes=None):
        """Logits [tokens, vocabulary]. A list given as `nodes` gets (name, op, array) of each node, in order."""
        params = api.llama_context_default_params()
        params.n_ctx = self.context
        params.n_batch = params.n_ubatch = max(32, len(tokens))
        params.n_threads = params.n_threads_batch = self.threads
        params.type_k = params.type_v = _GGML_TYPE_F32
        params.flash_attn_type = api.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.no_perf = True

        def see(address, asking, user_data):
            tensor = ctypes.cast(address, ctypes.POINTER(_Tensor)).contents
            if tensor.type == _GGML_TYPE_F32 and not asking:
                nodes.append((tensor.name.decode(), _op_name(tensor.op).decode(), tensor.array()))
            return True

        callback = api.ggml_backend_sched_eval_callback(see)
        if nodes is not None:
            params.cb_eval = callback
        context = api.llama_init_from_model(self.model, params)
        if not context:
            raise RuntimeError("llama.cpp cannot make a context")
        batch = api.llama_batch_init(len(tokens), 0, 1)
        try:
            batch.n_tokens = len(tokens)
            for i, token in enumerate(tokens):
                batch.token[i] = token
                batch.pos[i] = i
                batch.n_seq_id[i] = 1
                batch.seq_id[i][0] = 0
                batch.logits[i] = True
            if api.llama_decode(context, batch) != 0:
                raise RuntimeError("llama_decode failed")
            width = api.llama_vocab_n_tokens(self.vocab)
            logits = api.llama_get_logits(context)
            return np.ctypeslib.as_array(logits, (len(tokens), width)).copy()
        finally:
            api.llama_batch_free(batch)
            api.llama_free(context)


def logits(path, tokens, context, nodes=None, threads=2):
    engine = Engine(path, context, threads)
    try:
        return engine.evaluate(tokens, nodes)
    finally:
        engine.close()


def quantize(source, target, file_type):
    """Every matrix of `source` in one format, by llama.cpp's own encoder."""
    params = api.llama_model_quantize_default_params()
    params.ftype = file_type
    params.pure = True
    params.nthread = 2
    if api.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(params)) != 0:
        raise RuntimeError(f"llama.cpp cannot quantize {source}")


# Ours and theirs, where one node is the checkpoint; the others are in checkpoints().
_NODES = {
    "attn_norm": "attn_norm",
    "v": "Vcur",
    "attn_mix": "kqv_out",
    "attn_out": "attn_out",
    "attn_residual": "ffn_inp",
    "ffn_norm": "ffn_norm",
    "ffn_gate": "ffn_gate",
    "ffn_up": "ffn_up",
    "ffn_act": "ffn_swiglu",
    "ffn_out": "ffn_out",
    "output": "l_out",
}
_ORDER = ("attn_norm", "q", "k", "v", "q_rope", "k_rope", "attn_scores", "attn_probs", "attn_mix", "attn_out",
          "attn_residual", "ffn_norm", "ffn_gate", "ffn_up", "ffn_act", "ffn_out", "output")  # fmt: skip


def checkpoints(nodes, tokens, arch, layers, scale):
    """Nodes by our checkpoint names, in order of execution; `scale` is that of attention."""
    by_name = {}
    for name, op, array in nodes:
        by_name.setdefault(name, []).append((op, array))

    def last(name):
        return by_name[name][-1][1] if name in by_name else None

    def queries_or_keys(letter, layer):
        """Before and after the rotation. In order: projection, bias, norm of heads (Qwen3), rotation, scale (Phi-3)."""
        before = None
        for name, op, array in nodes:
            if name in (f"{letter}cur-{layer}", f"{letter}cur_normed-{layer}"):
                if op == "ROPE":
                    return before, array
                before = array
        return before, None

    found = {"embedding": last("inpL" if arch == "gpt2" else "embd")}
    for layer in range(layers):
        values = {ours: last(f"{theirs}-{layer}") for ours, theirs in _NODES.items()}
        values["q"], values["q_rope"] = queries_or_keys("Q", layer)
        values["k"], values["k_rope"] = queries_or_keys("K", layer)
        if arch == "gpt2":
            values["ffn_up"], values["ffn_act"] = last(f"ffn_up_b-{layer}"), last(f"ffn_gelu-{layer}")
        if arch == "phi3":
            values["ffn_gate"], values["ffn_up"] = np.split(values["ffn_up"], 2, axis=1)
        # [heads, tokens, positions of the cache]; the scores have no mask yet, and no scale but Phi-3's.
        scores = last(f"kq-{layer}")[..., :tokens] * (1.0 if arch == "phi3" else scale)
        values["attn_scores"] = np.where(np.triu(np.ones((tokens, tokens), bool), 1), -np.inf, scores)
        values["attn_probs"] = last(f"kq_soft_max-{layer}")[..., :tokens]
        found |= {f"blk.{layer}.{name}": values[name] for name in _ORDER}
    found |= {"final_norm": last("result_norm"), "logits": last("result_output")}
    return {name: value for name, value in found.items() if value is not None}
