"""The program really generates: asked for a haiku with the current minute's number word, every shipped model's answer has it, two
runs with one seed agree, and two seeds differ."""

import datetime
import pathlib
import re
import subprocess
import sys

from number_words import MODELS, number_word


def answer(program, model, word, *flags):
    command = [program, "run", "-m", model, "-p", f"GPU haiku with word {word}: ", "-n", "64", *flags]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd="/").stdout


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    word = number_word(datetime.datetime.now().minute)
    for model in MODELS:
        text = answer(program, model, word)
        words = re.findall(r"[a-z][a-z'-]*", text.lower())
        assert word in words, f"{model}: no '{word}' in {text!r}"
        warm = ["--temp", "1", "--seed"]
        first = answer(program, model, word, *warm, "1")
        assert first == answer(program, model, word, *warm, "1"), f"{model}: one seed, two answers"
        others = [answer(program, model, word, *warm, str(seed)) for seed in (2, 3)]
        assert any(other != first for other in others), f"{model}: several seeds, one answer: {first!r}"
        print(f"{model}: {' / '.join(text.split(chr(10))).strip(' /')}")


main()
