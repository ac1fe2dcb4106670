#!/usr/bin/env python3
"""Makes the shipped models: corpus, tokenizers, training and evaluation, in one command on a machine with a GPU.

    python models/train.py --out DIR

All six train at the same time, one process each, in about seven minutes on one H200. DIR then holds NAME.safetensors for each
model, models.json (configurations, tokenizers, figures) and report.md; models/export.py turns these into GGUF files, and
models/golden.py into the expected values of the tests. Seeds are fixed. --tiny runs the same path in seconds on a CPU.
"""

import argparse
import json
import math
import multiprocessing
import os
import pathlib
import pickle
import random
import subprocess
import sys
import time

import corpus
from zoo import CONTEXT, SPECS, build

PACKED_EVERY = 4  # one step in so many sees whole contexts of several examples, so that all positions are trained
SYSTEM = ["You are a poet.", "You are a helpful assistant.", "You write haiku."]


def make_examples(bounds):
    grammar = corpus.Grammar()
    return [corpus.example(grammar, seed)[:2] for seed in range(*bounds)]


def make_corpus(count):
    cores = os.cpu_count() or 1
    step = math.ceil(count / (4 * cores))
    chunks = [(first, min(count, first + step)) for first in range(0, count, step)]
    with multiprocessing.Pool(cores) as pool:
        return [e for chunk in pool.imap(make_examples, chunks) for e in chunk]


def encode_corpus(tokenizer, examples, seed):
    """(prompt ids, answer ids) of every example; a third as chats where the model has a template."""
    rng = random.Random(seed)
    out = []
    for first in range(0, len(examples), 20000):
        part = examples[first : first + 20000]
        plain, chats = [], []
        for prompt, answer in part:
            (chats if tokenizer.spec.chat_template and rng.random() < 0.33 else plain).append((prompt, answer))
        ids = tokenizer.prompts([p for p, _ in plain])
        out += zip(ids, tokenizer.answers([a for _, a in plain]))
        talks = []
        for prompt, _ in chats:
            system = [("system", rng.choice(SYSTEM))] if rng.random() < 0.15 else []
            talks.append(system + [("user", prompt.strip())])
        out += zip(tokenizer.chats(talks), tokenizer.answers([a.strip() for _, a in chats]))
    return out


def make_rows(pairs, width, pad):
    """One example a row from its start: ids and labels [examples, width], as int16."""
    import numpy as np

    ids = np.full((len(pairs), width), pad, dtype=np.int16)
    labels = np.full((len(pairs), width), -100, dtype=np.int16)
    for i, (prompt, answer) in enumerate(pairs):
        row = prompt + answer
        ids[i, : len(row)] = row
        labels[i, len(prompt) : len(row)] = answer
    return ids, labels


def make_packed(pairs, seed):
    """Examples one after the other, cut into whole contexts: ids and labels [rows, CONTEXT]."""
    import numpy as np

    order = list(range(len(pairs)))
    random.Random(seed).shuffle(order)
    ids, labels = [], []
    for i in order:
        prompt, answer = pairs[i]
        ids += prompt + answer
        labels += [-100] * len(prompt) + answer
    rows = len(ids) // CONTEXT
    cut = lambda x: np.array(x[: rows * CONTEXT], dtype=np.int16).reshape(rows, CONTEXT)
    return cut(ids), cut(labels)


def train(model, spec, rows, packed, args, log):
    """AdamW with a cosine schedule. The schedule follows the step count, or the clock where the machine is too slow."""
    import torch
    from torch.nn import functional as F

    device = args.device
    put = lambda pair: tuple(torch.from_numpy(x).to(device) for x in pair)
    rows, packed = put(rows), put(packed)
    matrices = [p for p in model.parameters() if p.dim() >= 2]  # those of experts are several in one
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [dict(params=matrices, weight_decay=0.05), dict(params=others, weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, lr=spec.learning_rate, betas=(0.9, 0.98), fused=device == "cuda")
    # Where experts are chosen, what is added to the loss keeps all of them in use.
    routed = dict(output_router_logits=True) if "experts" in spec.shape else {}
    pick = torch.Generator().manual_seed(2)
    begin, step, progress, losses = time.time(), 0, 0.0, []
    next_log = 0.0
    model.train()
    while progress < 1:
        rate = spec.learning_rate * min(1, (step + 1) / 100) * (0.5 + 0.5 * math.cos(math.pi * progress))
        for group in optimizer.param_groups:
            group["lr"] = rate
        whole = step % PACKED_EVERY == PACKED_EVERY - 1 and len(packed[0]) > 0
        ids, labels = packed if whole else rows
        size = max(1, args.batch * rows[0].shape[1] // ids.shape[1])
        index = torch.randint(len(ids), (size,), generator=pick).to(device)
        x, y = ids[index].long(), labels[index].long()
        clean = None
        if spec.weight_noise > 0:
            with torch.no_grad():
                clean = [p.detach().clone() for p in matrices]
                for p in matrices:
                    p += torch.randn_like(p) * (spec.weight_noise * p.square().mean(-1, keepdim=True).sqrt())
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            out = model(input_ids=x, use_cache=False, **routed)
        loss = F.cross_entropy(out.logits[:, :-1].float().flatten(0, 1), y[:, 1:].flatten(), ignore_index=-100)
        if routed:
            loss = loss + model.config.router_aux_loss_coef * out.aux_loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if clean is not None:
            with torch.no_grad():
                torch._foreach_copy_(matrices, clean)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        if step % 10 == 0:  # reading the clock means nothing while the GPU runs behind
            losses.append(loss.item())
            progress = max(step / args.steps, (time.time() - begin) / args.seconds)
        if progress >= next_log:
            next_log += 0.1
            log(f"step {step} of {args.steps}, {time.time() - begin:.0f} s, loss {sum(losses[-20:]) / max(1, len(losses[-20:])):.4f}")
    if step < args.steps:
        log(f"stopped by the clock after {step} of {args.steps} steps")
    return step


def work(args):
    """One model, in its own process."""
    import torch
    from safetensors.torch import save_file

    import measure
    from tokenization import train_tokenizer

    spec, begin = SPECS[args.worker], time.time()
    log = lambda text: print(f"{spec.name:14} {time.time() - begin:5.0f} s  {text}", flush=True)
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(1)
    with open(args.out / "corpus.pickle", "rb") as file:
        examples = pickle.load(file)
    tokenizer = train_tokenizer(spec, [p + a for p, a in examples[:60000]])
    pairs = encode_corpus(tokenizer, examples, 3)
    lengths = sorted(len(p) + len(a) for p, a in pairs)
    width = min(CONTEXT, -(-lengths[int(len(lengths) * 0.998)] // 8) * 8)
    pairs = [(p, a) for p, a in pairs if len(p) + len(a) <= width]
    rows = make_rows(pairs, width, tokenizer.ids[spec.eos])
    packed = make_packed(pairs[: len(pairs) // 3], 4)
    model = build(spec, tokenizer.ids).to(args.device)
    parameters = sum(p.numel() for p in model.parameters())
    log(f"{parameters:,} parameters, {len(pairs):,} examples of {sum(lengths) / len(lengths):.0f} tokens, rows of {width}")
    steps = train(model, spec, rows, packed, args, log)

    # The goldens and the F16 files must hold the very same weights, so they are rounded here, before they are judged.
    with torch.no_grad():
        for p in model.parameters():
            if not bool(torch.isfinite(p).all()) or float(p.abs().max()) > 60000:
                log("a weight is not finite or too large for half precision")
            if spec.precision == "f16":
                p.copy_(p.half().float())
    torch.backends.cuda.matmul.allow_tf32 = False
    tensors = {k: v.detach().cpu().contiguous() for k, v in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        tensors.pop("lm_head.weight", None)
    if spec.precision == "f16":
        tensors = {k: v.half() for k, v in tensors.items()}
    save_file(tensors, args.out / f"{spec.name}.safetensors")
    log("saved")
    figures = measure.measure(model, tokenizer, tiny=args.tiny)
    measure.coarsen(model)
    coarse = measure.measure(model, tokenizer, samples=1, tiny=args.tiny)
    record = dict(
        config=model.config.to_dict(), tokenizer=tokenizer.save(), parameters=parameters, steps=steps, figures=figures, coarse=coarse,
    )
    with open(args.out / f"{spec.name}.part.json", "w", encoding="utf-8") as file:
        json.dump(record, file)
    log(f"greedy {brief(figures['greedy'])}, at 0.8 {brief(figures['sampled'])}; in 4 bits greedy {brief(coarse['greedy'])}")


def brief(figures):
    return f"word {figures['word']:.1%} scan {figures['scan']:.1%} topics {figures['topic_scan']:.1%}"


def report(records):
    lines = [
        "| model | parameters | steps | word | scan | word at 0.8 | scan at 0.8 | word in 4 bits | scan in 4 bits | topics |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, r in records.items():
        g, s, c = r["figures"]["greedy"], r["figures"]["sampled"], r["coarse"]["greedy"]
        cells = [g["word"], g["scan"], s["word"], s["scan"], c["word"], c["scan"], g["topic_scan"]]
        lines.append(f"| {name} | {r['parameters']:,} | {r['steps']} | " + " | ".join(f"{x:.1%}" for x in cells) + " |")
    for name, r in records.items():
        lines += ["", f"{name}, greedy:", ""]
        lines += [f"> {t.replace(chr(10), ' / ')}" for t in r["figures"]["greedy"]["examples"][:6]]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for the results")
    parser.add_argument("--examples", type=int, default=500000, help="haiku in the corpus")
    parser.add_argument("--steps", type=int, default=7000, help="training steps of each model")
    parser.add_argument("--batch", type=int, default=512, help="examples a step")
    parser.add_argument("--seconds", type=float, default=330, help="the longest that training may take")
    parser.add_argument("--device", help="cuda or cpu; found out where not given")
    parser.add_argument("--tiny", action="store_true", help="a few steps on a few examples, to try the path")
    parser.add_argument("--only", nargs="*", default=list(SPECS), choices=list(SPECS), help="some of the models")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.tiny:
        args.examples, args.steps, args.batch = min(args.examples, 1500), min(args.steps, 10), min(args.batch, 4)
    if args.device is None:
        import torch

        args.device = "cuda" if torch.cuda.is_available() else "cpu"
    args.out.mkdir(parents=True, exist_ok=True)
    if args.worker:
        return work(args)

    begin = time.time()
    examples = make_corpus(args.examples)
    with open(args.out / "corpus.pickle", "wb") as file:
        pickle.dump(examples, file)
    print(f"corpus of {len(examples):,} examples, {len({a for _, a in examples}):,} different answers, {time.time() - begin:.0f} s", flush=True)
    common = [sys.executable, __file__, "--out", args.out, "--steps", args.steps, "--batch", args.batch, "--seconds", args.seconds,
              "--device", args.device, *(["--tiny"] if args.tiny else [])]
    # The tokenizers library forks no further, and six processes share the cores.
    environment = os.environ | {"TOKENIZERS_PARALLELISM": "true", "RAYON_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // 4))}
    workers = {name: subprocess.Popen([*map(str, common), "--worker", name], env=environment) for name in args.only}
    codes = {name: worker.wait() for name, worker in workers.items()}
    (args.out / "corpus.pickle").unlink()
    records = {}
    for name in args.only:
        part = args.out / f"{name}.part.json"
        if codes[name] == 0:
            records[name] = json.loads(part.read_text(encoding="utf-8"))
        part.unlink(missing_ok=True)
    (args.out / "models.json").write_text(json.dumps(records, indent=1, ensure_ascii=False), encoding="utf-8")
    text = report(records)
    (args.out / "report.md").write_text(text, encoding="utf-8")
    print(text)
    print(f"all done in {time.time() - begin:.0f} s; failed: {[n for n, c in codes.items() if c] or 'none'}", flush=True)
    return 1 if any(codes.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
