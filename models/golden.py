#!/usr/bin/env python3
"""Expected values for the tests: what transformers computes with the shipped weights, in double precision.

    python models/golden.py --from DIR --out tests/golden [NAME ...]

DIR is what models/train.py left (NAME.safetensors and models.json). For each model and three prompts it records the checkpoints
`embedding`, `blk.N.output`, `final_norm` and `logits` at all positions, as F64 tensors `<prompt index>/<checkpoint>` of shape
[tokens, width], with the ids as I64 `<prompt index>/tokens`. haiku-llama gets a second file in bfloat16 (NAME-bf16.safetensors).

transformers computes norms, rotation angles and the weights of experts in single precision whatever the weights are; they are
replaced here by the same formulas in double precision, so that the values are good to about 1e-15.
"""

import argparse
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file

from tokenization import load_tokenizer
from zoo import SPECS, build

PROMPTS = ["GPU haiku with word fifty-one: ", "Write a haiku about rain\nSoft rain on the roof,\n", "Tea haiku: Green"]
# Longer than haiku-phi3's window, so that the window shows in the values.
LONG = "Write a haiku about the sea.\nSalt on the rail,\nshells turn over in the surf. One sail leans and shines.\n" * 2


class ExactNorm(torch.nn.Module):
    def __init__(self, norm, eps):
        super().__init__()
        self.weight, self.eps = norm.weight, eps

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps))


class ExactRouter(torch.nn.Module):
    def __init__(self, router):
        super().__init__()
        self.weight, self.top_k = router.weight, router.top_k

    def forward(self, x):
        logits = x @ self.weight.T
        weights, experts = torch.topk(torch.softmax(logits, dim=-1), self.top_k, dim=-1)
        return logits, weights / weights.sum(dim=-1, keepdim=True), experts


class ExactRotation(torch.nn.Module):
    def __init__(self, theta, width):
        super().__init__()
        self.frequency = theta ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)

    def forward(self, x, position_ids, **_):
        angle = position_ids[..., None].double() * self.frequency  # [1, tokens, width/2]
        angle = torch.cat((angle, angle), dim=-1)
        return angle.cos().to(x.dtype), angle.sin().to(x.dtype)


def make_exact(model, spec):
    if spec.architecture == "gpt2":
        return
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child).__name__.endswith("RMSNorm"):
                setattr(module, name, ExactNorm(child, spec.shape["eps"]))
            if type(child).__name__.endswith("TopKRouter"):
                setattr(module, name, ExactRouter(child))
    head_size = spec.shape.get("head_size", spec.shape["hidden"] // spec.shape["heads"])
    model.model.rotary_emb = ExactRotation(spec.shape["rope_theta"], head_size)


def parts(model, spec):
    """(layers, final norm)"""
    if spec.architecture == "gpt2":
        return model.transformer.h, model.transformer.ln_f
    return model.model.layers, model.model.norm


@torch.no_grad()
def record(model, spec, ids):
    seen, handles = {}, []
    first = lambda output: output[0] if isinstance(output, tuple) else output
    layers, norm = parts(model, spec)

    def embedding(_, inputs, named):
        seen["embedding"] = inputs[0] if inputs else named["hidden_states"]

    handles.append(layers[0].register_forward_pre_hook(embedding, with_kwargs=True))
    for n, layer in enumerate(layers):
        keep = lambda _, __, output, key=f"blk.{n}.output": seen.__setitem__(key, first(output))
        handles.append(layer.register_forward_hook(keep))
    handles.append(norm.register_forward_hook(lambda _, __, output: seen.__setitem__("final_norm", output)))
    seen["logits"] = model(input_ids=torch.tensor([ids]), use_cache=False).logits
    for handle in handles:
        handle.remove()
    return {key: value[0].clone().contiguous() for key, value in seen.items()}


def load(spec, folder, saved):
    tokenizer = load_tokenizer(spec, saved["tokenizer"])
    model = build(spec, tokenizer.ids)
    weights = {k: v.float() for k, v in load_file(folder / f"{spec.name}.safetensors").items()}
    if model.config.tie_word_embeddings:
        key = "transformer.wte.weight" if spec.architecture == "gpt2" else "model.embed_tokens.weight"
        weights["lm_head.weight"] = weights[key]
    model.load_state_dict(weights, strict=True)
    if "experts" in spec.shape:
        model.set_experts_implementation("eager")
    model.eval()
    return model, tokenizer


def prompts(spec, tokenizer):
    texts = list(PROMPTS)
    if "window" in spec.shape:
        texts[1] = LONG
    ids = tokenizer.prompts(texts)
    if "window" in spec.shape:
        ids[1] = ids[1][: spec.shape["window"] + 8]
        if len(ids[1]) <= spec.shape["window"]:
            raise ValueError(f"{spec.name}: the long prompt has {len(ids[1])} tokens, the window {spec.shape['window']}")
    return ids


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="folder", type=pathlib.Path, required=True, help="what train.py left")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for the files")
    parser.add_argument("names", nargs="*", help="some of the models; all where none is given")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False  # its bfloat16 code needs instructions that not every machine has
    saved = json.loads((args.folder / "models.json").read_text(encoding="utf-8"))
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.names or saved:
        spec = SPECS[name]
        for dtype in [torch.float64] + ([torch.bfloat16] if name == "haiku-llama" else []):
            model, tokenizer = load(spec, args.folder, saved[name])
            model = model.to(dtype)
            if dtype == torch.float64:
                make_exact(model, spec)
            else:
                model.set_attn_implementation("eager")
            tensors = {}
            for index, ids in enumerate(prompts(spec, tokenizer)):
                tensors[f"{index}/tokens"] = torch.tensor(ids)
                tensors |= {f"{index}/{key}": value for key, value in record(model, spec, ids).items()}
            path = args.out / (f"{name}.safetensors" if dtype == torch.float64 else f"{name}-bf16.safetensors")
            save_file(tensors, path)
            counts = [len(tensors[f"{i}/tokens"]) for i in range(3)]
            print(f"{path}: {path.stat().st_size:,} bytes, prompts of {counts} tokens, {sorted({str(t.dtype) for t in tensors.values()})}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
