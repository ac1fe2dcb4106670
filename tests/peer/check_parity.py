"""llama.cpp and transformers against our executors, on trained and forged models of every architecture.

Every op of a peer must be within rounding, except where llama.cpp is truly off: its GELU is looked up in a table of
half-precision numbers, and it ignores Phi-3's window. These must be found, at their checkpoint, on the peer's side.
Ends with the table of docs/parity.md.
"""

import numpy as np

from peer import LOCKSTEP, ROOT, WORK, Report, run_ours
import llama_engine
import parity
import smollm2

LEAST_COVERAGE = 0.95
PROMPT, CHOSEN = 24, 8
WINDOW = 16
KINDS = ("f32", "f16", "q8_0", "q4_k_m")
ARCHITECTURES = ("gpt2", "llama", "qwen2", "qwen3", "phi3", "granite", "gemma2", "gemma3", "olmo2", "smollm3", "glm4",
                 "stablelm", "phi2", "starcoder2")  # fmt: skip
WITH_GELU = ("gpt2", "gemma2", "gemma3", "phi2", "starcoder2")
VOCABULARY = 499
HAIKU_VOCABULARY = 600  # without its special tokens
HAIKU_WINDOW = 64
# Rows of the K formats are multiples of 256. Phi-3's window is beyond the prompt, but for a case of its own.
SIZES = {"layers": 3, "width": 256, "heads": 4, "kv-heads": 2, "feed-forward": 512, "vocab": VOCABULARY, "context": 256}
OWN = {"gpt2": {"kv-heads": 4}, "phi3": {"window": 128}, "gemma2": {"window": 9, "tied": True}, "gemma3": {"window": 9, "layers": 7},
       "smollm3": {"layers": 5}, "glm4": {"rope-dims": 32}, "stablelm": {"rope-dims": 16},
       "phi2": {"kv-heads": 4, "rope-dims": 32}}  # fmt: skip


def forged(arch, kind, seed, **more):
    path = WORK / f"parity-{arch}-{kind}.gguf"
    command = [LOCKSTEP, "forge", "--force", "--arch", arch, "--type", kind, "--seed", seed]
    for name, value in (SIZES | OWN.get(arch, {}) | more).items():
        command += [f"--{name}"] if value is True else [f"--{name}", value]
    run_ours([*command, path])
    return path


def expected_defect(engine, arch, window):
    """Where a peer is truly off: checkpoint and position; nothing where it is right."""
    if engine == "llama.cpp" and arch in WITH_GELU:
        return "blk.0.ffn_act", 0
    if engine == "llama.cpp" and window:
        return "blk.0.attn_scores", window
    return None


def judge(report, name, result, expected):
    """One comparison of ours (the reference) with a peer (the suspect)."""
    found = result["first_defect"]
    if expected is None:
        ok = result["parity"] and found is None
        said = result["headline"] if not ok else ""
    else:
        got = (found["checkpoint"], found["position"]) if found else None
        ok = got == expected and found["side"] == "suspect" and not result["parity"]
        said = f"found {got}, expected {expected} on the peer's side" if not ok else f"the peer is off at {expected[0]}"
        # The same mistake in every layer, and no other.
        kind = expected[0].split(".")[-1]
        others = [c["name"] for c in result["checkpoints"]
                  if c["verdict"] in ("defect", "garbage") and c["name"].split(".")[-1] != kind]  # fmt: skip
        if others:
            ok, said = False, f"defects elsewhere: {', '.join(others)}"
    report.case(f"{name}: every op within rounding" if expected is None else f"{name}: the defect is found", ok, said)
    covered = result["coverage"] >= LEAST_COVERAGE and result["judged"] >= LEAST_COVERAGE
    report.case(f"{name}: coverage", covered, f"{result['coverage']:.1%} of the rows, {result['judged']:.1%} replayed")
    fork = result["fork"]
    if expected is None:
        told = "all agree" if fork is None else f"part at {fork['position']}, margin {fork['margin']:.2g}"
        report.case(f"{name}: chosen tokens", fork is None or fork["tie"], told)


def check_model(report, rows, name, arch, path, tokens, window=None):
    with parity.Bench(WORK / "parity", path, tokens, CHOSEN) as bench:
        for device in parity.devices():
            bench.ours(device)
        for engine in parity.PEERS:
            results = {}
            for device in parity.devices():
                result = results[device] = bench.compare(bench.ours(device), bench.peer(engine))
                judge(report, f"{engine}, {name}, {device}", result, expected_defect(engine, arch, window))
            rows.append(table_row(engine, name, results))


def table_row(engine, name, results):
    truth = results["reference"]
    found = truth["first_defect"]
    verdict = truth["verdict"] if truth["parity"] else f"**defect of {engine}: {found['checkpoint']}**"
    ratio, where = parity.largest_ratio(truth, "suspect")
    own = max(parity.largest_ratio(result, "reference")[0] for result in results.values())
    nmse = [f"{parity.logits_nmse(result):.1e}" for result in results.values()]
    same, of = truth["choices"]["same"], truth["choices"]["compared"]
    return [engine, name, verdict, *nmse, f"{ratio:.2g} ({where})", f"{own:.2g}", f"{same} of {of}",
            f"{truth['coverage']:.0%}"]  # fmt: skip


def show(rows):
    titles = ["engine", "model", "verdict", *(f"NMSE, {device}" for device in parity.devices()),
              "own error / bound, peer", "ours", "same choice", "coverage"]  # fmt: skip
    for row in (titles, ["---"] * len(titles), *rows):
        print("| " + " | ".join(row) + " |", flush=True)


def tokens_of(seed, vocabulary, count=PROMPT):
    return [int(token) for token in np.random.default_rng(seed).integers(0, vocabulary, count)]


def check_smollm2(report, rows):
    path = smollm2.model_file()
    engine = llama_engine.Engine(path, 256)
    tokens = engine.tokenize(smollm2.chat(smollm2.QUESTIONS[0]), parse_special=True)
    engine.close()
    check_model(report, rows, "SmolLM2-135M-Instruct, Q4_1", "llama", path, tokens)


def main():
    WORK.mkdir(parents=True, exist_ok=True)
    report, rows = Report("parity"), []
    for path in sorted((ROOT / "models").glob("haiku-*.gguf")):
        name, arch = path.stem, path.stem.split("-")[1]
        report.attempt(name, check_model, report, rows, name, arch, path, tokens_of(1, HAIKU_VOCABULARY))
        if arch == "phi3":
            name += f", beyond its window of {HAIKU_WINDOW}"
            long = tokens_of(2, HAIKU_VOCABULARY, HAIKU_WINDOW + 4)
            report.attempt(name, check_model, report, rows, name, arch, path, long, HAIKU_WINDOW)
    for kind in KINDS:
        for seed, arch in enumerate(ARCHITECTURES, 700):
            path = forged(arch, kind, seed)
            name = f"forged {arch}, {kind.upper()}"
            report.attempt(name, check_model, report, rows, name, arch, path, tokens_of(seed, VOCABULARY))
            path.unlink()
    for kind in KINDS:
        path = forged("phi3", kind, 800, window=WINDOW)
        name = f"forged phi3, {kind.upper()}, window of {WINDOW}"
        report.attempt(name, check_model, report, rows, name, "phi3", path, tokens_of(800, VOCABULARY), WINDOW)
        path.unlink()
    report.attempt("SmolLM2", check_smollm2, report, rows)
    show(rows)
    report.finish()


if __name__ == "__main__":
    main()
