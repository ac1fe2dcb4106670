#!/usr/bin/env python3
"""Haiku in 5-7-5, generated from lines.txt, and the prompts that ask for them.

    python models/corpus.py                 print a few examples
    python models/corpus.py --count 100000  print that many, one JSON object a line
    python models/corpus.py --check         prove that every line that can come out scans, and print figures

Everything is derived from two plain files beside this one: lines.txt (the grammar) and syllables.tsv (word<TAB>syllables,
every word that a haiku can hold). An example depends on its seed alone, so a corpus is the same on every machine.
"""

import argparse
import functools
import itertools
import json
import pathlib
import random
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
METER = (5, 7, 5)

ONES = "zero one two three four five six seven eight nine".split()
TEENS = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
TENS = "twenty thirty forty fifty".split()
NUMBERS = ONES + TEENS + [t if i == 0 else f"{t}-{ONES[i]}" for t in TENS for i in range(10)]

# Subjects that have no lines of their own. The answer is then a haiku on some other topic, so that a stranger's request still
# gets a well-formed one.
STRANGERS = """pizza taxes football bananas history chess cheese bicycles politics shoes dinosaurs money painting soup
penguins mathematics the ocean clouds flowers trees sunshine lightning ducks fish horses butterflies whales spiders science
computers programming memory electricity the internet your name nothing happiness sadness hope peace war dancing hats rice
chocolate apples islands bridges trucks airplanes the universe kings dragons ghosts magic Monday holidays cooking""".split()


@functools.cache
def table():
    rows = (line.rstrip("\n").split("\t") for line in open(HERE / "syllables.tsv", encoding="utf-8"))
    return {word: int(count) for word, count in rows}


def words(text):
    """The words of a text in lower case; a hyphen joins a word, other punctuation does not belong to it."""
    return [w.strip("'").lower() for w in re.findall(r"[A-Za-z][A-Za-z'-]*", text)]


def syllables(text):
    """The count for a line, or None where a word is not in the table."""
    counts = [table().get(w) for w in words(text)]
    return None if None in counts else sum(counts)


def scans(text):
    """Whether a text is three lines of 5, 7 and 5 syllables by the table."""
    lines = text.strip().split("\n")
    return len(lines) == 3 and tuple(syllables(line) for line in lines) == METER


def has_word(text, word):
    """Whether the word stands in the text as a word of its own: `twenty-one` does not hold `one`."""
    return word in words(text)


def expand(pattern):
    """All the strings that a pattern with (x|y) choices stands for."""
    parts = [p[1:-1].split("|") if p.startswith("(") else [p] for p in re.split(r"(\([^()]*\))", pattern)]
    return ["".join(choice) for choice in itertools.product(*parts)]


def plural(noun):
    return noun.split("/")[1] if "/" in noun else noun + "s"


def third_person(verb):
    if verb.endswith(("s", "sh", "ch", "x", "z")):
        return verb + "es"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ies"
    return verb + "s"


class Grammar:
    """lines.txt, read. A line is (text, is_phrase); a phrase has no verb and is followed by a comma."""

    def __init__(self, path=HERE / "lines.txt"):
        self.topics = {}  # name -> {"a", "b", "c": [lines], "n", "d", "t", "f": [strings]}
        self.problems = []
        topic = None
        for number, raw in enumerate(open(path, encoding="utf-8"), 1):
            raw = raw.split("#")[0].strip() if raw.startswith("#") else raw.strip()
            if not raw:
                continue
            if raw.startswith("["):
                topic = self.topics[raw[1:-1]] = {k: [] for k in "abcndtf"}
                continue
            kind, text = raw[0], raw[1:].strip()
            if kind in "ndt":
                topic[kind] += [x.strip() for x in text.split(",")]
            elif kind == "f":
                topic["f"].append((text.lstrip("~"), text.startswith("~")))
            else:
                self._add_lines(topic[kind], text, METER["abc".index(kind)], number)
        self.common = self.topics.pop("*")
        self.names = list(self.topics)

    def _add_lines(self, lines, text, want, number):
        # A trailing ! says that the choices differ in length: those combinations that scan are kept.
        mixed = text.endswith("!")
        pattern = text.rstrip("!").lstrip("~")
        kept = 0
        for line in expand(pattern):
            count = syllables(line)
            if count == want:
                lines.append((line, text.startswith("~")))
                kept += 1
            elif count is None or not mixed:
                self.problems.append(f"lines.txt:{number}: {line!r} has {count} syllables, not {want}")
        if kept == 0:
            self.problems.append(f"lines.txt:{number}: no combination of {text!r} has {want} syllables")

    @functools.cache
    def counted(self, name, number, want):
        """Lines of `want` syllables in which `number` counts things of the topic."""
        topic = self.topics[name]
        one = number == "one"
        adjectives = [""] + [d + " " for d in topic["d"]]
        nouns = [n.split("/")[0] if one else plural(n) for n in topic["n"]]
        tails = [("", True)]
        for tail in topic["t"]:
            text = re.sub(r"(\w+)\*", (lambda m: third_person(m[1])) if one else r"\1", tail)
            tails.append((" " + text, "*" not in tail))
        lines = []
        for adjective, noun, (tail, phrase) in itertools.product(adjectives, nouns, tails):
            line = f"{number} {adjective}{noun}{tail}"
            count = syllables(line)
            if count is None:
                self.problems.append(f"[{name}]: a word of {line!r} is not in syllables.tsv")
            if count == want:
                lines.append((line, phrase))
        return lines

    @functools.cache
    def framed(self, number, want):
        """Lines of `want` syllables that name `number` in a way that fits every topic."""
        lines = [(text.replace("{n}", number), phrase) for text, phrase in self.common["f"]]
        return [line for line in lines if syllables(line[0]) == want]

    def haiku(self, rng, name, number=None):
        topic = self.topics[name]
        lines = [rng.choice(topic["a"]), rng.choice(topic["b"]), None]
        lines[2] = rng.choice(self.common["c"] if rng.random() < 0.15 else topic["c"])
        if number is not None:
            where = rng.choice([0, 0, 1, 1, 2])
            choices = self.framed(number, METER[where]) if rng.random() < 0.15 else None
            choices = choices or self.counted(name, number, METER[where])
            if not choices:  # a long number and only long nouns: the seven-syllable line always has room
                where, choices = 1, self.counted(name, number, 7)
            lines[where] = rng.choice(choices)
        return punctuate(rng, lines)


def capital(text):
    return text[0].upper() + text[1:]


def punctuate(rng, lines):
    text, start = "", True
    for index, (line, phrase) in enumerate(lines):
        text += capital(line) if start else line
        if index == 2:
            return text + "."
        mark = "," if phrase else rng.choice([".", ".", ";"])
        start = mark == "."
        text += mark + "\n"


ASK = [
    "Write a haiku about {t}", "Write a haiku about {t}.", "Write a haiku about {t}: ", "Haiku about {t}: ",
    "A haiku about {t}: ", "{T} haiku: ", "Please write a haiku about {t}.", "Compose a haiku about {t}.",
    "Tell me a haiku about {t}.", "Write a short poem about {t}.", "Can you write a haiku about {t}?",
]
ASK_NUMBER = [
    "{T} haiku with word {n}: ", "{T} haiku with word {n}: ", "{T} haiku with the word {n}: ",
    "Write a haiku about {t} with the word {n}.", "Haiku about {t} with word {n}: ",
    "Write a haiku about {t} using the word {n}.", "Write a haiku about {t} that contains the word {n}",
    "Please write a haiku about {t} with the word {n}.", "A haiku about {t} with the word {n}: ",
]
ASK_NUMBER_ONLY = [
    "Write a haiku with the word {n}.", "Haiku with word {n}: ", "Haiku with the word {n}: ",
    "Write a haiku that contains the word {n}", "Write a haiku using the word {n}.",
]
ASK_NOTHING = ["Write a haiku.", "Haiku: ", "Write a haiku", "A haiku: "]


def vary(rng, prompt):
    """The small liberties that people take with a prompt."""
    if rng.random() < 0.08:
        prompt = prompt[0].lower() + prompt[1:] if not prompt.startswith("GPU") else prompt
    if rng.random() < 0.15:
        prompt = prompt.rstrip(".: ?") + rng.choice(["", ".", ":", ": ", "!", "\n", ":\n"])
    return prompt


def example(grammar, seed):
    """One (prompt, answer, topic, number or None); the answer follows the prompt directly in the text."""
    rng = random.Random(f"haiku {seed}")
    kind = rng.random()
    name = "GPU" if kind < 0.25 else rng.choice(grammar.names)
    number = rng.choice(NUMBERS) if kind < 0.6 else None
    subject = name
    if kind >= 0.95:
        subject = rng.choice(STRANGERS)
    if number is None:
        ask = rng.choice(ASK_NOTHING) if rng.random() < 0.04 else rng.choice(ASK)
    else:
        ask = rng.choice(ASK_NUMBER_ONLY) if rng.random() < 0.12 else rng.choice(ASK_NUMBER)
    bare = subject.removeprefix("the ")
    prompt = ask.format(t=bare if rng.random() < 0.1 else subject, T=capital(bare), n=number)
    if number is not None and rng.random() < 0.05:
        prompt = prompt.replace(number, f'"{number}"')
    prompt = vary(rng, prompt)
    # After a prompt that ends in a space or a line break the haiku starts at once, otherwise on a new line.
    gap = "" if prompt[-1] in " \n" else "\n"
    return prompt, gap + grammar.haiku(rng, name, number), name, number


def check(grammar, count):
    for name in grammar.names:
        for number in NUMBERS:
            if not grammar.counted(name, number, 7):
                grammar.problems.append(f"[{name}]: no line of seven syllables counts {number}")
    seen = set()
    for seed in range(0 if grammar.problems else count):
        prompt, answer, name, number = example(grammar, seed)
        if not scans(answer):
            grammar.problems.append(f"seed {seed}: {answer!r} does not scan")
        if number is not None and not has_word(answer, number):
            grammar.problems.append(f"seed {seed}: {answer!r} lacks {number!r}")
        seen.add(answer.strip())
    possible = sum(len(t["a"]) * len(t["b"]) * (len(t["c"]) + len(grammar.common["c"])) for t in grammar.topics.values())
    print(f"topics {len(grammar.names)}, words {len(table())}, haiku without a number {possible:,}")
    print(f"of {count:,} examples {len(seen):,} are different")
    for problem in list(dict.fromkeys(grammar.problems))[:40]:
        print(problem)
    return 1 if grammar.problems else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="verify that everything scans; exit 1 if not")
    parser.add_argument("--count", type=int, help="how many examples to print (with --check: to try, 20000)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first example")
    args = parser.parse_args()
    grammar = Grammar()
    if args.check:
        return check(grammar, args.count or 20000)
    for seed in range(args.first, args.first + (args.count or 8)):
        prompt, answer, name, number = example(grammar, seed)
        if args.count:
            print(json.dumps({"prompt": prompt, "answer": answer, "topic": name, "number": number}))
        else:
            print(prompt + answer + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
