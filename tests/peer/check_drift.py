"""How far each precision drifts from exact arithmetic, layer by layer, on a real model, and how many choices it flips.

SmolLM2-135M-Instruct answers ten prompts of several kinds in double precision; every engine is then given the same
tokens. Ends with the tables of docs/parity.md. `--all`: all prompts for every file, instead of four for all but the
first.
"""

import sys
from typing import NamedTuple

import numpy as np

from peer import LOCKSTEP, WORK, Report, run_ours  # first: it knows the way to our package
import llama_engine
import lockstep
import parity
from smollm2 import QUESTIONS, chat, model_file

CHOSEN = 40
FEW = 4  # prompts
SHOWN_LAYERS = (0, 5, 10, 15, 20, 25, 29)


class Precision(NamedTuple):
    engine: str
    what: str  # what is rounded, and to what
    kind: str  # of the file
    trace: object  # of a Bench
    bound: float  # NMSE of the logits


def llama(*flags):
    return lambda bench: bench.llama_cpp(*flags)


def ours(*flags):
    return lambda bench: bench.ours("cpu", *flags)


def hugging(dtype):
    return lambda bench: bench.transformers(dtype)


# F32 holds the very weights of Q4_1, so both have the same truth.
PRECISIONS = (
    Precision("llama.cpp", "f32", "F32", llama("--kv", "f32"), 1e-9),
    Precision("lockstep cpu", "f32", "F32", ours(), 1e-9),
    Precision("transformers", "f32", "F32", hugging("float32"), 1e-9),
    Precision("llama.cpp", "f32, cache f16", "F32", llama(), 1e-5),
    Precision("lockstep cpu", "f32, cache f16", "F32", ours("--kv", "f16"), 1e-5),
    Precision("lockstep cpu", "int16 activations, cache f16", "Q4_1", ours(), 1e-5),
    Precision("llama.cpp", "int8 activations, cache f16", "Q4_1", llama(), 1e-2),
    Precision("llama.cpp", "f16 activations in products, cache f16", "F16", llama(), 1e-4),
    Precision("lockstep cpu", "f32, cache f16", "F16", ours("--kv", "f16"), 1e-5),
    Precision("transformers", "f16 everywhere", "F16", hugging("float16"), 1e-3),
    Precision("transformers", "bf16 everywhere", "BF16", hugging("bfloat16"), 5e-2),
    Precision("lockstep cpu", "int16 activations, cache f16", "Q8_0", ours(), 1e-5),
    Precision("llama.cpp", "int8 activations, cache f16", "Q8_0", llama(), 1e-2),
    Precision("lockstep cpu", "int16 activations, cache f16", "Q4_K_M", ours(), 1e-5),
    Precision("llama.cpp", "int8 activations, cache f16", "Q4_K_M", llama(), 1e-2),
)
TRUTH_OF = {"F32": "Q4_1"}


class Drift:
    """Sums over prompts of one precision."""

    def __init__(self):
        self.rows = {}  # NMSE of each, by checkpoint
        self.steps = self.flipped = self.possible = 0
        self.by_question = {}

    def add(self, question, truth, trace, first_choice):
        for name in truth:
            exact = np.asarray(truth[name], np.float64)
            values = trace[name]
            if trace.checkpoints[name].dtype == "bf16":
                values = lockstep.bfloat16_to_float32(values)
            values = np.asarray(values, np.float64)
            self.rows.setdefault(name, []).extend(np.sum((values - exact) ** 2, axis=1) / np.sum(exact**2, axis=1))
            if name == "logits":
                self._count(question, exact[first_choice:], values[first_choice:])

    def _count(self, question, exact, values):
        flipped = int(np.sum(exact.argmax(axis=1) != values.argmax(axis=1)))
        best = np.sort(exact, axis=1)[:, -2:]
        # No choice can change where the two best are further apart than the errors of both can be.
        self.possible += int(np.sum(best[:, 1] - best[:, 0] <= 2 * np.abs(values - exact).max(axis=1)))
        self.flipped += flipped
        self.steps += len(exact)
        self.by_question[question] = flipped

    def nmse(self, name):
        """Mean of the rows': the first token's numbers are a thousand times as large as the others' in most layers."""
        return float(np.mean(self.rows[name]))


def make_file(kind, source):
    if kind == "Q4_1":
        return source
    path = WORK / f"SmolLM2-135M-Instruct.{kind}.gguf"
    if not path.exists():
        run_ours([LOCKSTEP, "quantize", "--force", "--requantize", source, path, kind])
    return path


def measure(kinds, questions, source):
    """{precision: Drift} of those whose files have one truth."""
    found = {}
    truth_path = make_file(TRUTH_OF.get(kinds[0], kinds[0]), source)
    engine = llama_engine.Engine(source, 512)
    for question in questions:
        prompt = engine.tokenize(chat(question), parse_special=True)
        with parity.Bench(WORK / "drift-truth", truth_path, prompt, CHOSEN, "layers") as exact:
            truth = lockstep.open_trace(exact.ours("reference"))
            tokens = [int(token) for token in truth.tokens[:-1]]
            for precision in (p for p in PRECISIONS if p.kind in kinds):
                path = make_file(precision.kind, source)
                with parity.Bench(WORK / "drift", path, tokens, 1, "layers") as bench:
                    trace = lockstep.open_trace(precision.trace(bench))
                    found.setdefault(precision, Drift()).add(question, truth, trace, len(prompt) - 1)
    engine.close()
    return found


def show(rows):
    for row in (rows[0], ["---"] * len(rows[0]), *rows[1:]):
        print("| " + " | ".join(row) + " |", flush=True)


def show_tables(drifts):
    names = [f"blk.{layer}.output" for layer in SHOWN_LAYERS] + ["final_norm", "logits"]
    titles = ["file", "engine", "rounded to", *(f"layer {layer}" for layer in SHOWN_LAYERS), "final norm", "logits",
              "flipped", "can be flipped"]  # fmt: skip
    rows = [titles]
    for precision, drift in drifts.items():
        rows.append([precision.kind, precision.engine, precision.what, *(f"{drift.nmse(name):.1e}" for name in names),
                     f"{drift.flipped} of {drift.steps} ({drift.flipped / drift.steps:.1%})",
                     f"{drift.possible / drift.steps:.1%}"])  # fmt: skip
    show(rows)
    # Single precision flips nothing; of some files not all prompts were measured.
    every = {p: d for p, d in drifts.items() if p.kind != "F32" and len(d.by_question) == len(QUESTIONS)}
    rows = [["prompt", *(f"{p.kind}, {p.engine}" for p in every)]]
    for question in QUESTIONS:
        rows.append([question.replace("\n", " "), *(str(d.by_question[question]) for d in every.values())])
    show(rows)


def main():
    report = Report("drift")
    source = model_file()
    drifts = {}
    for kinds in (("Q4_1", "F32"), ("F16",), ("BF16",), ("Q8_0",), ("Q4_K_M",)):
        few = kinds[0] != "Q4_1" and "--all" not in sys.argv[1:]
        drifts |= measure(kinds, QUESTIONS[:FEW] if few else QUESTIONS, source)
    drifts = {precision: drifts[precision] for precision in PRECISIONS}
    for precision, drift in drifts.items():
        name = f"{precision.engine}, {precision.kind}, {precision.what}"
        report.below(f"{name}: NMSE of the logits", drift.nmse("logits"), precision.bound)
        report.case(f"{name}: only choices that can be flipped are", drift.flipped <= drift.possible,
                    f"{drift.flipped} of {drift.steps}, {drift.possible} can be")  # fmt: skip
    show_tables(drifts)
    report.finish()


if __name__ == "__main__":
    main()
