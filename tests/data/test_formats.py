"""What a reader accepts: the table of `fpl.data.formats`, kind by kind, on files that the tests write."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from fpl.data.read import read_header, read_image, read_label
from fpl.data.spec import SPECS, get_spec
from fpl.errors import FplError
from tests.data.conftest import save

VOC, CITY, CAMVID = get_spec("voc"), get_spec("synthetic_city"), get_spec("camvid")
CHANNELS = {"L": (0, 1), "RGB": (2, 3), "LA": (4, 2), "RGBA": (6, 4)}


def write_png16(path: Path, mode: str) -> Path:
    """A PNG of 16 bits a channel, written by hand: PIL writes none in colour."""
    colour, channels = CHANNELS[mode]

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    rows = b"".join(b"\0" + bytes(range(1, 1 + 4 * channels * 2)) for _ in range(3))
    header = struct.pack(">IIBBBBB", 4, 3, 16, colour, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)
    return path


@pytest.mark.parametrize(
    ("mode", "name"),
    [("L", "PNG"), ("LA", "PNG"), ("P", "PNG"), ("RGB", "PNG"), ("RGBA", "PNG"), ("1", "PNG"), ("CMYK", "JPEG"),
     ("L", "JPEG"), ("RGB", "BMP"), ("RGB", "WEBP")],
)  # fmt: skip
def test_images_of_eight_bits_are_taken(tmp_path: Path, mode: str, name: str) -> None:
    Image.new("RGB", (5, 3), (255, 255, 255)).convert(mode).save(tmp_path / "x.png", name)
    assert read_image(tmp_path / "x.png").tolist() == np.full((3, 5, 3), 255).tolist()
    assert read_header(tmp_path / "x.png").size == (3, 5)


@pytest.mark.parametrize("mode", CHANNELS)
def test_images_of_sixteen_bits_are_refused_grey_and_colour_alike(tmp_path: Path, mode: str) -> None:
    path = write_png16(tmp_path / "x.png", mode)
    for read in (read_image, read_header):
        with pytest.raises(FplError, match="8 bits a channel"):
            read(path)


@pytest.mark.parametrize("mode", ["F", "I;16", "I"])
def test_images_of_numbers_are_refused(tmp_path: Path, mode: str) -> None:
    Image.new(mode, (5, 3)).save(tmp_path / "x.tif")
    with pytest.raises(FplError, match=f"mode {mode}"):
        read_image(tmp_path / "x.tif")


@pytest.mark.parametrize("name", ["GIF", "TIFF", "PPM"])
def test_other_formats_are_named(tmp_path: Path, name: str) -> None:
    Image.new("RGB", (5, 3)).save(tmp_path / "x.png", name)
    with pytest.raises(FplError, match=f"image is a {name} file"):
        read_image(tmp_path / "x.png")


@pytest.mark.parametrize("name", ["JPEG", "WEBP", "JPEG2000", "AVIF"])
@pytest.mark.parametrize("ending", [".png", ".jpg"])
def test_r64_labels_in_a_lossy_format_are_refused_by_what_they_are(tmp_path: Path, name: str, ending: str) -> None:
    # All zero: no value betrays the format.
    Image.new("L" if name.startswith("JPEG") else "RGB", (64, 64)).save(tmp_path / f"x{ending}", name, quality=95)
    with pytest.raises(FplError, match=f"the label is a {name} file: its compression changes"):
        read_label(tmp_path / f"x{ending}", CAMVID)


@pytest.mark.parametrize("name", ["GIF", "TIFF"])
def test_labels_of_other_formats_are_refused_too(tmp_path: Path, name: str) -> None:
    Image.new("L", (4, 4)).save(tmp_path / "x.png", name)
    with pytest.raises(FplError, match=f"the label is a {name} file"):
        read_label(tmp_path / "x.png", CAMVID)


def write_label(path: Path, values: object, colours: list[tuple[int, int, int]]) -> Path:
    image = Image.fromarray(np.asarray(values, dtype=np.uint8))
    image.putpalette([channel for colour in colours for channel in colour])
    image.save(path)
    return path


def ramp(step: int) -> list[tuple[int, int, int]]:
    return [(index * step % 256,) * 3 for index in range(256)]


ALL = np.arange(21, dtype=np.uint8).reshape(3, 7)
SWAPPED = [*VOC.palette[:7], VOC.palette[8], VOC.palette[7], *VOC.palette[9:]]


@pytest.mark.parametrize(
    ("colours", "text"),
    [
        (SWAPPED, r"index 7 \(car\) has the colour of cat"),
        (list(VOC.palette[::-1]), r"index 0 \(background\) has the colour of tvmonitor"),
        ([*VOC.palette[1:], VOC.palette[0]], r"index 0 \(background\) has the colour of aeroplane"),
        ([*CITY.palette, (0, 0, 0), (1, 1, 1)], "it is that of cityscapes"),
        ([*CAMVID.palette, *[(0, 0, 0)] * 10], "it is that of camvid"),
        (ramp(12), "index 1 is shown as grey 12"),
        ([(255 - index,) * 3 for index in range(256)], "index 0 is shown as grey 255"),
    ],
    ids=["two swapped", "reversed", "rotated", "cityscapes", "camvid", "steps of 12", "inverted"],
)
def test_palettes_that_contradict_the_classes_are_refused(
    tmp_path: Path, colours: list[tuple[int, int, int]], text: str
) -> None:
    path = write_label(tmp_path / "x.png", ALL, colours)
    with pytest.raises(FplError, match=text) as caught:
        read_label(path, VOC)
    assert "compare a label with its image" in caught.value.hint and caught.value.where == str(path)


@pytest.mark.parametrize(
    "colours",
    [
        list(VOC.palette),
        ramp(1),
        [(0, 0, 0)] * 256,
        [(index, 255 - index, 7) for index in range(256)],
        [*VOC.palette[:5], *[(0, 0, 0)] * 251],
    ],
    ids=["its own", "plain ramp", "one colour", "any colours", "filled up"],
)
def test_palettes_that_say_nothing_else_are_taken(tmp_path: Path, colours: list[tuple[int, int, int]]) -> None:
    assert read_label(write_label(tmp_path / "x.png", ALL, colours), VOC).tolist() == ALL.tolist()


def test_a_contradiction_at_an_index_that_does_not_occur_is_none(tmp_path: Path) -> None:
    values = np.where(ALL > 6, 255, ALL)
    assert read_label(write_label(tmp_path / "x.png", values, SWAPPED), VOC).tolist() == values.tolist()


def test_every_palette_of_ours_serves_its_own_labels(tmp_path: Path) -> None:
    for name, spec in SPECS.items():
        values = np.arange(spec.num_classes, dtype=np.uint8)[None]
        path = write_label(tmp_path / f"{name}.png", values, list(spec.palette))
        assert (read_label(path, spec) == values).all()


def test_r73_too_large_is_called_so(tmp_path: Path) -> None:
    header = struct.pack(">IIBBBBB", 20000, 10000, 8, 2, 0, 0, 0)
    path = save(tmp_path / "x.png", np.zeros((2, 2, 3)))
    data = path.read_bytes()
    path.write_bytes(data[:16] + header + struct.pack(">I", zlib.crc32(b"IHDR" + header)) + data[33:])
    for read in (read_image, read_header):
        with pytest.raises(
            FplError, match=r"too large: 200,000,000 pixels, more than the limit of 178,956,970"
        ) as caught:
            read(path)
        assert "cut it into tiles" in caught.value.hint


def bmp(indices: NDArray[np.uint8], bits: int, greys: Sequence[int]) -> bytes:
    """A BMP as its specification has it: indices of some bits from the last row up, and a table of greys."""
    rows = b""
    for row in indices[::-1]:
        packed = np.packbits(np.unpackbits(row[:, None], axis=1)[:, 8 - bits :]).tobytes()
        rows += packed + bytes(-len(packed) % 4)
    table = b"".join(bytes([grey, grey, grey, 0]) for grey in greys)
    start = 54 + len(table)
    size = (indices.shape[1], indices.shape[0])
    head = struct.pack("<2sIHHI", b"BM", start + len(rows), 0, 0, start)
    return head + struct.pack("<IiiHHIIiiII", 40, *size, 1, bits, 0, len(rows), 1, 1, len(greys), 0) + table + rows


@pytest.mark.parametrize(
    ("bits", "greys", "right"),
    [
        (1, [0, 255], True),
        (8, list(range(256)), True),
        (8, [0, 255], False),
        (4, [0, 255], False),
        (4, list(range(16)), False),
    ],
)
def test_a_bmp_is_read_as_it_is_or_refused(tmp_path: Path, bits: int, greys: list[int], right: bool) -> None:
    """PIL decides by the colours of the table how many bits a pixel has."""
    indices = np.random.default_rng(0).integers(0, 2, (16, 32), dtype=np.uint8)
    path = tmp_path / "x.bmp"
    path.write_bytes(bmp(indices, bits, greys))
    spec = get_spec("camvid")
    if right:
        assert np.array_equal(read_label(path, spec), indices)
        assert np.array_equal(read_image(path)[..., 0], np.array(greys)[indices])
        return
    for read in (read_image, read_header, lambda path: read_label(path, spec)):
        with pytest.raises(FplError, match=f"BMP of {bits} bits a pixel") as caught:
            read(path)
        assert str(path) in caught.value.message


def test_a_palette_that_is_no_whole_number_of_colours_is_named(tmp_path: Path) -> None:
    image = Image.fromarray(np.zeros((4, 4), dtype=np.uint8))
    image.putpalette([value for colour in get_spec("camvid").palette for value in colour])
    stream = io.BytesIO()
    image.save(stream, "PNG")
    content, kind = stream.getvalue(), b"PLTE"
    place = content.index(kind)
    (length,) = struct.unpack(">I", content[place - 4 : place])
    colours = content[place + 4 : place + 4 + length] + b"\0"
    chunk = struct.pack(">I", len(colours)) + kind + colours + struct.pack(">I", zlib.crc32(kind + colours))
    (tmp_path / "x.png").write_bytes(content[: place - 4] + chunk + content[place + 8 + length :])
    with pytest.raises(FplError, match="its palette is damaged") as caught:
        read_label(tmp_path / "x.png", get_spec("camvid"))
    assert str(tmp_path / "x.png") in caught.value.message
