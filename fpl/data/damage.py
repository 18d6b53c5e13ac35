"""Damage inside files that still decode: bytes that were lost or overwritten, as far as PNG and JPEG can tell.

PNG carries checksums. JPEG has none: its structure is checked, and that each scan holds exactly the bits that its
pixels need. Zeros or lost bytes in the middle put the decoder out of step; the pixels end before the bits or the bits
before the pixels, which the library's decoder passes over without a word.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8\xff"
# Colour type of PNG -> channels.
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
# The seven passes of an interlaced PNG: first column, first row, and their steps (PNG specification, section 8.2).
_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
# So many bytes at the end of a baseline scan are changed, bit by bit and so many times at random, to see whether the
# picture needs them. Those of a progressive scan move a coefficient by one step, which is not always seen: more bytes.
_TAIL, _PROGRESSIVE_TAIL, _TRIES = 4, 24, 8
# So many zero bytes on end are blocks of 63 equal coefficients, where zero bits do not stand for an empty block.
_ZEROS = bytes(32)


def damage(path: Path) -> str | None:
    """What is wrong inside a file that decodes; None if nothing can be found, as in formats without any redundancy.

    Args:
        path: A PNG or JPEG file, by its content; others are not looked at.
    """
    data = path.read_bytes()
    kinds: dict[bytes, Callable[[bytes], str | None]] = {_PNG: png_damage, _JPEG: jpeg_damage}
    try:
        return next((find(data) for start, find in kinds.items() if data.startswith(start)), None)
    except (struct.error, LookupError, ValueError) as error:
        # Headers that lack what they must hold, or say what no picture has.
        return f"its header is broken ({error})"


def png_damage(data: bytes) -> str | None:
    """The first chunk whose checksum is wrong, or what is missing of the compressed pixels or of the end."""
    at, pixels, header = len(_PNG), [], b""
    while at < len(data):
        if at + 12 > len(data):
            return f"it ends within a chunk, {len(data) - at} bytes behind the last whole one"
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        body, end = data[at + 8 : at + 8 + length], at + 12 + length
        if end > len(data):
            return f"its chunk {_name(kind)} at byte {at} goes beyond the end of the file"
        if struct.unpack(">I", data[end - 4 : end])[0] != zlib.crc32(body, zlib.crc32(kind)):
            return f"its chunk {_name(kind)} at byte {at} has a wrong checksum"
        if kind == b"IHDR":
            header = body
        elif kind == b"IDAT":
            pixels.append(body)
        elif kind == b"IEND":
            return _pixel_damage(header, b"".join(pixels))
        at = end
    return "its end (chunk IEND) is missing"


def _pixel_damage(header: bytes, compressed: bytes) -> str | None:
    width, height, bits, colour, _, _, interlaced = struct.unpack(">IIBBBBB", header)
    inflate, size = zlib.decompressobj(), 0
    try:
        # In pieces: a small file may hold a large image.
        rest = compressed
        while rest and not inflate.eof:
            size += len(inflate.decompress(rest, 2**22))
            rest = inflate.unconsumed_tail
        size += len(inflate.flush())
    except zlib.error as error:
        return f"its pixels cannot be decompressed ({error})"
    if not inflate.eof:
        return "its compressed pixels end too early"
    row = bits * _CHANNELS[colour]
    passes = _PASSES if interlaced else ((0, 0, 1, 1),)
    wanted = 0
    for left, top, across, down in passes:
        columns, rows = -(-(width - left) // across), -(-(height - top) // down)
        wanted += rows * (1 + (columns * row + 7) // 8) if columns > 0 and rows > 0 else 0
    return None if size >= wanted else f"it holds {size} bytes of pixels instead of {wanted}"


def _name(kind: bytes) -> str:
    return kind.decode("ascii") if kind.isalpha() else repr(kind)


def jpeg_damage(data: bytes) -> str | None:
    """What is wrong with the markers, or a scan that has fewer or more bits than its pixels need."""
    scans: list[tuple[int, int]] = []
    restarts: list[int] = []
    empty: set[int] = set()
    at, tail = 2, _TAIL
    while True:
        while data[at : at + 2] == b"\xff\xff":
            at += 1
        if at + 2 > len(data):
            return "its end (marker EOI) is missing"
        if data[at] != 0xFF or data[at + 1] < 0xC0:
            return f"there is no marker at byte {at}, where one must be"
        marker = data[at + 1]
        if marker == 0xD9:
            break
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        if length < 2 or at + 2 + length > len(data):
            return f"its segment at byte {at} goes beyond the end of the file"
        if marker == 0xDB and (wrong := _table_damage(data[at + 4 : at + 2 + length])):
            return wrong
        if marker == 0xC2:
            tail = _PROGRESSIVE_TAIL
        if marker == 0xC4:
            empty = _empty_tables(data[at + 4 : at + 2 + length], empty)
        segment = data[at + 4 : at + 2 + length]
        at += 2 + length
        if marker == 0xDA:
            start, numbers = at, []
            while (at := data.find(b"\xff", at)) >= 0 and at + 1 < len(data):
                following = data[at + 1]
                if 0xD0 <= following <= 0xD7:
                    numbers.append(following - 0xD0)
                    restarts.append(at)
                elif following not in (0x00, 0xFF):
                    break
                at += 2 if following != 0xFF else 1
            if at < 0 or at + 1 >= len(data):
                return f"its end (marker EOI) is missing{_zeros_at_the_end(data)}"
            if any(after != (before + 1) % 8 for before, after in pairwise([-1, *numbers])):
                return "its restart markers do not follow one another: a part of the picture is missing"
            scans.append((start, at))
            tables = {segment[2 + 2 * number] & 15 for number in range(segment[0])}
            if tail == _TAIL and not tables <= empty and (zeros := data.find(_ZEROS, start, at)) >= 0:
                return f"its compressed data are zero from byte {zeros} on, which no picture gives"
    if not scans:
        return "it holds no picture"
    return _scan_damage(data[: at + 2], scans, restarts, tail)


def _table_damage(tables: bytes) -> str | None:
    at = 0
    while at < len(tables):
        wide = tables[at] >> 4
        entries = np.frombuffer(tables[at + 1 : at + 1 + 64 * (1 + wide)], dtype=">u2" if wide else np.uint8)
        if len(entries) < 64 or not entries.all():
            return "its quantization table has zeros, or is cut off"
        at += 1 + 64 * (1 + wide)
    return None


def _empty_tables(tables: bytes, before: set[int]) -> set[int]:
    """Numbers of the tables of AC coefficients in which zero bits stand for the end of a block."""
    at, empty = 0, set(before)
    while at + 17 <= len(tables):
        kind, count = tables[at], sum(tables[at + 1 : at + 17])
        # The code of zeros alone is the first one.
        if kind >> 4 and count:
            (empty.add if tables[at + 17] == 0 else empty.discard)(kind & 15)
        at += 17 + count
    return empty


def _scan_damage(data: bytes, scans: list[tuple[int, int]], restarts: list[int], tail: int) -> str | None:
    """Compare the picture with those of changed files.

    Bits behind the end of a scan's pixels change nothing in a good file; where the bits ran out, they are used.
    Other bits in place of the last ones change a good file's picture; where the pixels ended before, nothing changes.
    """
    picture = _decode(data)
    if picture is None:
        return None  # That it cannot be decoded has been reported.
    random = np.random.default_rng(0)
    ends = sorted({*restarts, *(end for _, end in scans)}, reverse=True)
    longer = bytearray(data)
    for end in ends:
        longer[end:end] = random.integers(1, 255, 48, dtype=np.uint8).tobytes()
    if not _same(picture, _decode(bytes(longer))):
        return "its compressed data end before the picture does: bytes are missing or were overwritten"
    start, end = max(scans, key=lambda scan: scan[1] - scan[0])
    start = max([start, *(restart + 2 for restart in restarts if restart < end)])
    if end - start < 4 * tail:
        return None
    # After 0xFF stands a zero that is no data, and anything else would be a marker.
    place = end - tail
    place += data[place - 1] == 0xFF
    for other in _other_bytes(data[place:end], random):
        if not _same(picture, _decode(data[:place] + other + data[end:])):
            return None
    return "its picture ends before its compressed data do: bytes are missing or were overwritten"


def _other_bytes(tail: bytes, random: np.random.Generator) -> Iterator[bytes]:
    """The end of a scan with one bit changed, and with all of it replaced: either alone may change nothing to be seen.

    Some bits move a coefficient of a smooth picture by less than one level; bytes at random may be blocks that lie
    beside the picture.
    """
    # The last byte may be filling: its bits come last.
    for bit in [*range(8, 8 * len(tail)), *range(8)]:
        at, changed = len(tail) - 1 - bit // 8, bytearray(tail)
        changed[at] ^= 1 << bit % 8
        if 0xFF not in (changed[at], *tail[max(at - 1, 0) : at + 1]):
            yield bytes(changed)
    for _ in range(_TRIES):
        yield random.integers(1, 255, len(tail), dtype=np.uint8).tobytes()


def _decode(data: bytes) -> NDArray[np.uint8] | None:
    try:
        with Image.open(io.BytesIO(data)) as image:
            return np.asarray(image)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None


def _same(one: NDArray[np.uint8], other: NDArray[np.uint8] | None) -> bool:
    return other is not None and np.array_equal(one, other)


def _zeros_at_the_end(data: bytes) -> str:
    zeros = len(data) - len(data.rstrip(b"\0"))
    return f", and its last {zeros} bytes are zero" if zeros > 2 else ""
