"""Our reference executor against llama.cpp: logits of many models, and every checkpoint of some."""

from dataclasses import dataclass, field

import gguf
import numpy as np

import llama_engine
from gguf_decode import decode_file
from llama_cpp import llama_cpp as api
from lockstep._checkpoints import execution_order, is_checkpoint
from peer import LOCKSTEP, Report, nmse, our_values, run_ours, WORK

LOGITS_BOUND = 1e-10
CHECKPOINT_BOUND = 1e-9
# llama.cpp looks GELU up in a table of half-precision numbers.
GELU_TABLE_BOUND = 1e-6
# llama.cpp rounds activations to the weights' precision, or to 8 bits where they are quantized.
HALF_BOUND = 1e-5
BFLOAT_BOUND = 1e-3
INT8_BOUND = 5e-3

TOKENS = 40
VOCABULARY = 97


@dataclass
class Case:
    name: str
    arch: str
    flags: dict = field(default_factory=dict)  # of forge, without the dashes
    context: int = 256
    all_checkpoints: bool = False
    bound: float = LOGITS_BOUND
    lacks: tuple = ()  # checkpoints that llama.cpp has no value for


SIZES = {"layers": 2, "width": 64, "heads": 4, "kv-heads": 2, "feed-forward": 96, "vocab": VOCABULARY, "context": 512}
ODD = {
    "7 heads, one KV head": {"width": 70, "heads": 7, "kv-heads": 1, "feed-forward": 51},
    "head size other than width / heads": {"width": 40, "heads": 3, "kv-heads": 3, "head-size": 22, "feed-forward": 33},
    "one layer, one head": {"width": 18, "heads": 1, "kv-heads": 1, "layers": 1, "feed-forward": 7},
}
# What an architecture has besides sizes. Phi-3's window is as long as the context, since llama.cpp ignores it.
OWN = {
    "gpt2": {"kv-heads": 4},
    "granite": {"embedding-scale": 11.5, "residual-scale": 0.22, "attention-scale": 0.11, "logit-scale": 7.3},
    "phi3": {"window": 512},
    # Whole patterns of layers, and windows shorter than the text.
    "gemma2": {"window": 9, "layers": 4, "tied": True},
    "gemma3": {"window": 9, "layers": 7},
    "olmo2": {"layers": 2},
    "smollm3": {"layers": 5},
    "glm4": {"rope-dims": 8},
    "stablelm": {"rope-dims": 8},
    "phi2": {"kv-heads": 4, "rope-dims": 8},
    "qwen2moe": {"experts": 7, "experts-used": 3, "expert-size": 29, "shared-expert-size": 37},
    "qwen3moe": {"experts": 7, "experts-used": 3, "expert-size": 29},
    "olmoe": {"kv-heads": 4, "experts": 7, "experts-used": 3},
    "granitemoe": {"experts": 7, "experts-used": 3, "embedding-scale": 11.5, "residual-scale": 0.22,
                   "attention-scale": 0.11, "logit-scale": 7.3},
    "gpt-oss": {"experts": 7, "experts-used": 3, "expert-size": 29, "window": 9, "layers": 4, "head-size": 16},
}
# Files whose layers are not 26 or 27 must have a short row of queries.
LATENT = {"heads": 3, "kv-heads": 0, "head-size": 22, "value-size": 14, "rope-dims": 8, "latent": 26, "query-latent": 19,
          "layers": 3, "dense-layers": 1, "experts": 8, "experts-used": 3, "expert-size": 29, "shared-expert-size": 58,
          "expert-scale": 1.7}  # fmt: skip
EXPERTS = ("qwen2moe", "qwen3moe", "olmoe", "granitemoe", "gpt-oss")
WITH_GELU = ("gemma2", "gemma3", "phi2", "starcoder2")


def cases():
    for arch in ("llama", "qwen2", "qwen3", "granite", "phi3"):
        yield Case(f"{arch}", arch, all_checkpoints=True)
        yield Case(f"{arch}, tied output", arch, {"tied": True, "layers": 3})
        for name, sizes in ODD.items():
            if arch in ("qwen2", "phi3") and "head-size" in sizes:
                continue  # llama.cpp does not load it
            yield Case(f"{arch}, {name}", arch, sizes)
    yield Case("gpt2 (half-precision GELU table)", "gpt2", all_checkpoints=True, bound=GELU_TABLE_BOUND)
    for arch in ("gemma2", "gemma3", "olmo2", "smollm3", "glm4", "stablelm", "phi2", "starcoder2"):
        bound = 10 * GELU_TABLE_BOUND if arch in WITH_GELU else LOGITS_BOUND
        yield Case(arch, arch, all_checkpoints=True, bound=bound)
        yield Case(f"{arch}, 7 heads", arch, {"width": 70, "heads": 7, "kv-heads": 7, "rope-dims": 10}, bound=bound)
    for arch in EXPERTS:
        yield Case(arch, arch, all_checkpoints=True)
        yield Case(f"{arch}, one of two experts", arch, {"experts": 2, "experts-used": 1})
        yield Case(f"{arch}, 8 of 65 experts", arch, {"experts": 65, "experts-used": 8})
    absorbed = (".q_rope", ".k_rope", ".v")  # queries are multiplied by the weight of keys
    yield Case("deepseek2", "deepseek2", LATENT, all_checkpoints=True, lacks=absorbed)
    yield Case("deepseek2, 26 layers like V2-Lite", "deepseek2",
               {**LATENT, "layers": 26, "query-latent": 0, "rope-scaling": "yarn:40:32:0.707"},
               all_checkpoints=True, lacks=absorbed)
    yield Case("deepseek2 like V3", "deepseek2",
               {**LATENT, "sigmoid-experts": True, "bias": True, "expert-groups": 4, "expert-groups-used": 2,
                "rope-scaling": "yarn:40:32:1"}, all_checkpoints=True, lacks=absorbed)  # fmt: skip
    mixtral = {"experts": 8, "experts-used": 2}
    yield Case("llama, experts", "llama", mixtral, all_checkpoints=True)
    yield Case("llama, all experts", "llama", {"experts": 5, "experts-used": 5, "feed-forward": 33})
    yield Case("granitemoe, a shared expert", "granitemoe", {"shared-expert-size": 41}, all_checkpoints=True)
    yield Case("gemma3, linear rope scaling", "gemma3", {"rope-scaling": "linear:8"}, bound=10 * GELU_TABLE_BOUND)
    yield Case("olmo2, yarn and a window", "olmo2", {"rope-scaling": "yarn:4:64", "window": 9, "layers": 5})
    yield Case("smollm3, yarn", "smollm3", {"rope-scaling": "yarn:4:64"})
    yield Case("llama, biases", "llama", {"bias": True})
    yield Case("llama, rope factors", "llama", {"rope-factors": "llama3:8:64"})
    yield Case("llama, rope base 500000", "llama", {"rope-base": 500000})
    yield Case("phi3, half of each head rotated", "phi3", {"rope-dims": 8})
    for arch in ("llama", "qwen2"):
        yield Case(f"{arch}, linear rope scaling", arch, {"rope-scaling": "linear:4"})
        yield Case(f"{arch}, yarn", arch, {"rope-scaling": "yarn:4:64"})
    for name, context in (("short", 256), ("long", 512)):
        yield Case(f"phi3, {name} rope factors", "phi3", {"context": 512, "rope-factors": "long-short:256"}, context)


def forge(path, arch, flags, seed):
    """An F32 model."""
    flags = {**SIZES, **OWN.get(arch, {}), **flags}
    command = [LOCKSTEP, "forge", "--force", "--type", "f32", "--arch", arch, "--seed", seed]
    for name, value in flags.items():
        command += [f"--{name}"] if value is True else [f"--{name}", value]
    run_ours([*command, path])


def prompt(seed, vocabulary=VOCABULARY):
    return [int(token) for token in np.random.default_rng(seed).integers(0, vocabulary, TOKENS)]


def compare_checkpoints(report, case, theirs, ours):
    """One line: the worst checkpoint, or the first one beyond the bound in order of execution."""
    bound = max(CHECKPOINT_BOUND, case.bound)
    worst, worst_name = -1.0, ""
    lacking = [name for name in ours if name not in theirs]
    report.case(f"{case.name}: llama.cpp has all checkpoints", theirs.keys() == ours.keys(), ", ".join(lacking[:5]))
    for name, own in sorted(ours.items(), key=lambda item: execution_order(item[0])):
        value = theirs[name]
        seen = np.isfinite(own)
        if not np.array_equal(seen, np.isfinite(value)):
            raise ValueError(f"{name}: masked in other places")
        error = nmse(own[seen], value[seen])
        if not error < bound:
            raise ValueError(f"{name} is the first to differ: NMSE {error:.1e} (bound {bound:.0e})")
        if error > worst:
            worst, worst_name = error, name
    report.below(f"{case.name}: {len(theirs)} checkpoints of {len(ours)}, worst {worst_name}", worst, bound)


def run_case(report, case, path, seed):
    forge(path, case.arch, case.flags, seed)
    tokens = prompt(seed)
    theirs = llama_engine.values(path, tokens, case.context, "all" if case.all_checkpoints else "logits")
    ours = our_values(path, tokens, ["*"] if case.all_checkpoints else ["logits"], context=case.context)
    report.below(f"{case.name}: logits", nmse(ours["logits"], theirs["logits"]), case.bound)
    if case.all_checkpoints:
        own = {name: ours[name] for name in ours if is_checkpoint(name) and not name.endswith(case.lacks)}
        compare_checkpoints(report, case, theirs, own)
        # In several steps through the cache: the same sums in the same order, so the same bits.
        steps = our_values(path, tokens, chunk=7, context=case.context)
        same = steps.keys() == ours.keys() and all(np.array_equal(steps[name], ours[name]) for name in ours)
        report.case(f"{case.name}: {len(ours)} values in steps of 7 tokens are those of one step", same)


# Formats by llama.cpp's name for a file of them. All row lengths are multiples of 256.
FORMATS = {
    "F16": api.LLAMA_FTYPE_MOSTLY_F16,
    "BF16": api.LLAMA_FTYPE_MOSTLY_BF16,
    "Q4_0": api.LLAMA_FTYPE_MOSTLY_Q4_0,
    "Q4_1": api.LLAMA_FTYPE_MOSTLY_Q4_1,
    "Q5_0": api.LLAMA_FTYPE_MOSTLY_Q5_0,
    "Q5_1": api.LLAMA_FTYPE_MOSTLY_Q5_1,
    "Q8_0": api.LLAMA_FTYPE_MOSTLY_Q8_0,
    "Q2_K": api.LLAMA_FTYPE_MOSTLY_Q2_K,
    "Q3_K": api.LLAMA_FTYPE_MOSTLY_Q3_K_M,
    "Q4_K": api.LLAMA_FTYPE_MOSTLY_Q4_K_M,
    "Q5_K": api.LLAMA_FTYPE_MOSTLY_Q5_K_M,
    "Q6_K": api.LLAMA_FTYPE_MOSTLY_Q6_K,
    "IQ4_NL": api.LLAMA_FTYPE_MOSTLY_IQ4_NL,
    "IQ4_XS": api.LLAMA_FTYPE_MOSTLY_IQ4_XS,
    "MXFP4": api.LLAMA_FTYPE_MOSTLY_MXFP4_MOE,
}


def run_format(report, name, source, target, decoded, tokens):
    llama_engine.quantize(source, target, FORMATS[name])
    found = {tensor.tensor_type.name for tensor in gguf.GGUFReader(target).tensors if len(tensor.shape) == 2}
    if found != {name}:
        raise ValueError(f"the file has {found}")
    ours = our_values(target, tokens, ["logits"])["logits"]
    decode_file(target, decoded)
    exact = llama_engine.logits(decoded, tokens, 256)
    report.below(f"llama in {name}: logits against its weights in F32", nmse(ours, exact), LOGITS_BOUND)
    theirs = llama_engine.logits(target, tokens, 256)
    bound = {"F16": HALF_BOUND, "BF16": BFLOAT_BOUND}.get(name, INT8_BOUND)
    report.below(f"llama in {name}: logits against rounded activations", nmse(ours, theirs), bound)


def main():
    WORK.mkdir(parents=True, exist_ok=True)
    report = Report("llama.cpp")
    path = WORK / "tiny.gguf"
    for seed, case in enumerate(cases(), 100):
        report.attempt(case.name, run_case, report, case, path, seed)
    tokens = prompt(7)
    report.attempt("forge", forge, path, "llama", {"width": 256, "feed-forward": 512}, 8)
    target = WORK / "tiny-quantized.gguf"
    decoded = WORK / "tiny-decoded.gguf"
    for name in FORMATS:
        report.attempt(name, run_format, report, name, path, target, decoded, tokens)
    for made in (path, target, decoded):
        made.unlink(missing_ok=True)
    report.finish()


if __name__ == "__main__":
    main()
