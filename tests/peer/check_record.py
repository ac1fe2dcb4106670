"""`lockstep.record` on models of transformers that generate, judged against the exact weights; and the package's own tests of torch."""

import os
import shutil
import subprocess
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")  # as lockstep.capture.transformers has it

import json

import numpy as np
import torch
import transformers

import hf_models
import lockstep
from peer import LOCKSTEP, ROOT, Report, WORK

PROMPT, MORE = 7, 4
GOOD = ("exact", "rounding", "drift", "close")


class Case:
    """A random model, its GGUF file, and token ids."""

    def __init__(self, arch, seed, options=None, dtype=torch.float32):
        model = hf_models.random_model(hf_models.config_of(arch, options or {}), seed)
        self.path = WORK / "recorded.gguf"
        hf_models.export(model, self.path)
        self.model = model.to(dtype)
        random = np.random.default_rng(seed)
        self.ids = torch.tensor(random.integers(1, hf_models.VOCABULARY, (1, PROMPT)))  # 0 is padding

    def record(self, call, model=None, **options):
        folder = WORK / "recorded.trace"
        shutil.rmtree(folder, ignore_errors=True)
        with torch.no_grad(), lockstep.record(model or self.model, folder, gguf=self.path, sampling={"temperature": 0},
                                              **options) as self.recording:  # fmt: skip
            call()
        return lockstep.open_trace(folder)

    def generate(self, ids=None, **options):
        return self.model.generate(self.ids if ids is None else ids, max_new_tokens=MORE, do_sample=False, pad_token_id=0,
                                   **options)  # fmt: skip

    def judge(self, trace, device="reference"):
        """The recorded trace beside our own run of the same tokens."""
        ours = WORK / "ours.trace"
        shutil.rmtree(ours, ignore_errors=True)
        tokens = ",".join(map(str, trace.tokens.tolist()))
        subprocess.run([LOCKSTEP, "run", "-m", self.path, "--tokens", tokens, "-n", "1", "--device", device, "--trace", ours,
                        "--checkpoints", "all"], check=True, stdout=subprocess.DEVNULL)  # fmt: skip
        done = subprocess.run([LOCKSTEP, "compare", ours, trace.folder, "--json"], capture_output=True, text=True)
        if done.returncode == 2:
            raise RuntimeError(done.stderr)
        return json.loads(done.stdout)


def check(report, name, case, trace, at_most=None, prompt=PROMPT):
    found = case.judge(trace)
    lacking = [c["name"] for c in found["checkpoints"] if c["verdict"] == "missing" and c["known"]]
    good = found["parity"] and found["judged"] == 1 and not lacking
    good = good and (PROMPT < len(trace.tokens) <= at_most if at_most else len(trace.tokens) == PROMPT + MORE - 1)
    good = good and all(len(trace[own]) == len(trace.tokens) for own in case.recording.own_names if own != "lm_head")
    report.case(name, good and trace.n_prompt == prompt, f"{found['headline']}; missing {lacking}; {case.recording.notes}")


def generation(report, arch, seed):
    case = Case(arch, seed)
    check(report, f"{arch}, generation with a cache", case, case.record(case.generate))
    trace = case.record(lambda: case.generate(use_cache=False))
    found = case.judge(trace)
    bad = [c["name"] for c in found["checkpoints"] if c["verdict"] not in GOOD]
    report.case(f"{arch}, generation without a cache", not bad and found["judged"] == 1 and len(trace.steps) == 1
                and len(trace.tokens) == PROMPT + MORE - 1, found["headline"])  # fmt: skip


def fused(report, arch, seed):
    """As users load a model: attention and experts in one call each. What that hides is told, and nothing else is missing."""
    options = {"intermediate_size": 32, "moe_intermediate_size": 28}  # torch multiplies groups of rows of 16 bytes
    case = Case(arch, seed, options)
    weights = case.model.state_dict()
    config = hf_models.config_of(arch, {**options, "attn_implementation": None})
    case.model = transformers.AutoModelForCausalLM.from_config(config).eval()
    case.model.load_state_dict(weights)
    trace = case.record(case.generate)
    found = case.judge(trace)
    hidden = (".v", ".q_rope", ".k_rope", ".attn_scores", ".attn_probs") + tuple(
        f".ffn_expert_{part}" for part in ("gate", "up", "act", "out"))  # fmt: skip
    lacking = [c["name"] for c in found["checkpoints"]
               if c["verdict"] == "missing" and c["known"] and not c["name"].endswith(hidden)]  # fmt: skip
    told = sum('"eager" does' in note for note in case.recording.notes)
    report.case(f"{arch}, fused", found["parity"] and found["judged"] == 1 and not lacking
                and told == len(case.recording.notes) and told >= 1, f"{found['headline']}; {lacking}; {case.recording.notes}")  # fmt: skip


def batches(report, arch, seed):
    case = Case(arch, seed)
    padded = torch.zeros((3, PROMPT + 5), dtype=torch.long)
    mask = torch.zeros_like(padded)
    for row, count in enumerate((PROMPT + 5, PROMPT, 1)):
        padded[row, -count:] = case.ids[0, 0] if count == 1 else torch.arange(count) + 3
        mask[row, -count:] = 1
    padded[1, -PROMPT:] = case.ids[0]
    trace = case.record(lambda: case.generate(padded, attention_mask=mask), sequence=1)
    check(report, f"{arch}, the second of a batch, with padding before it", case, trace)
    trace = case.record(lambda: case.generate(padded, attention_mask=mask, cache_implementation="static"), sequence=1)
    check(report, f"{arch}, the same with a cache of a fixed size", case, trace)


def ways_to_generate(report, arch, seed):
    case = Case(arch, seed)
    check(report, f"{arch}, a beam", case, case.record(lambda: case.generate(num_beams=4)), at_most=PROMPT + MORE - 1)
    check(report, f"{arch}, a prompt in pieces", case, case.record(lambda: case.generate(prefill_chunk_size=3)), prompt=PROMPT)
    trace = case.record(lambda: case.generate(case.ids.repeat(1, 2), prompt_lookup_num_tokens=3))
    found = case.judge(trace)
    report.case(f"{arch}, tokens that are tried and taken back", found["parity"] and found["judged"] == 1, found["headline"])
    longer = torch.arange(1, 3 * PROMPT)[None]
    trace = case.record(lambda: [case.generate(), case.generate(longer)])
    check(report, f"{arch}, another sequence after it", case, trace)
    trace = case.record(lambda: train(case))
    found = case.judge(trace)
    report.case(f"{arch}, gradient checkpointing", found["parity"] and found["judged"] == 1, found["headline"])


def train(case):
    case.model.train()
    case.model.gradient_checkpointing_enable()
    with torch.enable_grad():
        case.model(input_ids=case.ids, labels=case.ids, use_cache=False).loss.backward()


def halves(report, arch, seed):
    for dtype in (torch.bfloat16, torch.float16):
        case = Case(arch, seed, dtype=dtype)
        check(report, f"{arch}, {dtype}", case, case.record(case.generate))


def wrapped(report, arch, seed):
    case = Case(arch, seed)

    class Wrapper(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.engine = torch.nn.ModuleDict({"llm": inner})

        def forward(self, input_ids):
            return self.engine["llm"](input_ids=input_ids, use_cache=False)

    whole = torch.cat([case.ids, torch.arange(MORE - 1)[None]], 1)
    model = Wrapper(case.model)
    trace = case.record(lambda: model(whole), model)  # the inner one tells what it is
    found = case.judge(trace)
    lacking = [c["name"] for c in found["checkpoints"] if c["verdict"] == "missing" and c["known"]]
    report.case(f"{arch}, inside another module", found["parity"] and not lacking, f"{found['headline']}; {lacking}")
    trace = case.record(lambda: case.model.model(whole), case.model.model)
    found = case.judge(trace)
    bad = [c["name"] for c in found["checkpoints"] if c["verdict"] not in GOOD]
    report.case(f"{arch}, the part without logits", bad == ["logits"], f"{found['headline']}; {bad}")


def mistake(report, arch, seed):
    case = Case(arch, seed)
    layer = case.model.model.layers[1].self_attn.v_proj
    layer.register_forward_hook(lambda module, inputs, output: output * 1.01)  # before ours
    found = case.judge(case.record(case.generate))
    defect = found["first_defect"] or {}
    report.case(f"{arch}, a mistake is found", (defect.get("checkpoint"), defect.get("side")) == ("blk.1.v", "suspect"),
                found["headline"])  # fmt: skip


def main():
    torch.set_num_threads(2)
    WORK.mkdir(parents=True, exist_ok=True)
    report = Report("record")
    for test in ("test_values.py", "test_record.py", "test_record_odd.py", "test_examples.py"):
        done = subprocess.run([sys.executable, ROOT / "python/tests" / test],
                              env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "LOCKSTEP": str(LOCKSTEP),
                                   "LOCKSTEP_MODELS": str(ROOT / "models")})  # fmt: skip
        report.case(f"python/tests/{test}", done.returncode == 0)
    seed = int.from_bytes(os.urandom(2), "little")
    print(f"seed {seed}")
    for arch in ("gpt2", "llama", "qwen2", "qwen3", "phi3", "granite", "gpt-oss", "deepseek_v2", "deepseek_v3", "qwen3moe", "olmoe"):
        report.attempt(arch, generation, report, arch, seed)
    for arch in ("gpt-oss", "deepseek_v3", "qwen3moe"):
        report.attempt(arch, fused, report, arch, seed)
    for arch in ("gpt2", "llama", "qwen3", "gemma3"):
        report.attempt(arch, batches, report, arch, seed)
    for arch in ("llama", "gemma3"):
        report.attempt(arch, ways_to_generate, report, arch, seed)
    report.attempt("halves", halves, report, "llama", seed)
    report.attempt("wrapped", wrapped, report, "llama", seed)
    report.attempt("mistake", mistake, report, "qwen2", seed)
    for left in ("recorded.gguf", "recorded.trace", "ours.trace"):
        shutil.rmtree(WORK / left, ignore_errors=True) if left.endswith("trace") else (WORK / left).unlink(missing_ok=True)
    report.finish()


if __name__ == "__main__":
    main()
