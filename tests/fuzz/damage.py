"""Files as copies and disks leave them: cut short, with bytes changed or zeroed, emptied, or another file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

FOREIGN = [
    b"",
    b"PAR1",
    b"PAR1" * 20,
    b"PK\x03\x04",
    b"\x80\x02}q\x00.",
    b"<!doctype html>",
    b"\0" * 4096,
    b"{}",
    b"\xff\xfe",
]


@st.composite
def damaged(draw: Callable[[Any], Any], content: bytes) -> bytes:
    """`content` after one fault."""
    start = draw(st.integers(0, len(content) - 1))
    length = draw(st.sampled_from([1, 8, 512]))
    # The ends of both formats say where everything is.
    if draw(st.booleans()):
        start = max(0, len(content) - 1 - draw(st.integers(0, 200)))
    changed = bytearray(content)
    kind = draw(st.sampled_from(["cut", "zeroed", "flipped", "repeated", "foreign"]))
    if kind == "cut":
        return content[:start]
    if kind == "foreign":
        return draw(st.sampled_from(FOREIGN) | st.binary(max_size=64))
    if kind == "repeated":
        return content[:start] + content[start : start + length] * 2 + content[start + length :]
    for at in range(start, min(start + length, len(content))):
        changed[at] = 0 if kind == "zeroed" else changed[at] ^ 0x41
    return bytes(changed)
