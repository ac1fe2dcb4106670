"""Small tokenizers of the `tokenizers` package, of every kind that a folder of the hub may have, and texts that are hard for them."""

import base64
import json
import struct
import unicodedata

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, Regex, Tokenizer, trainers

HARD = [
    "", " ", "  ", "a", "  two  spaces  ", "\t\ttabs\tand\nlines\r\n", "e\u0301", "\u00e9", "a\u0323\u0307", "a\u0307\u0323", "\u1e69\u0323",
    "\u1100\u1161\u11a8", "\uac01", "\u1100\u1161", "\uac00\u11a8", "\ufb01n\ufb02", "\u2163 \u00bd \u00b2", "\uff21\uff22\uff11\uff12", "\u3000wide\u3000",
    "\u0130stanbul", "STRASSE stra\u00dfe \u1e9e", "\u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2", "\u0e01\u0e33", "\u0e01\u0e4d\u0e32", "\ufefflead", "zero\u200bwidth\u200dnone",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467", "\U0001f1eb\U0001f1f7\U0001f1e9\U0001f1ea", "\U0001f44d\U0001f3fd", "\u2764\ufe0f", "\u0928\u092e\u0938\u094d\u0924\u0947",
    "\u0644\u0627 \ufefb \ufdfa", "\u05e9\u05c1", "\u212b \u00c5 A\u030a", "\u2126 \u03a9", "x\u0338= \u2260", "\x00nul\x00", "\x01\x02\x1f\x7f\x8f\x9f", "\ufffd", "\u2581mark",
    "\u2581", "a\u2581b", "don't I'LL we've", "12345 1 23 \u0663\u0664 \u2460", "</s>", "<s> x </s>", "a</s>b", "  </s>  b", "<unk>", "<unk>x", "\u2028\u2029\x85\xa0",
    "q" * 70, " " * 40, "\u0301", "\u0301\u0301", "\u0915\u093c", "\u0958", "\u1e9b\u0323", "\U0001d15e", "\u0344", "\U000e0041\U0010ffff", "\u0eb3 \u0f77", "\u30c6\u3099\u30b9\u30c8",
]  # fmt: skip


def common(text):
    """Without characters that libraries know or do not know by the year of their tables."""
    def known(char):
        return (unicodedata.category(char) != "Cn" and normalizers.NFKC().normalize_str(char) == unicodedata.normalize("NFKC", char)
                and (unicodedata.category(char)[0] == "M") == (normalizers.StripAccents().normalize_str(char) == ""))  # fmt: skip

    return "".join(char for char in text if known(char))


def charsmap(entries):
    """SentencePiece's table of `entries` (text: what it becomes), as base64: a double array with a child of a node at its base xor the byte."""
    texts, places = b"", {}
    for becomes in sorted(set(entries.values())):
        places[becomes] = len(texts)
        texts += becomes.encode() + b"\0"
    tree = {}
    for text, becomes in entries.items():
        node = tree
        for byte in text.encode():
            node = node.setdefault(byte, {})
        node[0] = becomes
    units, taken, bases = {0: 0}, {0}, set()
    todo = [(0, tree)]
    while todo:
        place, node = todo.pop()
        base = 1
        while base in bases or any(base ^ label in taken for label in node):
            base += 1
        bases.add(base)
        taken.update(base ^ label for label in node)
        units[place] |= (place ^ base) << 10 | (0 in node) << 8
        for label, child in node.items():
            if label == 0:
                units[base] = places[child] | 1 << 31
            else:
                units[base ^ label] = label
                todo.append((base ^ label, child))
    size = (max(units) | 255) + 1
    trie = b"".join(struct.pack("<I", units.get(place, 0)) for place in range(size))
    return base64.b64encode(struct.pack("<I", len(trie)) + trie + texts).decode()


def small_charsmap():
    """Some of what SentencePiece's nmt_nfkc has: compositions, wide and odd forms, white space."""
    entries = {"\t": " ", "\n": " ", "\r": " ", "\u3000": " ", "\u00a0": " ", "\u200b": " ", "\x01": "", "\x1f": "", "\x7f": ""}
    for code in (*range(0xC0, 0x130), *range(0x1E60, 0x1E70), *range(0xFF10, 0xFF40), *range(0x2160, 0x2170), 0xFB01, 0xFB02, 0x212B, *range(0xAC00, 0xAC04)):
        char = chr(code)
        composed, parts = unicodedata.normalize("NFKC", char), unicodedata.normalize("NFD", char)
        if composed != char:
            entries[char] = composed
        if parts != char and composed == char:
            entries[parts] = char
    return charsmap(entries)


def template(tokenizer, begin, end):
    before = begin if isinstance(begin, list) else [begin] if begin else []
    pieces = [*before, "$A", *([end] if end else [])]
    special = [(text, tokenizer.token_to_id(text)) for text in (*before, end) if text]
    return processors.TemplateProcessing(single=" ".join(pieces), special_tokens=special)


def unigram(texts, *, normalizer=None, cut="always", split=True, byte_fallback=False, end=None, size=None, spaces_first=False, scores=None):
    """Trained scores; `cut` is the prepend_scheme of a Metaspace, or none."""
    trained = Tokenizer(models.Unigram())
    trained.normalizer = normalizer
    steps = [pre_tokenizers.WhitespaceSplit()] if spaces_first else []
    if cut:
        steps.append(pre_tokenizers.Metaspace(prepend_scheme=cut, split=split))
    if steps:
        trained.pre_tokenizer = pre_tokenizers.Sequence(steps) if len(steps) > 1 else steps[0]
    learner = Tokenizer(models.Unigram())
    learner.normalizer, learner.pre_tokenizer = normalizer, pre_tokenizers.Metaspace()
    size = size or len(set("".join(texts))) + 150  # every character is a token
    learner.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=size, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False))
    known = json.loads(learner.to_str())["model"]["vocab"]
    if byte_fallback:
        known += [[f"<0x{byte:02X}>", -20.0] for byte in range(256)]
    if scores:
        known = [[text, scores(score)] for text, score in known]
    trained.model = models.Unigram([(text, score) for text, score in known], unk_id=0, byte_fallback=byte_fallback)
    trained.add_special_tokens([AddedToken(text, normalized=False) for text in ("<unk>", "<s>", "</s>")])
    trained.decoder = decoders.Metaspace()
    if end:
        trained.post_processor = template(trained, None, end)
    return trained


def pieces(texts, *, normalizer=None, cut=None, split=False, added=(), begin="<s>", size=300):
    """BPE as SentencePiece has it: every pair that makes a token is a merge, better tokens first."""
    learner = Tokenizer(models.BPE())
    learner.normalizer = normalizers.Replace(" ", "\u2581")
    learner.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, show_progress=False))
    learned = sorted(learner.get_vocab(), key=learner.get_vocab().get)
    tokens = ["<unk>", "<s>", "</s>", *[f"<0x{byte:02X}>" for byte in range(256)]]
    longer = [text for text in learned if len(text) > 1]
    tokens += longer + [text for text in learned if len(text) == 1]
    vocabulary = {text: index for index, text in enumerate(tokens)}
    merges = [(text[:at], text[at:]) for text in longer for at in range(1, len(text)) if text[:at] in vocabulary and text[at:] in vocabulary]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizer
    if cut:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=cut, split=split)
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in ("<unk>", "<s>", "</s>")])
    tokenizer.add_tokens(list(added))
    tokenizer.post_processor = template(tokenizer, begin, None)
    return tokenizer


def byte_level(texts, *, normalizer=None, prefix=False, added=(), begin=None, size=330):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  special_tokens=["<unk>", "<s>", "</s>", "[gMASK]", "<sop>"], show_progress=False)  # fmt: skip
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens(list(added))
    if begin:
        tokenizer.post_processor = template(tokenizer, begin, None)
    return tokenizer


def marks(*before):
    return normalizers.Sequence([*before, normalizers.Replace(" ", "\u2581")])


def stripped():
    return [AddedToken("<|end|>", special=True, normalized=False, rstrip=True), AddedToken("<mask>", special=True, normalized=False, lstrip=True),
            AddedToken("<tool>", special=False, normalized=True), AddedToken("<tool><tool>", special=False, normalized=False),
            AddedToken("Caf\u00c9", special=False, normalized=True)]  # fmt: skip


def precompiled(*after):
    return normalizers.Sequence([normalizers.Precompiled(base64.b64decode(small_charsmap())), *after])


def gemma(texts):
    added = [AddedToken(text, normalized=False, special=False) for text in ("\n\n", "\u2581\u2581\u2581", "<start_of_turn>")]
    tokenizer = pieces(texts, normalizer=marks(), added=added)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    return tokenizer


# What each is: a function of training texts.
KINDS = {
    "byte level, NFC": lambda t: byte_level(t, normalizer=normalizers.NFC()),
    "byte level, NFD in a sequence, lower case": lambda t: byte_level(t, normalizer=normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase()])),
    "byte level, NFKC and accents": lambda t: byte_level(t, normalizer=normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents()]), added=stripped()),
    "byte level, NFKC": lambda t: byte_level(t, normalizer=normalizers.NFKC(), added=stripped()),
    "byte level with a space before": lambda t: byte_level(t, prefix=True, added=stripped()),
    "two tokens before": lambda t: byte_level(t, begin=["[gMASK]", "<sop>"]),
    "pieces, Prepend": lambda t: pieces(t, normalizer=marks(normalizers.Prepend("\u2581")), added=stripped()),
    "pieces, Metaspace first": lambda t: pieces(t, cut="first", added=stripped()),
    "pieces, Metaspace always": lambda t: pieces(t, cut="always", added=stripped()),
    "pieces, Metaspace never": lambda t: pieces(t, cut="never"),
    "pieces, Metaspace that splits": lambda t: pieces(t, cut="first", split=True),
    "pieces of Gemma": lambda t: gemma(t),
    "pieces, NFKC": lambda t: pieces(t, normalizer=marks(normalizers.NFKC(), normalizers.Prepend("\u2581"))),
    "unigram": lambda t: unigram(t, end="</s>"),
    "unigram, first": lambda t: unigram(t, cut="first", split=False),
    "unigram, never, byte fallback": lambda t: unigram(t, cut="never", byte_fallback=True),
    "unigram, byte fallback": lambda t: unigram(t, byte_fallback=True, split=False, end="</s>"),
    "unigram, halves as scores": lambda t: unigram(t, scores=lambda score: round(2 * score) / 2),
    "unigram of T5": lambda t: unigram(t, normalizer=precompiled(normalizers.Replace(Regex(" {2,}"), " ")), end="</s>"),
    "unigram of XLM": lambda t: unigram(t, normalizer=precompiled(), spaces_first=True),
    "unigram, Nmt and Strip": lambda t: unigram(t, normalizer=normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Strip(), normalizers.Replace("x", "yy")])),
}  # fmt: skip


NORMALIZERS = [
    None, normalizers.NFC(), normalizers.NFD(), normalizers.NFKC(), normalizers.NFKD(), normalizers.Lowercase(), normalizers.Nmt(), normalizers.Strip(),
    normalizers.Strip(left=True, right=False), normalizers.Prepend("x"), normalizers.Replace("a", "bcd"), normalizers.Replace("\n", ""), normalizers.Replace(Regex(" {2,}"), " "),
    normalizers.Sequence([normalizers.Strip(), normalizers.Prepend("\u2581")]), marks(normalizers.Prepend("\u2581")),
    normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]),
]  # fmt: skip
ADDED = ["<|end|>", "<mask>", "<tool>", "<tool><tool>", "Caf\u00e9", "CAFE\u0301", "ab", "a", " a ", "  ", "\u2581\u2581", "\u00e9", "<x", "<x>", "12", "\n\n", "\u00a0", "</s>b"]


def random_step(rng):
    kind = rng.randint(0, 4)
    if kind <= 1:
        return pre_tokenizers.Metaspace(prepend_scheme=rng.choice(["first", "always", "never"]), split=rng.random() < 0.5)
    if kind == 2:
        return pre_tokenizers.WhitespaceSplit()
    if kind == 3:
        return pre_tokenizers.Digits(rng.random() < 0.5)
    behaviours = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]
    return pre_tokenizers.Split(rng.choice([" ", "a", "\n", "ab", "  ", "\u2581"]), rng.choice(behaviours))


def change_at_random(rng, tokenizer, is_byte_level):
    """Gives it any steps before its model, and added tokens of all sorts; returns their texts."""
    normalizer = rng.choice(NORMALIZERS)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if is_byte_level:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=rng.random() < 0.5)
    elif steps := [random_step(rng) for _ in range(rng.randint(0, 3))]:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps) if len(steps) > 1 else steps[0]
    added, became = rng.sample(ADDED, rng.randint(1, 7)), set()
    for text in added:
        normal = normalizer.normalize_str(text) if normalizer else text
        if normal in became:  # the package takes any of those that are equal
            continue
        became.add(normal)
        strips = not any(char.isspace() for char in text)  # of white space within white space the package makes an exception
        options = {name: rng.random() < 0.4 for name in ("lstrip", "rstrip") if strips}
        token = AddedToken(text, special=rng.random() < 0.5, normalized=rng.random() < 0.5, **options)
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
    return added
