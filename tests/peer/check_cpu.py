"""The CPU executor: how far its logits lie from the reference executor's, beside llama.cpp's distance; the greedy
text of a real model; the same bits however the work is divided."""

import functools
import json
import shutil

import numpy as np

import llama_engine
import lockstep
from peer import LOCKSTEP, ROOT, WORK, Report, nmse, our_values, run_ours
from smollm2 import QUESTIONS, chat, model_file

SHARE = 20  # ours at most this part of llama.cpp's, which rounds activations to 8 bits
HALF_CACHE_BOUND = 4e-7  # a layer
FLOAT_CACHE_BOUND = 1e-11
# One thread, except where threads are what is checked: both engines' threads wait for each other by spinning, which
# takes long where the machine has other work.
CPU = ("--device", "cpu", "-t", "1")

TOKENS = 100
CHOSEN = 60
VOCABULARY = 997
TEXT = """The harbour was quiet when the ferry came in. Two men threw ropes over the iron posts, and a woman with a
green umbrella walked down the ramp before anybody else. She had been away for eleven years. Nothing looked the way
she remembered it: the fish market was a car park now, the chapel had lost its bell, and the long wooden pier, where
her father had taught her to swim, ended after a few steps in the water. Only the smell of tar and salt was the same,
and the gulls, which cried as if they had been waiting for her."""

# Of forged models; each architecture in its own sizes. Row lengths are multiples of 256 for the K formats.
SIZES = {
    "gpt2": {"layers": 2, "width": 768, "heads": 12, "feed-forward": 3072},
    "llama": {"layers": 3, "width": 512, "heads": 8, "kv-heads": 2, "feed-forward": 1536},
    "qwen2": {"layers": 3, "width": 256, "heads": 4, "kv-heads": 2, "feed-forward": 1280},
    "qwen3": {"layers": 2, "width": 1024, "heads": 16, "kv-heads": 8, "feed-forward": 1536},
    "phi3": {"layers": 2, "width": 768, "heads": 8, "feed-forward": 2048, "window": 512},
    "granite": {"layers": 3, "width": 512, "heads": 8, "kv-heads": 4, "feed-forward": 1024},
    "gemma3": {"layers": 6, "width": 512, "heads": 4, "kv-heads": 1, "head-size": 128, "feed-forward": 1536,
               "window": 64},
    "qwen3moe": {"layers": 2, "width": 512, "heads": 8, "kv-heads": 2, "experts": 16, "experts-used": 4,
                 "expert-size": 256},
    "gpt-oss": {"layers": 2, "width": 512, "heads": 8, "kv-heads": 2, "head-size": 64, "experts": 8, "experts-used": 2,
                "expert-size": 512, "window": 64},
}
SHIPPED = {"layers": 3}  # or more
QUANTIZED = ("q4_k_m", "q4_0", "q5_0", "q8_0", "q6_k", "q2_k", "q3_k", "iq4_xs", "mxfp4")
FLOATING = ("f32", "f16")
TARGETS = ("avx512vnni", "avx512", "avx2vnni", "avx2", "portable")


class Table:
    """What was measured, for docs/numerics.md."""

    def __init__(self):
        self.rows = []

    def add(self, *row):
        self.rows.append([cell if isinstance(cell, str) else f"{cell:.1e}" for cell in row])

    def show(self, *titles):
        rows = [titles, *self.rows]
        widths = [max(len(row[i]) for row in rows) for i in range(len(titles))]
        for row in rows:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip(), flush=True)


def forged(arch, kind, seed):
    path = WORK / f"cpu-{arch}-{kind}.gguf"
    flags = {"arch": arch, "type": kind, "seed": seed, "vocab": VOCABULARY, "context": 512} | SIZES[arch]
    command = [LOCKSTEP, "forge", "--force"]
    for name, value in flags.items():
        command += [f"--{name}", value]
    run_ours([*command, path])
    return path


def random_tokens(seed, vocabulary):
    return [int(token) for token in np.random.default_rng(seed).integers(0, vocabulary, TOKENS)]


def logits(path, tokens, *flags, **more):
    return our_values(path, tokens, ["logits"], flags=flags, **more)["logits"]


def nmse_of_most(found, truth):
    """The median over the tokens: where rounding lets one take another expert, its logits are others in any engine."""
    return float(np.median([nmse(*rows) for rows in zip(found, truth)]))


def check_quantized(report, table, name, path, tokens, sizes):
    distance = nmse_of_most if "experts" in sizes else nmse
    truth = logits(path, tokens)
    ours = distance(logits(path, tokens, *CPU), truth)
    single = distance(logits(path, tokens, *CPU, "--kv", "f32"), truth)
    theirs = distance(llama_engine.logits(path, tokens, 256, threads=1), truth)
    table.add(name, theirs, ours, single, f"1/{theirs / ours:,.0f}")
    report.case(f"{name}: NMSE at most 1/{SHARE} of llama.cpp's", ours <= theirs / SHARE,
                f"{ours:.1e}, llama.cpp {theirs:.1e}")  # fmt: skip


def check_floating(report, table, name, path, tokens, sizes):
    truth = logits(path, tokens)
    half = nmse(logits(path, tokens, *CPU, "--kv", "f16"), truth)
    single = nmse(logits(path, tokens, *CPU), truth)
    theirs = nmse(llama_engine.logits(path, tokens, 256, threads=1), truth)
    table.add(name, theirs, half, single)
    report.below(f"{name}: NMSE with a cache of halves", half, HALF_CACHE_BOUND * sizes["layers"])
    report.below(f"{name}: NMSE with a cache of floats", single, FLOAT_CACHE_BOUND)


def check_forged(report, table, check, arch, kind, seed):
    path = forged(arch, kind, seed)
    try:
        check(report, table, f"forged {arch}, {kind}", path, random_tokens(seed, VOCABULARY), SIZES[arch])
    finally:
        path.unlink()


@functools.cache
def targets():
    """Those that run on this machine."""
    found = []
    for target in TARGETS:
        try:
            our_values(ROOT / "models" / "haiku-llama-f16.gguf", [1], ["logits"], target=target, flags=CPU)
            found.append(target)
        except RuntimeError as problem:
            if "this machine lacks" not in str(problem):
                raise
    return found


def check_greedy(report, shares, path, engine, question):
    """Free-running and teacher-forced choices; each step of the former is a cut of the prompt of the latter."""
    prompt = engine.tokenize(chat(question), parse_special=True)
    values, wanted = our_values(path, prompt, ["logits"], greedy=CHOSEN)
    name = f"{question!r}, {CHOSEN} greedy tokens"
    ask = [LOCKSTEP, "run", "-m", path, *CPU, "--tokens", ",".join(map(str, prompt)), "-n", CHOSEN, "--ignore-eos"]
    out = run_ours([*ask, "--json"])
    report.case(f"{name}: the text is the reference's", json.loads(out)["tokens"] == wanted)

    tokens = prompt + wanted[:-1]
    given = logits(path, tokens, *CPU)
    chosen = given[len(prompt) - 1 :].argmax(axis=1)
    report.case(f"{name}: given the text, every choice is the reference's", np.array_equal(chosen, wanted))
    free, chosen = our_values(path, prompt, ["logits"], greedy=CHOSEN, flags=CPU)
    report.case(f"{name}: step by step and at once have the same bits",
                chosen == wanted and np.array_equal(free["logits"], given))  # fmt: skip
    if "avx2" in targets():
        other, chosen = our_values(path, prompt, ["logits"], greedy=CHOSEN, flags=CPU, target="avx2")
        report.case(f"{name}: AVX2 has the same bits", chosen == wanted and np.array_equal(other["logits"], given))

    theirs = engine.evaluate(tokens)[len(prompt) - 1 :].argmax(axis=1)
    best = np.sort(values["logits"][len(prompt) - 1 :], axis=1)[:, -2:]
    shares.append((np.mean(theirs == wanted), np.min(best[:, 1] - best[:, 0])))


def traced_logits(path, tokens, threads, checkpoints="logits"):
    folder = WORK / "cpu.trace"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        run_ours([LOCKSTEP, "run", "-m", path, "--device", "cpu", "-t", threads, "--tokens", ",".join(map(str, tokens)),
                  "-n", 8, "--ignore-eos", "--trace", folder, "--checkpoints", checkpoints])  # fmt: skip
        return np.array(lockstep.open_trace(folder)["logits"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_bits(report, path, tokens):
    wanted = traced_logits(path, tokens, 1)
    for threads in (2, 3):
        same = np.array_equal(traced_logits(path, tokens, threads), wanted)
        report.case(f"{threads} threads have the bits of 1", same, f"{wanted.shape[0]} rows")
    same = np.array_equal(traced_logits(path, tokens, 1, "ops"), wanted)
    report.case("so it is when all ops are recorded", same)
    wanted = wanted[: len(tokens)]
    for chunk in (1, 7, 12, 13, 64, len(tokens)):
        same = np.array_equal(logits(path, tokens, *CPU, chunk=chunk), wanted)
        report.case(f"so it is in steps of {chunk} tokens", same)
    for target in targets():
        same = np.array_equal(logits(path, tokens, *CPU, target=target), wanted)
        report.case(f"so it is for {target}", same)
    same = np.array_equal(logits(path, tokens, *CPU, "--no-repack"), wanted)
    report.case("so it is with the weights as they lie in the file", same)


def check_smollm2(report, quantized):
    """Logits of two files; bits and greedy text of the first."""
    first = model_file()
    second = WORK / "SmolLM2-135M-Instruct.Q8_0.gguf"
    run_ours([LOCKSTEP, "quantize", "--force", "--requantize", first, second, "Q8_0"])
    engine = llama_engine.Engine(first, 256, threads=1)
    text = engine.tokenize(TEXT)[:TOKENS]
    for name, path in (("SmolLM2-135M Q4_1", first), ("SmolLM2-135M Q8_0", second)):
        report.attempt(name, check_quantized, report, quantized, name, path, text, SHIPPED)
    report.attempt("bits", check_bits, report, first, text)
    shares = []
    for question in QUESTIONS:
        report.attempt(question, check_greedy, report, shares, first, engine, question)
    engine.close()
    if shares:
        agreed, leads = zip(*shares)
        print(f"llama.cpp chooses the reference's token in {np.mean(agreed):.1%} of the steps ({min(agreed):.1%} to "
              f"{max(agreed):.1%} by question); smallest lead of a choice over the next: {min(leads):.1e}")  # fmt: skip


def check_others(report, quantized, floating):
    for path in sorted((ROOT / "models").glob("haiku-*.gguf")):
        floats = path.stem.endswith(("f16", "f32"))
        check, table = (check_floating, floating) if floats else (check_quantized, quantized)
        tokens = random_tokens(1, 640)
        if "phi3" in path.stem:
            tokens = tokens[:64]  # its window, which llama.cpp ignores
        report.attempt(path.stem, check, report, table, path.stem, path, tokens, SHIPPED)
    for kinds, check, table in ((QUANTIZED, check_quantized, quantized), (FLOATING, check_floating, floating)):
        for number, kind in enumerate(kinds):
            for arch in SIZES:
                report.attempt(f"{arch}, {kind}", check_forged, report, table, check, arch, kind, 400 + number)


def main():
    WORK.mkdir(parents=True, exist_ok=True)
    report = Report("cpu")
    quantized, floating = Table(), Table()
    report.attempt("SmolLM2", check_smollm2, report, quantized)
    check_others(report, quantized, floating)
    quantized.show("NMSE of the logits", "llama.cpp", "ours, f16 cache", "ours, f32 cache", "ours, f16 / llama.cpp")
    floating.show("NMSE of the logits", "llama.cpp", "ours, f16 cache", "ours, f32 cache")
    report.finish()


if __name__ == "__main__":
    main()
