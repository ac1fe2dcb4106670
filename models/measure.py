"""How well a model does its job: number word in the answer, three lines, 5-7-5 by the generator's table."""

import torch

import corpus
from zoo import CONTEXT

NUMBER_PROMPTS = [
    "GPU haiku with word {n}: ", "Write a haiku about rain with the word {n}.", "Haiku with word {n}: ",
    "Winter haiku with word {n}: ",
]
MAX_NEW = 80


@torch.no_grad()
def generate(model, prompts, eos, temperature=0.0, seed=0, max_new=MAX_NEW):
    """Continuations of lists of ids. Rows are padded on the right and computed whole at every step, without a cache: a causal
    model never looks at the padding, so this is the same for every architecture."""
    device = next(model.parameters()).device
    lengths = torch.tensor([len(p) for p in prompts], device=device)
    width = min(CONTEXT, int(lengths.max()) + max_new)
    rows = torch.full((len(prompts), width), eos, dtype=torch.long)
    for row, prompt in zip(rows, prompts):
        row[: len(prompt)] = torch.tensor(prompt)
    rows = rows.to(device)
    ends = lengths.clone()
    done = torch.zeros(len(prompts), dtype=torch.bool, device=device)
    generator = torch.Generator(device="cpu").manual_seed(seed)
    index = torch.arange(len(prompts), device=device)
    while True:
        active = ~done & (ends < width)
        if not bool(active.any()):
            break
        logits = model(input_ids=rows[:, : int(ends[active].max())], use_cache=False).logits.float()
        last = logits[index, (ends - 1).clamp(max=logits.shape[1] - 1)]  # [rows, vocab]
        if temperature > 0:
            uniform = torch.rand(last.shape, generator=generator).clamp(1e-9, 1 - 1e-7).to(device)
            token = (last / temperature - torch.log(-torch.log(uniform))).argmax(-1)
        else:
            token = last.argmax(-1)
        write = active & (token != eos)
        rows[index[write], ends[write]] = token[write]
        done |= active & (token == eos)
        ends += write
    rows, ends, starts = rows.tolist(), ends.tolist(), lengths.tolist()
    finished = done.tolist()
    return [(row[a:b], ok) for row, a, b, ok in zip(rows, starts, ends, finished)]


def tasks(tokenizer, numbers):
    """(ids, number or None) for number prompts in several phrasings, and for topics."""
    texts = [(p.format(n=n), n) for p in NUMBER_PROMPTS for n in numbers]
    ids = tokenizer.prompts([t for t, _ in texts])
    out = [(i, n) for i, (_, n) in zip(ids, texts)]
    if tokenizer.spec.chat_template:
        asks = [[("user", f"Write a haiku about the sea with the word {n}.")] for n in numbers]
        out += list(zip(tokenizer.chats(asks), numbers))
    return out


def measure(model, tokenizer, samples=2, tiny=False):
    """{"greedy": {...}, "sampled": {...}} with shares of answers, and a few answers as text."""
    model.eval()
    eos = tokenizer.ids[tokenizer.spec.eos]
    numbers, topics = corpus.NUMBERS, corpus.Grammar().names
    if tiny:
        numbers, topics = numbers[:1], topics[:2]
    result = {}
    for kind, temperature, count in [("greedy", 0.0, 1), ("sampled", 0.8, samples)]:
        jobs = tasks(tokenizer, numbers) * count
        plain = tokenizer.prompts([f"Write a haiku about {t}" for t in topics])
        answers = generate(model, [ids for ids, _ in jobs] + plain, eos, temperature, max_new=8 if tiny else MAX_NEW)
        texts = [tokenizer.decode(ids).strip() if ok else "" for ids, ok in answers]
        share = lambda flags: round(sum(flags) / max(1, len(flags)), 4)
        result[kind] = {
            "word": share([corpus.has_word(t, n) for t, (_, n) in zip(texts, jobs)]),
            "scan": share([corpus.scans(t) for t, _ in zip(texts, jobs)]),
            "topic_scan": share([corpus.scans(t) for t in texts[len(jobs):]]),
            "different": share([1] * len(set(texts)) + [0] * (len(texts) - len(set(texts)))),
        }
        result[kind]["examples"] = texts[: 3] + texts[len(jobs):][:3]
    return result


@torch.no_grad()
def coarsen(model):
    """Rounds every matrix to 4 bits in groups of 32 with their own scale and minimum: about what Q4_K does to it."""
    for weight in model.parameters():
        if weight.dim() >= 2 and weight.shape[-1] % 32 == 0:
            groups = weight.view(-1, 32)
            low = groups.min(-1, keepdim=True).values.clamp(max=0)
            step = ((groups.max(-1, keepdim=True).values - low) / 15).clamp(min=1e-12)
            groups.copy_(((groups - low) / step).round().clamp(0, 15) * step + low)
