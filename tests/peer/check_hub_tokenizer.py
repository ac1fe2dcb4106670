"""tokenizer.json of a folder of the hub: our tokens against those of the `tokenizers` package, on random texts."""

import json
import os
import random
import re
import subprocess

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import transformers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, Regex, Tokenizer, trainers

import check_tokenizer
import hub_tokenizers
from peer import LOCKSTEP, Report, ROOT, WORK

TEXTS = 1500
SPECIALS = ["<|begin|>", "<|end|>", "<|im_start|>", "<|im_end|>"]
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = (CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
GPT4O = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTION}?|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTION}?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")  # fmt: skip
DEEPSEEK_V3 = [
    r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
    r'''[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+''' r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
]  # fmt: skip
DEEPSEEK_CJK = "[一-龥\u0800-一가-\ud7ff]+"
DEEPSEEK_CODER = [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_CJK]


def deepseek_llm():
    """The class of its letters is long; it stands in our table, with characters by their numbers."""
    source = (ROOT / "src/tokenizer/pre_tokenizers.cpp").read_text().split("kDeepseekLlm = {")[1]
    lines = re.findall(r'R"\((.*?)\)"\n', source.split('R"(]+)"')[0])
    letters = re.sub(r"\\x\{([0-9a-f]+)\}", lambda match: chr(int(match[1], 16)), "".join(lines) + "]+")
    return [r"[\r\n]", letters, "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", r"\s+$", DEEPSEEK_CJK]


def corpus(rng):
    yield from (ROOT / "README.md").read_text().splitlines()
    yield from (ROOT / "ARCHITECTURE.md").read_text().splitlines()
    for _ in range(1000):
        yield check_tokenizer.random_text(rng, [])


def template(tokenizer, begin, end):
    pieces = ([begin] if begin else []) + ["$A"] + ([end] if end else [])
    special = [(text, tokenizer.token_to_id(text)) for text in (begin, end) if text]
    return processors.TemplateProcessing(single=" ".join(pieces), special_tokens=special)


def byte_level(rng, cut, *, digits=None, whole_words=False, begin=None, end=None, nfc=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=whole_words))
    levels = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=cut in (None, "digits"))
    if cut == "digits":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), levels])
    elif cut is None:
        tokenizer.pre_tokenizer = levels
    else:
        steps = [pre_tokenizers.Split(Regex(each), "isolated") for each in (cut if isinstance(cut, list) else [cut])]
        steps += [] if digits is None else [pre_tokenizers.Digits(individual_digits=digits)]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*steps, levels])
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=1200, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  special_tokens=SPECIALS, show_progress=False)  # fmt: skip
    tokenizer.train_from_iterator(corpus(rng), trainer)
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False, special=False)])
    if begin or end:
        tokenizer.post_processor = template(tokenizer, begin, end)
    return tokenizer


def write(tokenizer, folder, specials):
    config = transformers.LlamaConfig(vocab_size=tokenizer.get_vocab_size() + 7, hidden_size=8, intermediate_size=8,
                                      num_hidden_layers=1, num_attention_heads=1, max_position_embeddings=64)  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": specials[1]}, "chat_template": "x"}))


def differing(tokenizer, folder, texts):
    """What is not as the package has it: text, ours, theirs."""
    done = subprocess.run([LOCKSTEP, "tokenize", "-m", folder, "--jsonl"], capture_output=True, text=True,
                          input="".join(json.dumps(text) + "\n" for text in texts))  # fmt: skip
    if done.returncode != 0 or done.stderr:
        raise RuntimeError(done.stderr.strip())
    ours = [[int(number) for number in line.split()] for line in done.stdout.splitlines()]
    assert len(ours) == len(texts)
    theirs = [tokenizer.encode(text).ids for text in texts]
    return [(text, own, other) for text, own, other in zip(texts, ours, theirs) if own != other]


def detail_of(wrong, texts):
    detail = f"{len(wrong)} of {len(texts)} differ"
    if wrong:
        text, ours, theirs = wrong[0]
        detail += f": {text[:80]!r}: {ours[:20]}, expected {theirs[:20]}"
    return detail


def run_case(report, name, make, specials):
    rng = random.Random(name)
    tokenizer = make(rng)
    folder = WORK / "hub-tokenizer"
    write(tokenizer, folder, specials)
    texts = [check_tokenizer.random_text(rng, specials) for _ in range(TEXTS)]
    texts += ["".join(rng.choice(hub_tokenizers.HARD)[:8] for _ in range(rng.randint(1, 9))) for _ in range(TEXTS)]
    texts = [hub_tokenizers.common(text) for text in texts]
    wrong = differing(tokenizer, folder, texts)
    report.case(name, not wrong, detail_of(wrong, texts))


def run_random(report, kind, changed, texts_of_each):
    """Any steps in any order: the same tokens, or an error that says what is not supported."""
    rng = random.Random(kind)
    training = list(corpus(rng)) + hub_tokenizers.HARD
    source = getattr(hub_tokenizers, kind)(training).to_str()
    folder = WORK / "hub-tokenizer"
    unsupported, wrong, texts = 0, [], []
    for _ in range(changed):
        tokenizer = Tokenizer.from_str(source)
        added = hub_tokenizers.change_at_random(rng, tokenizer, kind == "byte_level")
        write(tokenizer, folder, SPECIALS)
        own = ["".join(rng.choice([*added, *hub_tokenizers.HARD])[:8] for _ in range(rng.randint(1, 9))) for _ in range(texts_of_each)]
        own = [hub_tokenizers.common(text) for text in own]
        try:
            wrong += differing(tokenizer, folder, own)
            texts += own
        except RuntimeError as error:
            assert "tokenizer.json: " in str(error), error
            unsupported += 1
    enough = unsupported * 3 < changed
    report.case(f"{changed} random ones, {kind}", enough and not wrong, f"{detail_of(wrong, texts)}, {unsupported} not supported")


def main():
    WORK.mkdir(parents=True, exist_ok=True)
    report = Report("hub tokenizer")
    begin, end = SPECIALS[:2]
    for name, make in (
        ("gpt2", lambda rng: byte_level(rng, None)),
        ("single digits", lambda rng: byte_level(rng, "digits", end=end)),
        ("llama 3", lambda rng: byte_level(rng, LLAMA3, whole_words=True, begin=begin)),
        ("llama 3 without whole words", lambda rng: byte_level(rng, LLAMA3, begin=begin, end=end)),
        ("qwen2", lambda rng: byte_level(rng, QWEN2, nfc=True)),
        ("gpt-4o", lambda rng: byte_level(rng, GPT4O)),
        ("gpt-4o that takes words whole", lambda rng: byte_level(rng, GPT4O, whole_words=True)),
        ("deepseek V3", lambda rng: byte_level(rng, DEEPSEEK_V3, begin=begin)),
        ("deepseek coder", lambda rng: byte_level(rng, DEEPSEEK_CODER, digits=True, begin=begin)),
        ("deepseek LLM", lambda rng: byte_level(rng, deepseek_llm(), digits=False, begin=begin)),
    ):
        report.attempt(name, run_case, report, name, make, SPECIALS)
    added = ["<s>", "</s>", "<|end|>", "<mask>", "<tool>", "<tool><tool>", "Caf\u00c9", "CAFE\u0301"]
    for name, make in hub_tokenizers.KINDS.items():
        report.attempt(name, run_case, report, name, lambda rng, make=make: make(list(corpus(rng)) + hub_tokenizers.HARD), added)
    for kind in ("byte_level", "pieces", "unigram"):
        report.attempt(f"random ones, {kind}", run_random, report, kind, 40, 100)
    report.finish()


if __name__ == "__main__":
    main()
