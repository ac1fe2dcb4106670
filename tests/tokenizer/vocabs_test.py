"""`lockstep tokenize` equals the plain tokenizer, on vocabularies of all kinds: fixed texts and fresh random ones.

usage: vocabs_test.py PROGRAM
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

from plain_tokenizer import PlainTokenizer, read_metadata, split_words

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
VOCABS = pathlib.Path(__file__).resolve().parents[1] / "fixtures/vocabs"
NAMES = ["gpt-2", "llama-bpe", "llama-spm", "phi-3", "qwen2", "smollm"]

# Words as the patterns of the models cut them, by hand: what the plain tokenizer itself is held against.
WORDS = {
    "gpt-2": [("I'm  here, 12345 x\n\n y", ["I", "'m", " ", " here", ",", " 12345", " x", "\n\n", " y"]),
              ("x\n\ny", ["x", "\n", "\n", "y"]),
              ("IT'S 'tis", ["IT", "'", "S", " '", "tis"]), ("a\u00a0b  ", ["a", "\u00a0", "b", "  "])],
    "smollm": [("x 123", ["x", " ", "1", "2", "3"]), ("  7  8", ["  ", "7", "  ", "8"])],
    "llama-bpe": [("I'm  HERE'S 12345 x!\n\n y", ["I", "'m", " ", " HERE", "'S", " ", "123", "45", " x", "!\n\n", " y"]),
                  ("a\u00a0b \n \n  c", ["a", "\u00a0b", " \n \n", " ", " c"]), ("\tx(y", ["\tx", "(y"])],
    "qwen2": [("x 123\r\n", ["x", " ", "1", "2", "3", "\r\n"]), ("  \n7!?\n", ["  \n", "7", "!?\n"])],
}  # fmt: skip
TEXTS = [
    "", " ", "  ", "\n", "\t\t", "a", "The snow", " The snow ", "don't DON'T Don'T we'll WE'LL", "1 12 123 1234 1234567",
    "x = y[i] * 2;  // sum\n\n    return x\r\n", "Grüße, 世界 🌍", "雪が降る。屋根に", "눈이 지붕에", "\u0301e\u0301 e\u0301",
    "a\u00a0b\u3000c\u2028d", "Ⅷ½²٣", "<s></s><unk>", "<|im_end|>", "<tool><tool><tool>", "<tool><tool", "x<|user|> \n x",
    "<|end|>  the<|endoftext|>  the", "\u2581a \u2581", "<0x41>", "xyzzy xyzzy.xyzzyx", "'s's 's", "a" * 300, " " * 77, "7" * 100, "!" * 255, "\n" * 257,
]  # fmt: skip
PARTS = ["a", "b", "the", "The", " the", "snow", "kernel", "ING", "é", "ß", "Ж", "снег", "雪", "読む", "눈", "ي", "छ", "\u0301",
         " ", " ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "0", "7", "42", "1000", "½", "٣", "Ⅷ",
         "'s", "'LL", "'Re", "'", "!", "...", "(", "_", "->", "=", "€", "🐈", "🌨\ufe0f", "\u200b", "\x01", "\x7f", "ĠĠ", "\u2581"]  # fmt: skip


def tokenize(name, texts, *flags):
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    command = [PROGRAM, "tokenize", "-m", VOCABS / f"{name}.gguf", "--jsonl", *flags]
    done = subprocess.run(command, input=lines.encode(), capture_output=True, check=True, timeout=300)
    return [[int(word) for word in line.split()] for line in done.stdout.decode().split("\n")[:-1]]


class Vocabularies(unittest.TestCase):
    def setUp(self):
        self.seed = random.randrange(1 << 30)
        self.random = random.Random(self.seed)
        self.plain = {name: PlainTokenizer(read_metadata(VOCABS / f"{name}.gguf")) for name in NAMES}

    def random_text(self, parts):
        return "".join(self.random.choice(parts) for _ in range(self.random.choice((1, 3, 7, 20, 60))))

    def test_words_of_the_plain_tokenizer(self):
        for pre, cases in WORDS.items():
            for text, words in cases:
                self.assertEqual(split_words(text, pre), words, pre)

    def test_ids_are_those_of_the_plain_tokenizer(self):
        for name, plain in self.plain.items():
            special = [plain.tokens[index] for index in plain.special(True)]
            known = self.random.sample(plain.tokens, 60)
            texts = TEXTS + [self.random_text(PARTS + special * 3 + known) for _ in range(120)]
            for flags in ([], ["--no-bos"], ["--no-special"], ["--no-bos", "--no-special"]):
                found = tokenize(name, texts, *flags)
                self.assertEqual(len(found), len(texts))
                for text, ids in zip(texts, found):
                    want = plain.encode(text, "--no-bos" not in flags, "--no-special" not in flags)
                    self.assertEqual(ids, want, f"{name} {flags}, seed {self.seed}: {text!r}")

    def test_stray_bytes(self):
        for name, plain in self.plain.items():
            if plain.pieces:
                continue
            for _ in range(8):
                text = self.random_text(PARTS).encode()
                cut = self.random.randrange(len(text) + 1)
                text = text[:cut] + self.random.choice([b"\xff", b"\xe5\xa5", b"\xc3", b"\x80"]) + b"z" + text[cut:]
                command = [PROGRAM, "tokenize", "-m", VOCABS / f"{name}.gguf"]
                done = subprocess.run(command, input=text, capture_output=True, check=True, timeout=300)
                want = plain.encode(text.decode("utf-8", "surrogateescape"))
                self.assertEqual([int(word) for word in done.stdout.split()], want, f"{name}: {text!r}")

    def test_text_comes_back(self):
        for name, plain in self.plain.items():
            for text in ("The snow doesn't fall.\n 1234 \U0001f408 雪 \x01\t  x", self.random_text([p for p in PARTS if p != "\u2581"])):
                ids = " ".join(map(str, plain.encode(text, add_special=False)))
                command = [PROGRAM, "tokenize", "-m", VOCABS / f"{name}.gguf", "--decode", "-p", ids]
                done = subprocess.run(command, capture_output=True, check=True, timeout=300)
                self.assertIn(done.stdout.decode(), (text, text + "\n"), name)

    def test_every_path_is_taken(self):
        """The vocabularies have what they are for: merges through strings that are no tokens, bytes, special tokens."""
        for name, plain in self.plain.items():
            self.assertGreater(len(plain.tokens), 600)
            if plain.pieces:
                self.assertTrue(any(plain.types[index] == 6 for index in plain.encode("Ⅷ")))
                self.assertEqual(plain.strips, name == "phi-3")
            else:
                lost = [pair for pair in plain.ranks if "".join(pair) not in plain.ids]
                self.assertGreater(len(lost), 20)
                self.assertEqual(plain.ids["xyzzy"] in plain.encode("xyzzy"), name == "llama-bpe")

    def test_files_are_what_the_script_makes(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, VOCABS / "make.py", folder], check=True, timeout=300)
            self.assertEqual(sorted(path.stem for path in VOCABS.glob("*.gguf")), NAMES)
            for name in NAMES:
                made = (pathlib.Path(folder) / f"{name}.gguf").read_bytes()
                self.assertEqual(made, (VOCABS / f"{name}.gguf").read_bytes(), name)


if __name__ == "__main__":
    unittest.main()
