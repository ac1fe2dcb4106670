"""The models that ship really answer through HTTP: asked for a haiku with the current minute's number word, every one's answer has
it, streamed and whole, and seeds decide."""

import datetime
import pathlib
import re
import sys

from worker import Worker, check_order, text_of

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from number_words import MODELS, number_word


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    word = number_word(datetime.datetime.now().minute)
    prompt = f"GPU haiku with word {word}: "
    for model in MODELS:
        with Worker(program, model=model) as worker:
            events = worker.run("minute", prompt, max_tokens=64)
            assert check_order(events)[0] == "end"
            text = text_of(events)
            assert word in re.findall(r"[a-z][a-z'-]*", text.lower()), f"{model}: no '{word}' in {text!r}"
            status, whole = worker.post("/v1/completions", {"prompt": prompt, "max_tokens": 64, "temperature": 0})
            assert (status, whole["choices"][0]["text"]) == (200, text), (model, whole)
            warm = [text_of(worker.run("warm", prompt, max_tokens=64, temperature=1, seed=seed)) for seed in (1, 1, 2, 3)]
            assert warm[0] == warm[1], f"{model}: one seed, two answers"
            assert len(set(warm)) > 1, f"{model}: several seeds, one answer: {warm[0]!r}"
            assert worker.stop()[0] == 0
        print(f"{model}: {' / '.join(text.split(chr(10))).strip(' /')}")


main()
