#!/usr/bin/env python3
"""Compares `lockstep tokenize` with llama.cpp (llama-cpp-python) on random texts.

    check_tokenizer.py --lockstep build/lockstep --vocabs ../shared/vocabs [--count 4000] [--seed N]

Every text goes through both engines with special tokens parsed and not parsed. All texts are
UTF-8: of other bytes llama.cpp's byte-level tokenizer makes U+FFFD, while Lockstep keeps them, so
there is nothing to compare. Exit status 1 where an id differs.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import time

SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\n\n", " \n", "\u00a0", "\u2003", "\u3000",
          "\u0085", "\u180e", "\u200b", "\u2028", "\u202f", "\v", "\f", "\x1c", "\u2581"]
WORDS = ["the", "Hello", "world", "don't", "I'LL", "we've", "it's", "'S", "'tis", "naïve", "Ünïcödé",
         "ſ'ſ", "Straße", "ΑΒΓδ", "Привет", "мир", "שלום", "مرحبا", "العربية", "नमस्ते", "สวัสดี",
         "你好", "世界", "日本語", "テスト", "한국어", "ấn", "e\u0301", "a\u0300\u0323", "🦙", "👩‍👩‍👧‍👦",
         "🇫🇷", "👍🏽", "½", "²", "Ⅷ", "٣٤", "१२", "def f(x):", "return", "==", "!=", "...", "—", "“q”",
         "</", "<|", "|>", "<s", "s>", "http://a.b/c?d=e&f", "camelCase", "snake_case", "ABC",
         "\x00", "\x01\x02", "\x7f", "\ufeff", "\ufffd", "\U000e0041", "\ue000", "\U0010ffff"]
BLOCKS = [(0x20, 0x7e), (0xa0, 0x24f), (0x300, 0x36f), (0x370, 0x5ff), (0x600, 0x6ff),
          (0x900, 0xdff), (0xe00, 0xfff), (0x1100, 0x11ff), (0x2000, 0x2bff), (0x3040, 0x30ff),
          (0x4e00, 0x9fff), (0xac00, 0xd7a3), (0xf900, 0xffff), (0x10000, 0x11fff),
          (0x1d000, 0x1ffff), (0x20000, 0x323af), (0x0, 0x10ffff)]


def character(rng):
    while True:
        low, high = rng.choice(BLOCKS)
        code = rng.randint(low, high)
        if not 0xd800 <= code <= 0xdfff:
            return chr(code)


def piece(rng, specials):
    kind = rng.randrange(10)
    if kind < 3:
        return rng.choice(WORDS)
    if kind < 5:
        return rng.choice(SPACES) * rng.choice([1, 1, 1, 2, 3, 7])
    if kind == 5:
        return "".join(rng.choice("0123456789") for _ in range(rng.choice([1, 2, 3, 4, 7, 20])))
    if kind == 6:
        return "".join(character(rng) for _ in range(rng.randint(1, 6)))
    if kind == 7:
        return character(rng) * rng.choice([2, 3, 5, 16, 33, 70])
    if kind == 8 and specials:
        text = rng.choice(specials)
        return text if rng.random() < 0.7 else text[rng.randrange(len(text)):]
    return "".join(rng.choice("abcdefghijklmnopqrstuvwxyzABCDE'.,;:!?-_/\\()[]{}<>|#@$%^&*+=~`\"")
                   for _ in range(rng.randint(1, 12)))


def random_text(rng, specials):
    between = rng.choice(["", "", " "])
    return between.join(piece(rng, specials) for _ in range(rng.choice([1, 2, 3, 5, 9, 20, 60])))


def all_characters():
    """Every code point alone, between letters, digits and spaces: their classes must agree."""
    codes = [c for c in range(0x110000) if not 0xd800 <= c <= 0xdfff]
    for start in range(0, len(codes), 64):
        yield "".join(f"a{chr(c)}1 {chr(c)}{chr(c)}  {chr(c)}'s" for c in codes[start:start + 64])


def ours(program, model, texts, special):
    command = [program, "tokenize", "-m", str(model), "--jsonl", "--no-bos"]
    if not special:
        command.append("--no-special")
    done = subprocess.run(command, input="\n".join(json.dumps(t) for t in texts) + "\n",
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
    return [[int(i) for i in line.split()] for line in done.stdout.split("\n")[:-1]]


def shrink(text, differs):
    """A short part of a text that the engines disagree on."""
    size = len(text) // 2
    while size:
        at = 0
        while at < len(text):
            shorter = text[:at] + text[at + size:]
            if shorter and differs(shorter):
                text = shorter
            else:
                at += size
        size //= 2
    return text


def check(program, model, args):
    import llama_cpp
    peer = llama_cpp.Llama(model_path=str(model), vocab_only=True, verbose=False)
    rng = random.Random(f"{args.seed}/{model.name}")
    vocab = llama_cpp.llama_model_get_vocab(peer._model.model)
    specials = []
    for i in range(peer.n_vocab()):
        if llama_cpp.llama_vocab_get_attr(vocab, i) & (8 | 16 | 2):  # control, user-defined, unknown
            specials.append(llama_cpp.llama_vocab_get_text(vocab, i).decode())
    texts = [random_text(rng, specials) for _ in range(args.count)]
    texts += ["", " ", "a" * 5000, " " * 3001, "\n" * 999, "9" * 4999, "好" * 2000, "é" * 777]
    if args.all_characters:
        texts += all_characters()
    bad = 0
    for special in (True, False):
        mine = ours(program, model, texts, special)
        if len(mine) != len(texts):
            sys.exit(f"{model.name}: {len(mine)} lines for {len(texts)} texts")
        for text, ids in zip(texts, mine):
            theirs = peer.tokenize(text.encode(), add_bos=False, special=special)
            if ids == theirs:
                continue
            bad += 1
            if bad <= args.show:
                small = shrink(text, lambda t: ours(program, model, [t], special)[0] !=
                               peer.tokenize(t.encode(), add_bos=False, special=special))
                print(f"{model.name}, special {special}: {small!r}\n  lockstep  "
                      f"{ours(program, model, [small], special)[0]}\n  llama.cpp "
                      f"{peer.tokenize(small.encode(), add_bos=False, special=special)}")
    print(f"{model.name}: {len(texts)} texts, specials parsed and not: "
          f"{'all equal' if bad == 0 else f'{bad} DIFFER'} (seed {args.seed})", flush=True)
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--lockstep", default=str(root / "build/lockstep"))
    shared = pathlib.Path(os.environ.get("LOCKSTEP_SHARED", root.parent / "shared"))
    parser.add_argument("--vocabs", type=pathlib.Path, default=shared / "vocabs")
    parser.add_argument("--only", help="one vocabulary, such as qwen2")
    parser.add_argument("--count", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--show", type=int, default=3, help="differences shown for each vocabulary")
    parser.add_argument("--all-characters", action="store_true", help="every code point, too (slow)")
    args = parser.parse_args()
    models = sorted(args.vocabs.glob(f"{args.only or '*'}.gguf"))
    if not models:
        sys.exit(f"no vocabularies in {args.vocabs}")
    sys.exit(1 if sum(check(args.lockstep, model, args) for model in models) else 0)


if __name__ == "__main__":
    main()
