"""Test-only: vocabularies of GGUF files, and text to token ids in the slowest and plainest way, with the standard library alone."""

import struct
import unicodedata

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
SPACES = {*map(chr, range(9, 14)), " ", "\x85", "\xa0", "\u1680", *map(chr, range(0x2000, 0x200B)),
          "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"}  # fmt: skip
# Control tokens whatever the file says: markers for code that is to be filled in.
CONTROL_BY_TEXT = {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"}
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
TEXT, ARRAY = 8, 9


def read_metadata(path):
    """The keys and values of a GGUF file."""
    data, at = path.read_bytes(), 24

    def take(code):
        nonlocal at
        value = struct.unpack_from("<" + code, data, at)[0]
        at += struct.calcsize("<" + code)
        return value

    def read(kind):
        nonlocal at
        if kind == TEXT:
            size = take("Q")
            at += size
            return data[at - size : at].decode()
        if kind == ARRAY:
            element, count = take("I"), take("Q")
            return [read(element) for _ in range(count)]
        return take(NUMBERS[kind])

    count = struct.unpack_from("<Q", data, 16)[0]
    return {read(TEXT): read(take("I")) for _ in range(count)}


def is_letter(c):
    return unicodedata.category(c)[0] == "L"


def is_number(c):
    return unicodedata.category(c)[0] == "N"


def is_other(c):
    return c not in SPACES and not is_letter(c) and not is_number(c)


def run(text, at, belongs):
    """Where the characters from `at` on end that belong together."""
    while at < len(text) and belongs(text[at]):
        at += 1
    return at


def word_end(text, at, pre):
    """Where the word that begins at `at` ends, by the rules of GPT-2, Llama 3 or Qwen 2."""
    gpt2 = pre == "gpt-2"
    for ending in ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d"):
        found = text[at : at + len(ending)]
        if found == ending or (not gpt2 and found.isascii() and found.lower() == ending):
            return at + len(ending)
    first = text[at]
    may_lead = first == " " if gpt2 else not (is_letter(first) or is_number(first) or first in "\r\n")
    for start in ([at + 1] if may_lead else []) + [at]:
        if (end := run(text, start, is_letter)) > start:
            return end
    if gpt2:
        for start in ([at + 1] if first == " " else []) + [at]:
            if (end := run(text, start, is_number)) > start:
                return end
    elif is_number(first):
        return min(run(text, at, is_number), at + (3 if pre == "llama-bpe" else 1))
    for start in ([at + 1] if first == " " else []) + [at]:
        if (end := run(text, start, is_other)) > start:
            return end if gpt2 else run(text, end, lambda c: c in "\r\n")
    end = run(text, at, lambda c: c in SPACES)
    if not gpt2:  # up to the last line break
        lines = max(text.rfind("\n", at, end), text.rfind("\r", at, end))
        if lines >= 0:
            return lines + 1
    # The last space goes with the word that follows.
    return end if end == len(text) or end == at + 1 else end - 1


def split_words(text, pre):
    if pre == "smollm":  # every digit alone, then as GPT-2
        parts, begin = [], 0
        for at, c in enumerate(text):
            if is_number(c):
                parts += [*split_words(text[begin:at], "gpt-2"), c]
                begin = at + 1
        return parts + split_words(text[begin:], "gpt-2")
    words, at = [], 0
    while at < len(text):
        end = word_end(text, at, pre)
        words.append(text[at:end])
        at = end
    return words


def byte_alphabet():
    """By byte: its printable character."""
    letters, spare = [], 256
    for byte in range(256):
        if 0x21 <= byte <= 0x7E or (0xA1 <= byte and byte != 0xAD):
            letters.append(chr(byte))
        else:
            letters.append(chr(spare))
            spare += 1
    return letters


LETTERS = byte_alphabet()


def spelled(text):
    return "".join(LETTERS[byte] for byte in text.encode("utf-8", "surrogateescape"))


def merge(parts, rank):
    """Joins the neighbours of the least rank, the leftmost of equals, until none has one."""
    while True:
        ranks = [(rank(parts[i], parts[i + 1]), i) for i in range(len(parts) - 1)]
        ranks = [entry for entry in ranks if entry[0] is not None]
        if not ranks:
            return parts
        at = min(ranks)[1]
        parts = [*parts[:at], parts[at] + parts[at + 1], *parts[at + 2 :]]


class PlainTokenizer:
    def __init__(self, metadata):
        get = lambda key, otherwise=None: metadata.get(f"tokenizer.ggml.{key}", otherwise)
        self.tokens, self.types = get("tokens"), list(get("token_type"))
        self.ids = {}
        for index, text in enumerate(self.tokens):
            self.ids.setdefault(text, index)
        self.pieces = get("model") == "llama"
        self.pre = get("pre")
        self.scores = get("scores")
        self.ranks = {tuple(text.split(" ")): rank for rank, text in reversed(list(enumerate(get("merges", []))))}
        self.strips = "phi-3" in metadata.get("general.name", "").lower()
        self.bos = get("bos_token_id") if self.pieces or self.pre == "llama-bpe" else None
        for text in CONTROL_BY_TEXT & self.ids.keys():
            self.types[self.ids[text]] = CONTROL

    def special(self, parse_special):
        """Ids of tokens that are cut out of text, the longest first."""
        kinds = (UNKNOWN, CONTROL, USER_DEFINED) if parse_special else (USER_DEFINED,)
        found = [index for index, kind in enumerate(self.types) if kind in kinds]
        return sorted(found, key=lambda index: -len(self.tokens[index].encode()))

    def fragments(self, text, parse_special):
        """Texts, and the ids of special tokens between them."""
        parts = [text]
        for index in self.special(parse_special):
            token, cut = self.tokens[index], []
            for part in parts:
                if isinstance(part, int):
                    cut.append(part)
                    continue
                first, *others = part.split(token)
                cut.append(first)
                for other in others:
                    if self.strips and token not in ("<unk>", "<s>", "<|endoftext|>"):
                        other = other.lstrip(" \t\n\v\f\r")
                    cut += [index, other]
            parts = cut
        return [part for part in parts if part != ""]

    def encode_word(self, word):
        if self.pre == "llama-bpe" and spelled(word) in self.ids:
            return [self.ids[spelled(word)]]
        parts = merge(list(spelled(word)), lambda left, right: self.ranks.get((left, right)))
        known = [[part] if part in self.ids else part for part in parts]
        return [self.ids[text] for texts in known for text in texts]

    def encode_pieces(self, text):
        def rank(left, right):
            index = self.ids.get(left + right)
            return None if index is None else -self.scores[index]

        ids = []
        for part in merge(list(text.replace(" ", "\u2581")), rank):
            if part in self.ids:
                ids.append(self.ids[part])
            else:
                ids += [self.ids[f"<0x{byte:02X}>"] for byte in part.encode()]
        return ids

    def encode(self, text, add_special=True, parse_special=True):
        ids = [self.bos] if add_special and self.bos is not None else []
        after_special = True
        for part in self.fragments(text, parse_special):
            if isinstance(part, int):
                ids.append(part)
            elif self.pieces:
                ids += self.encode_pieces((" " if after_special else "") + part)
            else:
                ids += [index for word in split_words(part, self.pre) for index in self.encode_word(word)]
            after_special = isinstance(part, int)
        return ids
