"""llama.cpp on token ids, for checks that want arrays rather than traces: an F32 cache unless they say otherwise."""

import ctypes

import peer  # noqa: F401: the way to our package
from lockstep.capture import llama_cpp as capture


class Engine:
    def __init__(self, path, context, threads=2):
        self.model = capture.Model(str(path))
        self.context = context
        self.threads = threads

    def close(self):
        self.model.close()

    def tokenize(self, text, parse_special=False):
        return self.model.tokenize(text, add_special=False, parse_special=parse_special)

    def values(self, tokens, checkpoints="all", kv="f32"):
        """{checkpoint: array} of all tokens in one step."""
        with capture.Run(self.model, self.context, checkpoints=checkpoints, batch=len(tokens), kv=kv,
                         threads=self.threads) as run:  # fmt: skip
            return run.step(tokens, 0)

    def evaluate(self, tokens):
        """Logits [tokens, vocabulary]."""
        return self.values(tokens, "logits")["logits"]


def values(path, tokens, context, checkpoints="all", threads=2):
    engine = Engine(path, context, threads)
    try:
        return engine.values(tokens, checkpoints)
    finally:
        engine.close()


def logits(path, tokens, context, threads=2):
    return values(path, tokens, context, "logits", threads)["logits"]


def quantize(source, target, file_type):
    """Every matrix of `source` in one format, by llama.cpp's own encoder."""
    api = capture.load_api()
    params = api.llama_model_quantize_default_params()
    params.ftype = file_type
    params.pure = True
    params.nthread = 2
    if api.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(params)) != 0:
        raise RuntimeError(f"llama.cpp cannot quantize {source}")
