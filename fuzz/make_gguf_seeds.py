#!/usr/bin/env python3
"""Writes fuzz/seeds/gguf/: small valid files, from which the fuzzer starts."""

import pathlib
import struct

FOLDER = pathlib.Path(__file__).parent / "seeds" / "gguf"
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def scalar(kind, value):
    return struct.pack("<" + SCALARS[kind], value)


def array(kind, items):
    return struct.pack("<IQ", kind, len(items)) + b"".join(items)


def entry(key, kind, raw):
    return text(key) + struct.pack("<I", kind) + raw


def tensor(name, dims, kind, offset):
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def write(name, entries=(), tensors=(), data=b"", version=3, alignment=32):
    raw = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries))
    raw += b"".join(entries) + b"".join(tensors)
    if tensors:
        raw += bytes(-len(raw) % alignment) + data
    (FOLDER / name).write_bytes(raw)


FOLDER.mkdir(parents=True, exist_ok=True)
write("empty")
write("version2", [entry("a", 4, scalar(4, 7))], version=2)
write("scalars", [entry(f"k{kind}", kind, scalar(kind, 1)) for kind in SCALARS])
write("arrays", [entry(f"k{kind}", 9, array(kind, [scalar(kind, v) for v in (0, 1)])) for kind in SCALARS])
write("texts", [entry("name", 8, text("Grüße")), entry("tokens", 9, array(8, [text(t) for t in ("", "a", "世")]))])
inner = array(8, [text("x")])
write("nested", [entry("n", 9, array(9, [array(9, [inner, inner]), array(0, [])]))])
write("tensors", [], [tensor("a", [3, 2], 0, 0), tensor("b", [32], 2, 32)], bytes(64))
write("aligned", [entry("general.alignment", 4, scalar(4, 8))], [tensor("a", [1, 2, 1, 3], 1, 0),
      tensor("b", [256], 12, 16)], bytes(16 + 144), alignment=8)
write("split", [entry("split.no", 2, scalar(2, 0)), entry("split.count", 2, scalar(2, 3)),
      entry("split.tensors.count", 5, scalar(5, 9))])
