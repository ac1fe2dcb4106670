"""Tokenizers of the shipped models: training, encoding as an engine encodes, and what of them goes into models.json.

Byte-level BPE comes from the tokenizers library, each with the pre-tokenizer of its architecture's models; haiku-phi3 has a
SentencePiece BPE with byte fallback, like Llama 2 and Phi-3. An engine puts a space before SentencePiece text (at its start, and
after a special token); it is put there by hand here, and the SentencePiece model itself adds none.
"""

import base64
import io

from zoo import VOCAB

LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_PATTERN = LLAMA3_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")


class ByteLevelTokenizer:
    def __init__(self, spec, tokenizer):
        self.spec, self.tokenizer = spec, tokenizer
        self.ids = {text: tokenizer.token_to_id(text) for text in spec.specials}

    @classmethod
    def train(cls, spec, texts):
        from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=spec.tokenizer in ("gpt-2", "refact"))
        tokenizer = Tokenizer(models.BPE(ignore_merges=spec.tokenizer == "llama-bpe"))
        if spec.tokenizer in ("llama-bpe", "qwen2"):
            pattern = LLAMA3_PATTERN if spec.tokenizer == "llama-bpe" else QWEN2_PATTERN
            split = pre_tokenizers.Split(Regex(pattern), "isolated")
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
        elif spec.tokenizer == "refact":
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
        else:
            tokenizer.pre_tokenizer = byte_level
        if spec.tokenizer == "qwen2":
            tokenizer.normalizer = normalizers.NFC()
        tokenizer.decoder = decoders.ByteLevel()
        first = spec.tokenizer == "refact"  # StarCoder's family has its special tokens in front, the others at the end
        trainer = trainers.BpeTrainer(
            vocab_size=VOCAB if first else VOCAB - len(spec.specials), show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=list(spec.specials) if first else [],
        )
        tokenizer.train_from_iterator(texts, trainer)
        tokenizer.add_special_tokens(list(spec.specials))
        if tokenizer.get_vocab_size() != VOCAB:
            raise ValueError(f"{spec.name}: {tokenizer.get_vocab_size()} tokens, expected {VOCAB}")
        return cls(spec, tokenizer)

    @classmethod
    def load(cls, spec, saved):
        import json

        from tokenizers import Tokenizer

        return cls(spec, Tokenizer.from_str(json.dumps(saved["tokenizer_json"])))

    def save(self):
        import json

        return {"tokenizer_json": json.loads(self.tokenizer.to_str())}

    def encode_batch(self, texts):
        """Ids of each text, without bos; special tokens in it are recognized."""
        return [e.ids for e in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def prompts(self, texts):
        bos = [self.ids[self.spec.bos]] if self.spec.bos else []
        return [bos + ids for ids in self.encode_batch(texts)]

    def chats(self, conversations):
        """Ids up to where the answer starts, for lists of (role, content)."""
        return self.prompts([render_chat(self.spec, c) for c in conversations])

    def answers(self, texts):
        return [ids + [self.ids[self.spec.eos]] for ids in self.encode_batch(texts)]

    def decode(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=True)


class SentencePieceTokenizer:
    def __init__(self, spec, model):
        import sentencepiece

        self.spec, self.model = spec, model
        self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        size = self.processor.get_piece_size()
        self.ids = {"<unk>": 0, "<s>": 1, "</s>": 2} | {text: size + i for i, text in enumerate(spec.specials)}

    @classmethod
    def train(cls, spec, texts):
        import sentencepiece

        sentences = (line for text in texts for line in text.split("\n") if line)
        out = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=sentences, model_writer=out, model_type="bpe", vocab_size=VOCAB - len(spec.specials),
            byte_fallback=True, character_coverage=1.0, normalization_rule_name="identity", add_dummy_prefix=False,
            remove_extra_whitespaces=False, num_threads=1, minloglevel=2,
        )
        return cls(spec, out.getvalue())

    @classmethod
    def load(cls, spec, saved):
        return cls(spec, base64.b64decode(saved["sentencepiece"]))

    def save(self):
        p = self.processor
        kinds = [
            "unknown" if p.is_unknown(i) else "control" if p.is_control(i) else "byte" if p.is_byte(i) else "normal"
            for i in range(p.get_piece_size())
        ]
        pieces = [[p.id_to_piece(i), p.get_score(i), kind] for i, kind in enumerate(kinds)]
        pieces += [[text, 0.0, "control"] for text in self.spec.specials]
        return {"sentencepiece": base64.b64encode(self.model).decode(), "pieces": pieces}

    def encode_batch(self, texts):
        return self.processor.encode(texts, num_threads=4) if texts else []

    def prompts(self, texts):
        return [[self.ids["<s>"]] + ids for ids in self.encode_batch([" " + t for t in texts])]

    def chats(self, conversations):
        out = []
        for conversation in conversations:
            ids = [self.ids["<s>"]]
            for role, content in conversation:
                ids += [self.ids[f"<|{role}|>"]] + self.processor.encode(" " + content) + [self.ids["<|end|>"]]
            out.append(ids + [self.ids["<|assistant|>"]])
        return out

    def answers(self, texts):
        return [ids + [self.ids[self.spec.eos]] for ids in self.encode_batch(texts)]

    def decode(self, ids):
        return self.processor.decode([i for i in ids if i < self.processor.get_piece_size()])


def render_chat(spec, conversation):
    """What the chat template gives, by the template itself."""
    import jinja2

    messages = [{"role": role, "content": content} for role, content in conversation]
    return _template(spec.chat_template, jinja2).render(messages=messages, add_generation_prompt=True)


_templates = {}


def _template(text, jinja2):
    if text not in _templates:
        _templates[text] = jinja2.Environment(keep_trailing_newline=True).from_string(text)
    return _templates[text]


def train_tokenizer(spec, texts):
    return (SentencePieceTokenizer if spec.tokenizer == "spm" else ByteLevelTokenizer).train(spec, texts)


def load_tokenizer(spec, saved):
    return (SentencePieceTokenizer if spec.tokenizer == "spm" else ByteLevelTokenizer).load(spec, saved)
