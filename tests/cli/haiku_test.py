"""The program really generates: asked for haiku with the words of an hour's minutes, every shipped model's answers have them, two
runs with one seed agree, and two seeds differ."""

import pathlib
import re
import subprocess
import sys

from number_words import words_by_model


def answer(program, model, word, *flags):
    command = [program, "run", "-m", model, "-p", f"GPU haiku with word {word}: ", "-n", "64", *flags]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd="/", timeout=300).stdout


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    for model, words in words_by_model():
        for word in words[::5]:  # tests/server/haiku_test.py asks for all, without a process for each
            text = answer(program, model, word)
            assert word in re.findall(r"[a-z][a-z'-]*", text.lower()), f"{model}: no '{word}' in {text!r}"
        warm = ["--temp", "1", "--seed"]
        first = answer(program, model, word, *warm, "1")
        assert first == answer(program, model, word, *warm, "1"), f"{model}: one seed, two answers"
        others = [answer(program, model, word, *warm, str(seed)) for seed in (2, 3)]
        assert any(other != first for other in others), f"{model}: several seeds, one answer: {first!r}"
        print(f"{model}: {' / '.join(text.split(chr(10))).strip(' /')}")


main()
