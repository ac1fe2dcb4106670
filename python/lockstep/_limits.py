"""What a trace may hold at most: the table of include/lockstep/detail/limits.h."""

from __future__ import annotations

MOST_POSITIONS = 1 << 24
MOST_WIDTH = 1 << 40
MOST_CHECKPOINTS = 200_000
MOST_NAME_BYTES = 255
NAME_RULE = "1 to 255 bytes of printable UTF-8"


def in_positions(first: int, tokens: int) -> bool:
    """Whether a step of `tokens` tokens may begin at `first`."""
    return first >= 0 and tokens >= 1 and first + tokens <= MOST_POSITIONS


def is_name(name: str) -> bool:
    """Whether a checkpoint may be called so."""
    try:
        size = len(name.encode("utf-8"))
    except (AttributeError, UnicodeEncodeError):
        return False
    return 1 <= size <= MOST_NAME_BYTES and not any(c < " " or c == "\x7f" for c in name)
