"""The models that ship really answer through HTTP: asked for haiku with the words of an hour's minutes, every one's answers have
them, streamed and whole, and seeds decide."""

import pathlib
import re
import sys

from worker import Worker, check_order, text_of

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from number_words import words_by_model


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    for model, words in words_by_model():
        with Worker(program, model=model) as worker:
            for word in words:
                prompt = f"GPU haiku with word {word}: "
                events = worker.run(f"word {word}", prompt, max_tokens=64)
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
