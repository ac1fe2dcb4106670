"""tokenizer.json of a folder of the hub: our tokens against those of the `tokenizers` package, on random texts."""

import json
import os
import random
import re
import subprocess
import unicodedata

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import transformers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, Regex, Tokenizer, trainers

import check_tokenizer
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


def pieces(rng, prefix, added=()):
    """As SentencePiece has it: every pair that makes a token is a merge, better tokens first."""
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Replace(" ", "▁")
    trained.train_from_iterator(corpus(rng), trainers.BpeTrainer(vocab_size=900, show_progress=False))
    learned = sorted(trained.get_vocab(), key=trained.get_vocab().get)
    tokens = ["<unk>", "<s>", "</s>", *[f"<0x{byte:02X}>" for byte in range(256)]]
    longer = [text for text in learned if len(text) > 1]
    tokens += longer + [text for text in learned if len(text) == 1]
    vocabulary = {text: index for index, text in enumerate(tokens)}
    merges = [(text[:cut], text[cut:]) for text in longer for cut in range(1, len(text))
              if text[:cut] in vocabulary and text[cut:] in vocabulary]  # fmt: skip
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    steps = [normalizers.Prepend("▁")] if prefix else []
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in ("<unk>", "<s>", "</s>")])
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in added])
    tokenizer.post_processor = template(tokenizer, "<s>", None)
    return tokenizer


def run_case(report, name, make, specials, texts_in_nfc=False):
    rng = random.Random(name)
    tokenizer = make(rng)
    folder = WORK / "hub-tokenizer"
    config = transformers.LlamaConfig(vocab_size=tokenizer.get_vocab_size() + 7, hidden_size=8, intermediate_size=8,
                                      num_hidden_layers=1, num_attention_heads=1, max_position_embeddings=64)  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": specials[1]}, "chat_template": "x"}))
    texts = [check_tokenizer.random_text(rng, specials) for _ in range(TEXTS)]
    # Libraries differ in the year of their tables: nothing that was no character yet when Python's was made.
    texts = ["".join(char for char in text if unicodedata.category(char) != "Cn") for text in texts]
    if texts_in_nfc:
        texts = [unicodedata.normalize("NFC", text) for text in texts]
    done = subprocess.run([LOCKSTEP, "tokenize", "-m", folder, "--jsonl"], capture_output=True, text=True,
                          input="".join(json.dumps(text) + "\n" for text in texts))  # fmt: skip
    if done.returncode != 0 or done.stderr:
        raise RuntimeError(done.stderr.strip())
    ours = [[int(number) for number in line.split()] for line in done.stdout.splitlines()]
    theirs = [tokenizer.encode(text).ids for text in texts]
    wrong = [i for i, ids in enumerate(theirs) if ours[i] != ids]
    detail = f"{len(wrong)} of {TEXTS} differ"
    if wrong:
        first = wrong[0]
        detail += f": {texts[first][:80]!r}: {ours[first][:20]}, expected {theirs[first][:20]}"
    report.case(name, not wrong and len(ours) == TEXTS, detail)


def main():
    WORK.mkdir(parents=True, exist_ok=True)
    report = Report("hub tokenizer")
    begin, end = SPECIALS[:2]
    llama = ["<s>", "</s>"]
    for name, make, specials, nfc in (
        ("gpt2", lambda rng: byte_level(rng, None), SPECIALS, False),
        ("single digits", lambda rng: byte_level(rng, "digits", end=end), SPECIALS, False),
        ("llama 3", lambda rng: byte_level(rng, LLAMA3, whole_words=True, begin=begin), SPECIALS, False),
        ("llama 3 without whole words", lambda rng: byte_level(rng, LLAMA3, begin=begin, end=end), SPECIALS, False),
        ("qwen2", lambda rng: byte_level(rng, QWEN2, nfc=True), SPECIALS, True),
        ("gpt-4o", lambda rng: byte_level(rng, GPT4O), SPECIALS, False),
        ("gpt-4o that takes words whole", lambda rng: byte_level(rng, GPT4O, whole_words=True), SPECIALS, False),
        ("deepseek V3", lambda rng: byte_level(rng, DEEPSEEK_V3, begin=begin), SPECIALS, False),
        ("deepseek coder", lambda rng: byte_level(rng, DEEPSEEK_CODER, digits=True, begin=begin), SPECIALS, False),
        ("deepseek LLM", lambda rng: byte_level(rng, deepseek_llm(), digits=False, begin=begin), SPECIALS, False),
        ("gemma", lambda rng: pieces(rng, False, ["\n\n", "▁▁▁", "<start_of_turn>"]), llama, False),
        ("pieces", lambda rng: pieces(rng, True), llama, False),
        ("pieces without a space before", lambda rng: pieces(rng, False), llama, False),
    ):
        report.attempt(name, run_case, report, name, make, specials, nfc)
    report.finish()


if __name__ == "__main__":
    main()
