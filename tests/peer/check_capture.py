"""The capture commands from the outside: what they record, how they are used wrongly, and every precision of theirs."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from typing import NamedTuple

import numpy as np

from peer import LOCKSTEP, ROOT, WORK, Report, run_ours  # first: it knows the way to our package
import hf_models
import lockstep
import transformers
from lockstep.capture import transformers as capture_transformers

MODEL = ROOT / "models" / "haiku-llama-q4_k_m.gguf"
TEXT = "GPU haiku with word thirty-eight: "
FOLDER = WORK / "capture"
HF_ARCHITECTURES = ("gpt2", "llama", "qwen2", "qwen3", "phi3", "granite", "gemma2", "gemma3", "olmo2", "smollm3", "glm4",
                    "stablelm", "phi2", "starcoder2", "mixtral", "qwen2moe", "qwen3moe", "olmoe",
                    "granitemoe", "gpt-oss", "deepseek_v2", "deepseek_v3")  # fmt: skip
HF_DTYPES = ("float32", "float64", "bfloat16", "float16")


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def command(engine, *arguments, text=None):
    """As a program; transformers in this process, since it takes seconds to start."""
    if engine == "transformers":
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = capture_transformers.main([*map(str, arguments), "-t", "1"])
        return Done(status, out.getvalue(), err.getvalue())
    environment = os.environ | {"PYTHONPATH": str(ROOT / "python")}
    return subprocess.run([sys.executable, "-m", f"lockstep.capture.{engine}", *map(str, arguments)], text=True,
                          input=text, capture_output=True, env=environment)  # fmt: skip


def capture(name, engine, *arguments, text=None):
    """A new trace; RuntimeError where the command fails or says more than what it wrote and what comes next."""
    trace = FOLDER / name
    shutil.rmtree(trace, ignore_errors=True)
    done = command(engine, *arguments, "-o", trace, text=text)
    if done.returncode != 0 or done.stderr or not done.stdout.startswith(f"{trace}: "):
        raise RuntimeError(f"exit {done.returncode}: {done.stdout}{done.stderr}")
    return lockstep.open_trace(trace)


def same(a, b, but=()):
    """The same checkpoints with the same bits."""
    names = [name for name in a if not name.endswith(but)]
    steps = range(len(a.steps))
    return set(names) == {name for name in b if not name.endswith(but)} and all(
        np.array_equal(a.value(name, step), b.value(name, step), equal_nan=True) for name in names for step in steps
    )


def check_llama_cpp(report):
    whole = capture("whole", "llama_cpp", "-m", MODEL, "-p", TEXT, "-n", 6)
    ours = FOLDER / "ours"
    shutil.rmtree(ours, ignore_errors=True)
    run_ours([LOCKSTEP, "run", "-m", MODEL, "-p", TEXT, "-n", 6, "--trace", ours, "--checkpoints", "all"])
    theirs = lockstep.open_trace(ours)
    report.case("the engine's own tokenizer gives our tokens", list(whole.tokens) == list(theirs.tokens))
    report.case("checkpoints, positions and widths are ours", whole.checkpoints == theirs.checkpoints
                and all(np.array_equal(whole.positions(n), theirs.positions(n)) for n in whole))  # fmt: skip
    report.case("complete", whole.complete and len(whole.tokens) == whole.n_prompt + 6)
    manifest = whole.manifest
    report.case("the manifest says what computes", manifest["engine"]["precision"] == {
        "compute": "f32", "activations": "q8_k", "kv": "f16"} and manifest["model"]["quantization"] == "Q4_K"
        and "flash attention off" in manifest["notes"] and "norm-{N}" in manifest["unmapped"])  # fmt: skip

    file = FOLDER / "prompt.txt"
    file.write_text(TEXT)
    ids = ",".join(map(str, whole.tokens[: whole.n_prompt]))
    for name, *flags in (("text-file", "--text-file", file), ("tokens", "--tokens", ids)):
        again = capture(name, "llama_cpp", "-m", MODEL, "-n", 6, *flags)
        report.case(f"--{name} gives the same bits", same(whole, again))
    stdin = capture("stdin", "llama_cpp", "-m", MODEL, "-n", 6, "--text-file", "-", text=TEXT)
    report.case("standard input gives the same bits", same(whole, stdin))

    flash = capture("flash", "llama_cpp", "-m", MODEL, "-p", TEXT, "-n", 6, "--flash-attn")
    lacking = {name.rsplit(".", 1)[1] for name in set(whole) - set(flash)}
    report.case("with flash attention scores are missing, not zero", lacking == {"attn_scores", "attn_probs"}
                and "flash attention on" in flash.manifest["notes"][0], str(lacking))  # fmt: skip

    batches = capture("batches", "llama_cpp", "-m", MODEL, "-p", TEXT, "-n", 6, "--batch", 4)
    rows = all(np.array_equal(batches.positions(n), whole.positions(n)) for n in whole)
    report.case("a prompt in batches has every position", rows and batches.steps[0].tokens == 4)
    result = compare(FOLDER / "whole", FOLDER / "batches", MODEL)
    report.case("and is at parity with the whole", result["parity"] and result["coverage"] == 1, result["headline"])

    nodes = capture("nodes", "llama_cpp", "-m", MODEL, "-p", TEXT, "-n", 6, "--all-nodes")
    extra = set(nodes) - set(whole)
    report.case("--all-nodes adds unknown nodes", {"norm-0", "norm-0#2", "norm"} <= extra, f"{len(extra)} more")
    result = compare(FOLDER / "ours", FOLDER / "nodes", MODEL)
    report.case("compare lists them", set(result["unknown_names"]["suspect"]["recorded"]) == extra and result["parity"]
                and result["coverage"] == 1, result["headline"])  # fmt: skip

    few = capture("few", "llama_cpp", "-m", MODEL, "-p", TEXT, "-n", 6, "--checkpoints", "layers")
    wanted = {"embedding", "final_norm", "logits"} | {name for name in whole if name.endswith(".output")}
    report.case("--checkpoints layers", set(few) == wanted and np.array_equal(few["logits"], whole["logits"]))
    none = capture("none", "llama_cpp", "-m", MODEL, "-p", TEXT, "-n", 0)
    report.case("-n 0 evaluates the prompt", len(none.tokens) == none.n_prompt == len(none.positions("logits")))
    hot = [capture("hot", "llama_cpp", "-m", MODEL, "-p", TEXT, "-n", 8, "--temp", 2, "--seed", seed,
                   "--checkpoints", "logits").tokens.tolist() for seed in (1, 1, 2, 3)]  # fmt: skip
    report.case("--temp and --seed", hot[0] == hot[1] and len({tuple(h) for h in hot}) > 1)


def compare(reference, suspect, model):
    command = [LOCKSTEP, "compare", reference, suspect, "-m", model, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def check_transformers(report, arch, seed):
    """Folders on disk, in steps that the cache (and Phi-3's window) goes through."""
    options = {"sliding_window": 11} if arch == "phi3" else {}
    model = hf_models.random_model(hf_models.config_of(arch, options), seed)
    file, folder, ours = FOLDER / "hf.gguf", FOLDER / f"hf-{arch}", FOLDER / "hf-ours"
    hf_models.export(model, file)
    model.float().save_pretrained(folder)
    tokens = ",".join(map(str, np.random.default_rng(seed).integers(0, hf_models.VOCABULARY, 16)))
    shutil.rmtree(ours, ignore_errors=True)
    run_ours([LOCKSTEP, "run", "-m", file, "--tokens", tokens, "-n", 4, "--device", "reference", "--ignore-eos",
              "--trace", ours, "--checkpoints", "all"])  # fmt: skip
    for dtype in HF_DTYPES:
        capture(f"hf-{dtype}", "transformers", "-m", folder, "--tokens", tokens, "-n", 4, "--batch", 9,
                "--dtype", dtype)  # fmt: skip
        result = compare(ours, FOLDER / f"hf-{dtype}", file)
        ratio = max(c["suspect"].get("ratio") or 0 for c in result["checkpoints"])
        report.case(f"transformers, {arch}, {dtype}", result["parity"] and result["coverage"] == result["judged"] == 1,
                    f"{result['headline']}, largest own error over bound {ratio:.2g}")  # fmt: skip


def check_other_architecture(report):
    sizes = {"vocab_size": 101, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
             "intermediate_size": 64, "max_position_embeddings": 64}  # fmt: skip
    folder = FOLDER / "neox"
    transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**sizes)).save_pretrained(folder)
    trace = capture("generic", "transformers", "-m", folder, "--tokens", "1,2,3", "-n", 2)
    report.case("another architecture: layers, logits and a note",
                list(trace) == ["embedding", "blk.0.output", "blk.1.output", "blk.2.output", "logits"]
                and "no name map" in trace.manifest["notes"][0])  # fmt: skip


def check_wrong_use(report):
    full = FOLDER / "full"
    full.mkdir(parents=True, exist_ok=True)
    (full / "file").write_text("x")
    short = FOLDER / "short.gguf"
    short.write_bytes(MODEL.read_bytes()[:100000])
    new = FOLDER / "never"
    hf = FOLDER / "hf-llama"
    for what, engine, *arguments in (
        ("a file that is not there", "llama_cpp", "-m", "/nowhere.gguf", "-p", "x", "-o", new),
        ("a file that is no model", "llama_cpp", "-m", ROOT / "README.md", "-p", "x", "-o", new),
        ("half of a model", "llama_cpp", "-m", short, "-p", "x", "-o", new),
        ("an empty prompt", "llama_cpp", "-m", MODEL, "-p", "", "-o", new),
        ("no prompt", "llama_cpp", "-m", MODEL, "-o", new),
        ("an empty file", "llama_cpp", "-m", MODEL, "--text-file", "/dev/null", "-o", new),
        ("a token beyond the vocabulary", "llama_cpp", "-m", MODEL, "--tokens", "1,640", "-o", new),
        ("too many positions", "llama_cpp", "-m", MODEL, "-p", "x", "-n", 100000, "-o", new),
        ("a folder that is not empty", "llama_cpp", "-m", MODEL, "-p", "x", "-o", full),
        ("a folder that cannot be", "llama_cpp", "-m", MODEL, "-p", "x", "-o", "/proc/trace"),
        ("an unknown checkpoint", "llama_cpp", "-m", MODEL, "-p", "x", "--checkpoints", "all,foo", "-o", new),
        ("a folder that is not there", "transformers", "-m", "./nowhere", "--tokens", "1", "-o", new),
        ("a folder that is no model", "transformers", "-m", ROOT, "--tokens", "1", "-o", new),
        ("a folder without a tokenizer", "transformers", "-m", hf, "-p", "x", "-o", new),
        ("a token beyond the vocabulary", "transformers", "-m", hf, "--tokens", "500", "-o", new),
        ("a device that is not there", "transformers", "-m", hf, "--tokens", "5", "--device", "cuda:99", "-o", new),
    ):
        done = command(engine, *arguments)
        ok = done.returncode == 2 and done.stderr.strip() and not new.exists() and "Traceback" not in done.stderr
        said = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else ""
        one_line = len(done.stderr.strip().splitlines()) == 1 or "usage:" in done.stderr
        report.case(f"{engine}: {what} is refused", ok and one_line, said)
    missing = subprocess.run([sys.executable, "-c", "import sys; sys.modules['llama_cpp'] = None; "
                              "from lockstep.capture import llama_cpp; "
                              f"sys.exit(llama_cpp.main(['-m', {str(MODEL)!r}, '-p', 'x', '-o', {str(new)!r}]))"],
                             env=os.environ | {"PYTHONPATH": str(ROOT / "python")}, text=True,
                             capture_output=True)  # fmt: skip
    named = "pip install llama-cpp-python" in missing.stderr
    report.case("a missing package is named", missing.returncode == 2 and named and not new.exists(),
                missing.stderr.strip())  # fmt: skip


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    report = Report("capture")
    report.attempt("llama.cpp", check_llama_cpp, report)
    for seed, arch in enumerate(HF_ARCHITECTURES, 500):
        report.attempt(arch, check_transformers, report, arch, seed)
    report.attempt("another architecture", check_other_architecture, report)
    report.attempt("wrong use", check_wrong_use, report)
    shutil.rmtree(FOLDER)
    report.finish()


if __name__ == "__main__":
    main()
