"""`lockstep convert` against llama.cpp's own converter, tensor by tensor and key by key; llama.cpp on what was written.

LOCKSTEP_LLAMA_CPP names a checkout of llama.cpp (convert_hf_to_gguf.py, conversion/, gguf-py/). Without it only the last
part runs.
"""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

import hf_models
from check_hub import config_of, write_four_bits
from check_parity import WITH_GELU
from parity import Bench, largest_ratio, logits_nmse
from peer import LOCKSTEP, Report, run_ours, WORK

SOURCE = os.environ.get("LOCKSTEP_LLAMA_CPP", "")
# Rows of 256 numbers and more, so that superblocks fit.
WIDE = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64}
LATENT = {"num_attention_heads": 4, "num_key_value_heads": 4, "kv_lora_rank": 256, "q_lora_rank": 256,
          "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64, "moe_intermediate_size": 256,
          "first_k_dense_replace": 1}  # fmt: skip
FOUR_BITS_ARCH = "gpt-oss in four bits"
ARCHS = {
    "llama": WIDE | HEADS,
    "qwen2": WIDE | {"num_attention_heads": 4, "num_key_value_heads": 2},
    "qwen3": WIDE | HEADS,
    "phi3": WIDE | {"num_attention_heads": 4, "num_key_value_heads": 2},
    "granite": WIDE | {"num_attention_heads": 4, "num_key_value_heads": 2},
    "gemma2": WIDE | HEADS | {"query_pre_attn_scalar": 64, "tie_word_embeddings": True},
    "gemma3": WIDE | HEADS | {"query_pre_attn_scalar": 64, "tie_word_embeddings": True},
    "olmo2": WIDE | HEADS,
    "smollm3": WIDE | HEADS,
    "glm4": WIDE | HEADS,
    "starcoder2": WIDE | {"num_attention_heads": 4, "num_key_value_heads": 2},
    "phi2": WIDE | {"num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 1024},
    "stablelm": WIDE | {"num_attention_heads": 4, "num_key_value_heads": 2},
    "gpt2": {"n_embd": 256, "n_inner": 1024, "n_layer": 3, "n_ctx": hf_models.CONTEXT},
    "mixtral": WIDE | HEADS,
    "qwen2moe": WIDE | {"num_attention_heads": 4, "num_key_value_heads": 2, "moe_intermediate_size": 256,
                        "shared_expert_intermediate_size": 512},
    "qwen3moe": WIDE | HEADS | {"moe_intermediate_size": 256},
    "olmoe": WIDE | {"num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 256},
    "granitemoe": WIDE | {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 256},
    "gpt-oss": WIDE | HEADS | {"intermediate_size": 256},
    FOUR_BITS_ARCH: WIDE | HEADS | {"intermediate_size": 256},
    "deepseek_v2": WIDE | LATENT,
    "deepseek_v3": WIDE | LATENT | {"n_group": 3, "topk_group": 2, "scoring_func": "sigmoid"},
}  # fmt: skip
# Their converter reads the tokenizer for its weights too.
NEEDS_TOKENIZER = ("gemma3",)
# The converter without its tokenizer, which these folders do not have.
CONVERTER = """
import sys
source, folder, out, kind = sys.argv[1:]
sys.path[:0] = [source, source + "/gguf-py"]
import convert_hf_to_gguf
find = convert_hf_to_gguf.get_model_class
def without_vocabulary(*arguments, **options):
    found = find(*arguments, **options)
    found.set_vocab = lambda self: self.gguf_writer.add_tokenizer_model("none")
    return found
convert_hf_to_gguf.get_model_class = without_vocabulary
sys.argv = ["convert", folder, "--outfile", out, "--outtype", kind]
convert_hf_to_gguf.main()
"""


def write_folder(arch, seed):
    folder = WORK / "converter"
    shutil.rmtree(folder, ignore_errors=True)
    if arch == FOUR_BITS_ARCH:
        write_four_bits(folder, seed, ARCHS[arch])
        return folder
    model = hf_models.random_model(config_of(arch, ARCHS[arch]), seed)
    numbers = {name: weight.to(torch.bfloat16) for name, weight in model.state_dict().items()}
    model.to(torch.bfloat16).save_pretrained(folder, state_dict=numbers)
    return folder


def against_theirs(report, arch, seed):
    folder, ours, theirs = write_folder(arch, seed), WORK / "converter-ours.gguf", WORK / "converter-theirs.gguf"
    done = subprocess.run([sys.executable, "-c", CONVERTER, SOURCE, str(folder), str(theirs), "bf16"],
                          capture_output=True, text=True)  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"their converter: {done.stderr.strip()[-400:]}")
    run_ours([LOCKSTEP, "convert", folder, ours, "--force"])
    out = subprocess.run([str(LOCKSTEP), "audit", str(theirs), str(ours), "--json"], capture_output=True, text=True)
    found = json.loads(out.stdout)
    wrong = [f"{t['name']} {t['verdict']}" for t in found["tensors"] if t["verdict"] != "equal"]
    report.case(f"{arch}: tensors of their converter", not wrong, ", ".join(wrong[:5]))
    keys = [f"{m['key']} {m['a']} there, {m['b']} here" for m in found["metadata"] if m["verdict"] not in ("equal", "assumed")]
    report.case(f"{arch}: metadata of their converter", not keys, ", ".join(keys[:5]))


def in_superblocks(report, arch, seed):
    """llama.cpp on our Q4_K_M file. It rounds activations to eight bits, which random weights multiply: so each of its
    operations is judged by its own inputs."""
    folder, ours = write_folder(arch, seed), WORK / "converter-ours.gguf"
    run_ours([LOCKSTEP, "convert", folder, ours, "--type", "q4_k_m", "--force"])
    tokens = [int(token) for token in np.random.default_rng(seed).integers(0, hf_models.VOCABULARY, 40)]
    with Bench(WORK / "converter-traces", ours, tokens, 1) as bench:
        found = bench.compare(bench.ours("reference"), bench.llama_cpp())
    if arch in WITH_GELU:  # its table of half-precision numbers is off, as check_parity.py has it
        found["checkpoints"] = [c for c in found["checkpoints"] if not c["name"].endswith("ffn_act")]
    ratio, worst = largest_ratio(found, "suspect")
    report.case(f"{arch} in Q4_K_M: llama.cpp", ratio <= 1, f"{ratio:.2g} of the bound at {worst}; logits {logits_nmse(found):.1e}")


def main():
    torch.set_num_threads(2)
    WORK.mkdir(parents=True, exist_ok=True)
    report = Report("converter")
    wanted = os.environ.get("LOCKSTEP_CONVERTER_ARCH", "")
    for seed, arch in enumerate(ARCHS, 700):
        if wanted not in arch:
            continue
        if SOURCE and Path(SOURCE).is_dir() and arch not in NEEDS_TOKENIZER:
            report.attempt(f"{arch} against their converter", against_theirs, report, arch, seed)
        report.attempt(f"{arch} in Q4_K_M", in_superblocks, report, arch, seed)
    shutil.rmtree(WORK / "converter", ignore_errors=True)
    for name in ("converter-ours.gguf", "converter-theirs.gguf"):
        (WORK / name).unlink(missing_ok=True)
    report.finish()


if __name__ == "__main__":
    main()
