"""A real pretrained model, SmolLM2-135M-Instruct: tokens and logits against llama.cpp, greedy text against exact
arithmetic."""

import numpy as np

import llama_engine
from numpy_llama import NumpyLlama
from peer import LOCKSTEP, Report, nmse, our_values, run_ours
from smollm2 import QUESTIONS, chat, model_file

INT8_BOUND = 5e-3  # llama.cpp rounds activations to 8 bits
EXACT_BOUND = 1e-24
CHOSEN = 40

MORE_TEXTS = [
    "",
    " ",
    "  two spaces,\ttab\r\nand lines\n\n\n",
    "1234567890 3.14159 0x7f",
    "naïve café 東京タワー 👩‍👩‍👧 Ω≈ç√",
    "<|im_start|>system\nYou are terse.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n",
    "I've we'll THEY'RE don't",
]


def check_tokens(report, path, engine):
    for text in [*map(chat, QUESTIONS), *QUESTIONS, *MORE_TEXTS]:
        theirs = engine.tokenize(text, parse_special=True)
        ours = [int(token) for token in run_ours([LOCKSTEP, "tokenize", "-m", path, "--no-bos", "-p", text]).split()]
        if ours != theirs:
            report.case("tokens", False, f"{text!r}: {ours} here, {theirs} there")
            return
    report.case("tokens of llama.cpp", True, f"{2 * len(QUESTIONS) + len(MORE_TEXTS)} texts")


def check_question(report, path, engine, exact, question):
    prompt = engine.tokenize(chat(question), parse_special=True)
    values, chosen = our_values(path, prompt, ["logits"], greedy=CHOSEN)
    ours = values["logits"]
    # What exact arithmetic makes of our tokens: if it would choose each next one, it chooses the same text.
    tokens = prompt + chosen[:-1]
    truth = exact.logits(tokens)
    same = np.array_equal(truth[len(prompt) - 1 :].argmax(axis=1), chosen)
    name = repr(question)
    report.case(f"{name}: {CHOSEN} greedy tokens are those of exact arithmetic", same)
    report.below(f"{name}: logits against exact arithmetic", nmse(ours, truth), EXACT_BOUND)
    theirs = engine.evaluate(tokens)
    flips = int(np.sum(theirs[len(prompt) - 1 :].argmax(axis=1) != chosen))
    name += f": logits against llama.cpp, which flips {flips} of {CHOSEN} choices"
    report.below(name, nmse(ours, theirs), INT8_BOUND)


def main():
    report = Report("SmolLM2")
    path = model_file()
    engine = llama_engine.Engine(path, 512)
    report.attempt("tokens", check_tokens, report, path, engine)
    exact = NumpyLlama(path)
    for question in QUESTIONS:
        report.attempt(question, check_question, report, path, engine, exact, question)
    engine.close()
    report.finish()


if __name__ == "__main__":
    main()
