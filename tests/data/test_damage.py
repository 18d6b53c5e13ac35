"""Damage inside files that still decode, made by the tests in files that they write."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fpl.data.damage import damage, jpeg_damage, png_damage
from fpl.errors import FplError


def photograph(seed: int = 0) -> Image.Image:
    """Smooth shapes and a little noise: what JPEG is made for."""
    random = np.random.default_rng(seed)
    small = Image.fromarray(random.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize((320, 240), Image.BICUBIC)
    noisy = np.asarray(small).astype(int) + random.integers(-12, 13, (240, 320, 3))
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def zeroed(data: bytes, start: int, length: int) -> bytes:
    return data[:start] + bytes(length) + data[start + length :]


JPEGS: list[dict[str, Any]] = [
    {"quality": 75}, {"quality": 95, "subsampling": 0}, {"quality": 60, "optimize": True},
    {"quality": 80, "progressive": True}, {"quality": 75, "restart_marker_blocks": 4},
    {"quality": 75, "restart_marker_rows": 1},
]  # fmt: skip


@pytest.mark.parametrize("options", JPEGS, ids=str)
def test_good_jpegs_are_good(options: dict[str, Any]) -> None:
    noise = Image.fromarray(np.random.default_rng(1).integers(0, 256, (50, 70, 3), dtype=np.uint8))
    for image in (photograph(), photograph().convert("L"), noise, Image.new("RGB", (200, 150), (9, 9, 9)),
                  Image.new("RGB", (17, 9)), Image.new("L", (1, 1))):  # fmt: skip
        data = encoded(image, "JPEG", **options)
        assert jpeg_damage(data) is None
        # What follows the end is not part of the picture.
        assert jpeg_damage(data + b"\0" * 100) is None


@pytest.mark.parametrize("quality", [30, 75, 100])
@pytest.mark.parametrize("kind", ["flat", "ramp"])
def test_good_smooth_progressive_jpegs_are_good(kind: str, quality: int) -> None:
    """One bit of theirs moves no pixel by a whole level."""
    row, column = np.mgrid[:256, :256]
    pixels = (np.full_like(row, 137) if kind == "flat" else (row + column) % 256).astype(np.uint8)
    for image in (Image.fromarray(pixels), Image.merge("CMYK", [Image.fromarray(pixels)] * 4)):
        assert jpeg_damage(encoded(image, "JPEG", quality=quality, progressive=True)) is None


@pytest.mark.parametrize("options", JPEGS, ids=str)
def test_a_jpeg_with_zeros_in_its_middle(options: dict[str, Any]) -> None:
    data = encoded(photograph(), "JPEG", **options)
    for share in (0.1, 0.5):
        assert jpeg_damage(zeroed(data, len(data) // 2, int(share * len(data) / 2))), share
    assert "EOI" in str(jpeg_damage(zeroed(data, len(data) // 2, len(data) - len(data) // 2)))


@pytest.mark.parametrize("options", JPEGS[:4], ids=str)
def test_a_jpeg_of_which_bytes_are_missing(options: dict[str, Any]) -> None:
    data = encoded(photograph(), "JPEG", **options)
    middle = len(data) // 2
    assert jpeg_damage(data[:middle] + data[middle + 2000 :])
    assert "EOI" in str(jpeg_damage(data[:-2]))
    assert jpeg_damage(data[:middle]) is not None


def test_a_quantization_table_of_zeros() -> None:
    data = encoded(photograph(), "JPEG")
    assert "quantization" in str(jpeg_damage(zeroed(data, data.index(b"\xff\xdb") + 20, 30)))


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "1", "RGBA", "LA"])
def test_pngs(mode: str) -> None:
    for image in (photograph(), Image.new("RGB", (1, 1)), Image.new("RGB", (9, 5))):
        data = encoded(image.convert(mode), "PNG")
        assert png_damage(data) is None
    data = encoded(photograph().convert(mode), "PNG")
    middle = len(data) // 2
    assert "wrong checksum" in str(png_damage(zeroed(data, middle, 40)))
    assert png_damage(data[:middle] + data[middle + 40 :])
    assert "IEND" in str(png_damage(data[:-12]))
    assert "goes beyond the end" in str(png_damage(data[:middle]))
    assert png_damage(data[:-5])


def test_a_png_whose_checksums_are_right_but_pixels_are_missing() -> None:
    import struct
    import zlib

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    def png(rows: bytes, interlaced: int = 0) -> bytes:
        header = struct.pack(">IIBBBBB", 5, 4, 8, 0, 0, 0, interlaced)
        body = chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
        return b"\x89PNG\r\n\x1a\n" + body

    whole = zlib.compress(bytes(4 * 6))
    assert png_damage(png(whole)) is None
    assert "holds 18 bytes of pixels instead of 24" in str(png_damage(png(zlib.compress(bytes(18)))))
    assert "end too early" in str(png_damage(png(whole[:-2])))
    assert "cannot be decompressed" in str(png_damage(png(whole[:-1] + bytes([whole[-1] ^ 1]))))
    # By hand, rows of the passes of a 5x4 image: 20 pixels, and a byte for each row.
    rows = 1 + 1 + 0 + 1 + 1 + 2 + 2
    assert png_damage(png(zlib.compress(bytes(20 + rows)), 1)) is None
    assert png_damage(png(zlib.compress(bytes(20 + rows - 1)), 1))


def test_only_the_content_says_what_a_file_is(tmp_path: Path) -> None:
    (tmp_path / "x.jpg").write_bytes(zeroed(encoded(photograph(), "PNG"), 3000, 40))
    assert "checksum" in str(damage(tmp_path / "x.jpg"))
    photograph().save(tmp_path / "x.bmp")
    assert damage(tmp_path / "x.bmp") is None
    with pytest.raises((FplError, OSError)):
        damage(tmp_path / "none.png")


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_a_broken_header_is_told_in_words(kind: str, tmp_path: Path) -> None:
    """Whatever a byte of a header says: no picture is asked whose answer is an exception."""
    good, file = encoded(photograph().resize((24, 16)), kind), tmp_path / "x"
    random, told = np.random.default_rng(0), 0
    for at in random.integers(8, min(len(good), 640), 200):
        for value in (0, 1, 2, 255):
            file.write_bytes(good[:at] + bytes([value]) + good[at + 1 :])
            told += damage(file) is not None
    assert told > 50


def test_a_scan_whose_header_is_empty(tmp_path: Path) -> None:
    good, file = encoded(photograph(), "JPEG"), tmp_path / "x"
    at = good.index(b"\xff\xda")
    file.write_bytes(good[:at] + b"\xff\xda\x00\x02" + good[at + 4 + 10 :])
    assert "header is broken" in str(damage(file))
