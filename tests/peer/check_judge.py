"""The judge against engines that it does not know: numpy_engine.py, right and with one bug at a time.

The right engines, in single and double precision, must be at parity with ours and with each other. A bug must be found
at the checkpoint where it is, on the side that has it, whichever side that is. With `--all`: every bug on every model.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple, Optional, Tuple

import numpy as np
import numpy_engine
import peer

MODELS = peer.ROOT / "models"
PROMPT = [400, 17, 233, 58, 301, 12, 499, 77, 142, 365, 8, 270]
STEPS = 4
WINDOW_PROMPT = [(37 * i * i + 11 * i + 5) % 600 for i in range(70)]  # phi3 sees 64 positions
RIGHT = ("gpt2-f32", "llama-f16", "llama-q4_k_m", "qwen2-f16", "phi3-q4_k_m", "granite-f16")
REST = ("qwen2-q4_k_m", "phi3-f16", "granite-q4_k_m")
ROTATING = ("llama", "qwen2", "phi3", "granite")
ALL = ("gpt2",) + ROTATING


class Bug(NamedTuple):
    name: str
    models: Tuple[str, ...]  # architectures that can have it; the first is part of every check
    checkpoint: str  # where it is first seen; {scores} is attn_mix where scores are not recorded
    position: Optional[int] = 0  # None: 0 in the scores, 1 in the mix
    prompt: Tuple[int, ...] = tuple(PROMPT)


BUGS = (
    Bug("attn_output transposed", ALL, "blk.0.attn_out"),
    Bug("output layout", ("llama", "gpt2", "qwen2", "phi3", "granite"), "logits"),
    Bug("rope base 10000", ("llama", "qwen2"), "blk.0.q_rope", 1),
    Bug("rope base 1%", ("granite", "llama", "qwen2", "phi3"), "blk.0.q_rope", 1),
    Bug("rope pairing", ("qwen2", "llama", "phi3", "granite"), "blk.0.q_rope", 1),
    Bug("rope position + 1", ("phi3", "llama", "qwen2", "granite"), "blk.0.q_rope"),
    Bug("q not rotated", ROTATING, "blk.0.q_rope", 1),
    Bug("no attn_k bias", ("qwen2",), "blk.0.k"),
    Bug("twice attn_k bias", ("qwen2",), "blk.0.k"),
    Bug("no ffn_up bias", ("gpt2",), "blk.0.ffn_up"),
    Bug("twice ffn_up bias", ("gpt2",), "blk.0.ffn_up"),
    # Not granite: its embedding is scaled by 12, so that at most positions this is less than rounding.
    Bug("epsilon 1e-6", ("llama", "gpt2", "phi3"), "blk.0.attn_norm"),
    Bug("epsilon 1e-3", ("gpt2",) + ROTATING, "blk.0.attn_norm"),
    Bug("head grouping", ("granite", "llama"), "blk.0.{scores}"),
    Bug("sees the next", ("phi3", "gpt2", "llama", "qwen2", "granite"), "blk.0.{scores}"),
    Bug("no window", ("phi3",), "blk.0.{scores}", 64, tuple(WINDOW_PROMPT)),
    Bug("window + 1", ("phi3",), "blk.0.{scores}", 64, tuple(WINDOW_PROMPT)),
    Bug("window - 1", ("phi3",), "blk.0.{scores}", 63, tuple(WINDOW_PROMPT)),
    Bug("stale key", ("qwen2", "gpt2", "llama", "phi3", "granite"), "blk.0.{scores}", len(PROMPT)),
    Bug("gelu-erf", ("gpt2",), "blk.0.ffn_act"),
    Bug("relu", ("llama", "qwen2", "phi3", "granite"), "blk.0.ffn_act"),
    Bug("gate and up swapped", ("phi3", "llama", "qwen2", "granite"), "blk.0.ffn_gate"),
    Bug("up activated", ("granite", "llama", "qwen2", "phi3"), "blk.0.ffn_act"),
    Bug("no attention scale", ALL, "blk.0.{scores}", None),  # position 0 has one score: its weight is 1 at any scale
    Bug("no residual in layer 1", ("llama", "gpt2", "qwen2", "phi3", "granite"), "blk.1.attn_residual"),
    Bug("no residual scale", ("granite",), "blk.0.attn_residual"),
    Bug("ffn_down of layer 0", ("qwen2", "gpt2", "llama", "phi3", "granite"), "blk.1.ffn_out"),
    Bug("q from half", ("llama", "gpt2", "qwen2", "phi3", "granite"), "blk.2.q"),
    Bug("q from bfloat16", ("gpt2", "llama", "qwen2", "phi3", "granite"), "blk.2.q"),
    Bug("NaN in up", ("llama", "qwen2", "phi3", "granite"), "blk.1.ffn_up", 3),
    Bug("stale logits", ("granite", "gpt2", "llama", "qwen2", "phi3"), "logits", len(PROMPT)),
)


class Bench:
    """Traces of one model, each made once."""

    def __init__(self, folder, name):
        self.folder = folder / name
        self.path = MODELS / f"haiku-{name}.gguf"
        self.weights = numpy_engine.Weights(self.path)
        self.fingerprint = ""
        self.tokens = {}  # of our run, by prompt

    def ours(self, prompt):
        trace = self.folder / f"ours-{len(prompt)}"
        if prompt not in self.tokens:
            self.folder.mkdir(exist_ok=True)
            peer.run_ours(
                [peer.LOCKSTEP, "run", "-m", self.path, "--tokens", ",".join(map(str, prompt)), "-n", STEPS]
                + ["--ignore-eos", "--trace", trace, "--checkpoints", "all"]
            )
            manifest = json.loads((trace / "manifest.json").read_text())
            self.tokens[prompt] = manifest["tokens"]
            self.fingerprint = manifest["model"]["fingerprint"]
        return trace

    def numpy(self, prompt, *, dtype=np.float32, bug=None, scores=True, forced=True):
        self.ours(prompt)
        name = f"numpy-{len(prompt)}-{np.dtype(dtype).name}-{bug or 'right'}-{scores}-{forced}"
        trace = self.folder / name.replace(" ", "_").replace("%", "")
        if not trace.exists():
            numpy_engine.record(
                self.weights, trace, prompt, STEPS, dtype=dtype, bug=bug, scores=scores,
                fingerprint=self.fingerprint, forced=self.tokens[prompt] if forced else None,
            )  # fmt: skip
        return trace

    def judge(self, reference, suspect, checkpoints="all"):
        command = [peer.LOCKSTEP, "compare", reference, suspect, "-m", self.path, "--json"]
        command += ["--checkpoints", checkpoints]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode not in (0, 1):
            raise RuntimeError(f"compare exited with {done.returncode}: {done.stderr.strip()}")
        return json.loads(done.stdout)


def describe(verdict):
    found = verdict["first_defect"]
    if found is None:
        return f"{verdict['verdict']}, parity {verdict['parity']}"
    ratio = found["measure"] if found["ratio"] is None else f"{found['ratio']:.3g}"
    return f"{found['checkpoint']} at {found['position']}, {found['side']}, ratio {ratio}"


def largest_ratio(verdict):
    """Of all the checkpoints and sides of a comparison."""
    sides = [row[side] for row in verdict["checkpoints"] for side in ("reference", "suspect")]
    return max((side["ratio"] for side in sides if side.get("ratio") is not None), default=0.0)


def check_right(report, bench, name):
    prompt = tuple(WINDOW_PROMPT if name.startswith("phi3") else PROMPT)
    traces = {
        "ours": bench.ours(prompt),
        "float32": bench.numpy(prompt),
        "float64": bench.numpy(prompt, dtype=np.float64),
    }
    for first, second in (("ours", "float32"), ("ours", "float64"), ("float64", "float32")):
        for a, b in ((first, second), (second, first)):
            verdict = bench.judge(traces[a], traces[b])
            ok = verdict["parity"] and verdict["first_defect"] is None and verdict["coverage"] == 1
            judged = f"judged {verdict['judged']:.3g}, largest ratio {largest_ratio(verdict):.3g}"
            report.case(f"{name}: {a} and {b}", ok, f"{describe(verdict)}, {judged}")


def check_bug(report, bench, name, bug, dtype, scores):
    suspect = bench.numpy(bug.prompt, dtype=dtype, bug=bug.name, scores=scores)
    checkpoint = bug.checkpoint.format(scores="attn_scores" if scores else "attn_mix")
    position = (0 if scores else 1) if bug.position is None else bug.position
    kind = f"{np.dtype(dtype).name}, {'all' if scores else 'ops'}"
    ours = bench.ours(bug.prompt)
    for side, traces in (("suspect", (ours, suspect)), ("reference", (suspect, ours))):
        verdict = bench.judge(*traces)
        found = verdict["first_defect"] or {}
        got = (found.get("checkpoint"), found.get("side"), found.get("position"))
        ok = got == (checkpoint, side, position) and not verdict["parity"]
        expected = "" if ok else f"; expected {checkpoint} at {position}"
        report.case(f"{name}: {bug.name} ({kind}), {side}", ok, describe(verdict) + expected)


def check_few_checkpoints(report, bench, name):
    """A bug between the chosen checkpoints belongs to the next of them."""
    prompt = tuple(PROMPT)
    for bug, layer in ((None, 0), ("no residual in layer 1", 1), ("epsilon 1e-6", 0), ("ffn_down of layer 0", 1)):
        for checkpoints, expected in (("layers", f"blk.{layer}.output"), ("logits", "logits")):
            verdict = bench.judge(bench.ours(prompt), bench.numpy(prompt, bug=bug), checkpoints)
            found = verdict["first_defect"] or {}
            ok = verdict["parity"] if bug is None else found.get("checkpoint") == expected
            ok = ok and found.get("side") == (bug and "suspect")
            report.case(f"{name}: {bug or 'right'}, {checkpoints} alone", ok, describe(verdict))


def main():
    every = "--all" in sys.argv[1:]
    report = peer.Report("judge")
    folder = Path(tempfile.mkdtemp(prefix="judge-"))
    names = RIGHT + (REST if every else ())
    try:
        for name in names:
            bench = Bench(folder, name)
            report.attempt(name, check_right, report, bench, name)
            if name == "llama-f16":
                report.attempt(f"{name}: few checkpoints", check_few_checkpoints, report, bench, name)
            for index, bug in enumerate(BUGS):
                architecture = name.split("-")[0]
                home = next(n for n in RIGHT if n.startswith(bug.models[0]))
                if name != home and not (every and architecture in bug.models):
                    continue
                for scores in (False, True) if every else (bool(index % 2),):
                    for dtype in (np.float32, np.float64) if every else (np.float32,):
                        report.attempt(f"{name}: {bug.name}", check_bug, report, bench, name, bug, dtype, scores)
            shutil.rmtree(bench.folder, ignore_errors=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report.finish()


if __name__ == "__main__":
    main()
