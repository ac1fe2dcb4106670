"""Folders of the hub: what save_pretrained writes, read by us, against transformers and our own GGUF export."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import json
import shutil

import gguf
import numpy as np
import torch
from safetensors.torch import load_file, save_file

import hf_models
import llama_engine
from check_transformers import CASES, GPT_OSS_YARN, LLAMA3, LONG_PHI3, YARN
from peer import LOCKSTEP, Report, nmse, our_values, run_ours, WORK

BOUND = 1e-12
BFLOAT_LLAMA_CPP_BOUND = 5e-3  # it rounds activations too

# What differs from the cases of check_transformers.py: files in parts, other formats, older words of config.json.
OLDER = {
    "llama, yarn": {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
                    "rope_theta": 10000.0},
    "llama, llama3 rope scaling": {"rope_scaling": {k: v for k, v in LLAMA3.items() if k != "rope_theta"},
                                   "rope_theta": 10000.0},
    "phi3, long rope beyond the original context": {
        "rope_scaling": {"type": "longrope", "short_factor": LONG_PHI3["rope_parameters"]["short_factor"],
                         "long_factor": LONG_PHI3["rope_parameters"]["long_factor"]}, "rope_theta": 10000.0},
    "gemma3": {"rope_theta": 30000.0, "rope_local_base_freq": 1000.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
               "sliding_window_pattern": 6},
    "glm4": {"rope_theta": 10000.0, "partial_rotary_factor": 0.5},
}  # fmt: skip

# Name, architecture, options, tokens, context: what no GGUF export of ours has.
MORE = [
    ("mistral, a window of 9", "mistral", {"sliding_window": 9}, 40, 40),
    ("qwen2, a window in the last layers", "qwen2",
     {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 3}, 40, 40),
    ("olmo3, yarn", "olmo3", {"sliding_window": 9, "rope_parameters": {"full_attention": {**YARN, "attention_factor": 1.3},
                              "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}, 100, 100),
    ("qwen2moe, weights of experts normalized", "qwen2moe", {"norm_topk_prob": True}, 40, 40),
    ("qwen3moe, weights of experts not normalized", "qwen3moe", {"norm_topk_prob": False}, 40, 40),
    ("granitemoe with a shared expert", "granitemoeshared", {"shared_intermediate_size": 37}, 40, 40),
    ("granitemoe with a shared expert of no width", "granitemoeshared", {"shared_intermediate_size": 0}, 40, 40),
]  # fmt: skip


def config_of(arch, options):
    if arch not in ("mistral", "olmo3", "granitemoeshared"):
        return hf_models.config_of(arch, options)
    import transformers

    if arch == "granitemoeshared":
        usual = hf_models.config_of("granitemoe", {}).to_dict()
        return transformers.GraniteMoeSharedConfig(**{**usual, **options, "model_type": arch})
    kind = {"mistral": transformers.MistralConfig, "olmo3": transformers.Olmo3Config}[arch]
    common = hf_models._common(6, 3, 67)
    return kind(**{**common, "head_dim": hf_models.WIDTH // 6, **hf_models._rope(), **options})


def save(model, folder, **options):
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, **options)


def make_older(folder, words):
    """config.json as it was before `rope_parameters`."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    for key in ("rope_parameters", "layer_types"):
        config.pop(key, None)
    path.write_text(json.dumps(config | words))


def worst_of(folder, tokens, theirs, context):
    return hf_models.farthest(our_values(folder, tokens, context=context), theirs, BOUND)


def tensors_of(path):
    return {tensor.name: (tensor.tensor_type, np.array(tensor.data)) for tensor in gguf.GGUFReader(path).tensors}


def differing(path, expected):
    """The names of tensors that two files do not have alike."""
    ours, theirs = tensors_of(path), tensors_of(expected)
    same = [name for name in ours.keys() & theirs.keys()
            if ours[name][0] == theirs[name][0] and ours[name][1].shape == theirs[name][1].shape
            and np.array_equal(ours[name][1], theirs[name][1])]  # fmt: skip
    return sorted((ours.keys() | theirs.keys()) - set(same))


def run_case(report, seed, name, arch, options, count, context):
    folder, exported, converted = WORK / "hub", WORK / "hub-export.gguf", WORK / "hub-convert.gguf"
    options = {key: value for key, value in options.items() if key != "whole_kv_b"}  # a form of GGUF files
    if options.get("moe_intermediate_size") == 1:  # transformers writes such experts as vectors
        options = options | {"moe_intermediate_size": 2}
    model = hf_models.random_model(config_of(arch, options), seed)
    tokens = [int(token) for token in np.random.default_rng(seed).integers(0, hf_models.VOCABULARY, count)]
    # Without the width of a shared expert, Granite's checkpoints have other names there.
    theirs = hf_models.forward(model, tokens, "logits" if options.get("shared_intermediate_size") == 0 else "all")
    save(model.float(), folder, **({"max_shard_size": "100KB"} if seed % 2 else {}))
    if name in OLDER:
        make_older(folder, OLDER[name])
    worst_name, worst = worst_of(folder, tokens, theirs, context)
    report.below(f"{name}: {len(list(folder.glob('*.safetensors')))} files, worst {worst_name}", worst, BOUND)
    if any(name == case[0] for case in MORE):
        return
    hf_models.export(model.double(), exported)
    run_ours([LOCKSTEP, "convert", folder, converted, "--force"])
    wrong = differing(converted, exported)
    report.case(f"{name}: the tensors of the export", not wrong, ", ".join(wrong[:5]))


def run_format(report, seed, arch, dtype):
    """Weights in two bytes: transformers with the same numbers, llama.cpp on the converted file."""
    folder, converted = WORK / "hub", WORK / "hub-convert.gguf"
    model = hf_models.random_model(config_of(arch, {}), seed)
    with torch.no_grad():  # the parameters alone: frequencies stay as they are
        for weight in model.parameters():
            weight.copy_(weight.to(dtype))
    save(model, folder, state_dict={name: weight.to(dtype) for name, weight in model.state_dict().items()})
    tokens = [int(token) for token in np.random.default_rng(seed).integers(0, hf_models.VOCABULARY, 40)]
    worst_name, worst = worst_of(folder, tokens, hf_models.forward(model, tokens), 64)
    report.below(f"{arch} in {dtype}: worst {worst_name}", worst, BOUND)
    run_ours([LOCKSTEP, "convert", folder, converted, "--force"])
    ours = our_values(converted, tokens, ["logits"], context=64)["logits"]
    theirs = llama_engine.logits(str(converted), tokens, 64)
    report.below(f"{arch} in {dtype}: llama.cpp on the converted file", nmse(ours, theirs), BFLOAT_LLAMA_CPP_BOUND)


def in_eight_bits(weight, rows, columns):
    """Blocks of a matrix as eight-bit floats and their scales, and the numbers that these stand for."""
    coded = torch.empty(weight.shape, dtype=torch.float8_e4m3fn)
    scales = torch.empty(-(-weight.shape[0] // rows), -(-weight.shape[1] // columns), dtype=torch.float32)
    meant = torch.empty(weight.shape, dtype=torch.float32)
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            place = (slice(i * rows, (i + 1) * rows), slice(j * columns, (j + 1) * columns))
            scales[i, j] = weight[place].abs().max() / 448
            coded[place] = (weight[place].float() / scales[i, j]).to(torch.float8_e4m3fn)
            meant[place] = coded[place].float() * scales[i, j]
    return coded, scales, meant


def run_eight_bits(report, seed, arch):
    """Weights as DeepSeek's: transformers with the numbers that they stand for."""
    folder, rows, columns = WORK / "hub", 16, 20
    model = hf_models.random_model(config_of(arch, {}), seed)
    save(model.float(), folder)
    stored = load_file(folder / "model.safetensors")
    coded = {}
    for name, weight in stored.items():
        if weight.dim() != 2 or "proj" not in name:
            coded[name] = weight
            continue
        coded[name], coded[name + "_scale_inv"], stored[name] = in_eight_bits(weight, rows, columns)
    save_file({name: weight.contiguous() for name, weight in stored.items()}, folder / "model.safetensors", {"format": "pt"})
    exact = type(model).from_pretrained(
        folder, attn_implementation="eager", experts_implementation="eager"
    ).double()
    tokens = [int(token) for token in np.random.default_rng(seed).integers(0, hf_models.VOCABULARY, 40)]
    theirs = hf_models.forward(exact, tokens)
    save_file(coded, folder / "model.safetensors", {"format": "pt"})
    path = folder / "config.json"
    quantization = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [rows, columns], "activation_scheme": "dynamic"}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": quantization}))
    worst_name, worst = worst_of(folder, tokens, theirs, 64)
    report.below(f"{arch} in eight bits: worst {worst_name}", worst, BOUND)


FOUR_BITS = {"hidden_size": 96, "intermediate_size": 64, "head_dim": 14, "num_local_experts": 5}


def write_four_bits(folder, seed, options):
    """gpt-oss as it is published, its experts as blocks and scales; returns the model with the numbers that these stand for."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    model = hf_models.random_model(config_of("gpt-oss", options), seed)
    with torch.no_grad():  # the parameters alone: frequencies stay as they are
        for weight in model.parameters():
            weight.copy_(weight.to(torch.bfloat16))
    save(model, folder, state_dict={name: weight.to(torch.bfloat16) for name, weight in model.state_dict().items()})
    stored = load_file(folder / "model.safetensors")
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if not name.endswith(("gate_up_proj", "down_proj")):
                continue
            experts, columns, rows = weight.shape
            blocks = torch.randint(0, 256, (experts, rows, columns // 32, 16), generator=random, dtype=torch.uint8)
            scales = torch.randint(120, 126, (experts, rows, columns // 32), generator=random, dtype=torch.uint8)
            weight.copy_(convert_moe_packed_tensors(blocks, scales, dtype=torch.float32))
            del stored[name]
            stored[name + "_blocks"], stored[name + "_scales"] = blocks, scales
    save_file({name: value.contiguous() for name, value in stored.items()}, folder / "model.safetensors", {"format": "pt"})
    path = folder / "config.json"
    quantization = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": quantization}))
    return model


def run_four_bits(report, seed):
    folder = WORK / "hub"
    model = write_four_bits(folder, seed, FOUR_BITS | {"rope_parameters": GPT_OSS_YARN})
    tokens = [int(token) for token in np.random.default_rng(seed).integers(0, hf_models.VOCABULARY, 40)]
    worst_name, worst = worst_of(folder, tokens, hf_models.forward(model, tokens), 64)
    report.below(f"gpt-oss in four bits: worst {worst_name}", worst, BOUND)


def main():
    torch.set_num_threads(2)
    WORK.mkdir(parents=True, exist_ok=True)
    report = Report("hub")
    wanted = os.environ.get("LOCKSTEP_HUB_CASE", "")  # a part of the names, to try one
    for seed, case in enumerate([*CASES, *MORE], 300):
        if wanted not in case[0]:
            continue
        report.attempt(case[0], run_case, report, seed, *case)
    for seed, arch in enumerate(("gpt2", "llama", "qwen2", "gemma3", "stablelm", "phi3"), 400):
        for dtype in (torch.bfloat16, torch.float16):
            if wanted in f"{arch} in {dtype}":
                report.attempt(f"{arch} in {dtype}", run_format, report, seed, arch, dtype)
    for seed, arch in enumerate(("llama", "qwen3", "qwen3moe", "deepseek_v3"), 500):
        if wanted in f"{arch} in eight bits":
            report.attempt(f"{arch} in eight bits", run_eight_bits, report, seed, arch)
    if wanted in "gpt-oss in four bits":
        report.attempt("gpt-oss in four bits", run_four_bits, report, 600)
    shutil.rmtree(WORK / "hub", ignore_errors=True)
    for name in ("hub-export.gguf", "hub-convert.gguf"):
        (WORK / name).unlink(missing_ok=True)
    report.finish()


if __name__ == "__main__":
    main()
