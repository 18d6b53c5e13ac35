"""The only place that opens image files."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fpl.data.formats import check_image, check_label, check_palette, other_colours, raw_mode
from fpl.data.spec import IGNORE, DatasetSpec
from fpl.errors import FplError
from fpl.files import check_regular
from fpl.text import enumerate_briefly, one_line, plural

Bytes = NDArray[np.uint8]

# PIL stretches grey values of 1, 2 and 4 bits to 0..255; optimizers save small label images that way.
_STRETCH = {"L;2": 85, "L;4": 17}

_ORIENTATION = 0x0112
# EXIF orientation -> what brings the stored pixels upright; EXIF 2.3, tag Orientation. 1 is upright.
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


@dataclass(frozen=True)
class Header:
    """What the header of an image file says.

    Attributes:
        size: Height and width as stored.
        orientation: EXIF orientation, 1..8; 1 is upright, and what is taken where the header says nothing. A PNG may
            say it behind the pixels, for who decodes it.
    """

    size: tuple[int, int]
    orientation: int

    @property
    def upright_size(self) -> tuple[int, int]:
        """Height and width once turned as the orientation says."""
        return self.size[::-1] if self.orientation >= 5 else self.size


def read_image(path: Path) -> Bytes:
    """An image as uint8 [H, W, 3], RGB; `formats` says what is taken.

    Grey and palette images are converted, alpha is dropped; EXIF orientation is ignored, as labels do not follow it.

    Raises:
        FplError: The file is missing, broken, truncated, too large, or of a kind that is not taken.
    """
    return read_stored(path)[0]


def read_stored(path: Path) -> tuple[Bytes, int]:
    """The same and its orientation, 1..8, from wherever the file has it: that of a PNG may lie behind the pixels."""
    image = _load(path, check_image)
    return np.array(image.convert("RGB")), _orientation(image)


def read_upright(path: Path) -> tuple[Bytes, bool]:
    """The same, turned as its orientation says, and whether it was turned."""
    image = _load(path, check_image)
    turn = _TURNS.get(_orientation(image))
    return np.array((image if turn is None else image.transpose(turn)).convert("RGB")), turn is not None


def read_header(path: Path) -> Header:
    """Size and orientation of an image; nothing is decoded, but the kind of file is checked.

    Raises:
        FplError: As `read_image`, as far as the header tells.
    """
    with _open(path) as image:
        check_image(image, str(path))
        return Header((image.height, image.width), _orientation(image))


def read_label_size(path: Path) -> tuple[int, int]:
    """Height and width of a label; nothing is decoded, but the kind of file is checked.

    Raises:
        FplError: As `read_label`, as far as the header tells.
    """
    with _open(path) as image:
        check_label(image, str(path))
        return image.height, image.width


def read_size(path: Path) -> tuple[int, int]:
    """Height and width of an image from its header."""
    with _open(path) as image:
        return image.height, image.width


def foreign_colours(path: Path, present: Sequence[int], spec: DatasetSpec) -> list[str]:
    """Of the classes that are present in a label, those that its palette gives other colours than the data set's."""
    with _open(path) as image:
        palette = _palette(image, str(path))
    return [] if palette is None else other_colours(palette, present, spec, spec.values_of(path))


def read_label(path: Path, spec: DatasetSpec) -> Bytes:
    """A label as uint8 [H, W] with values 0..C-1 or 255 (ignore); `formats` says what is taken.

    Palette files give their indices, never their colours or grey values.

    Raises:
        FplError: The file is missing or broken, is compressed with loss, has colours instead of indices, a palette
            that contradicts the data set's, or values that are none of its own; the message names them.
    """
    opened: list[tuple[str, Bytes | None]] = []

    def check(image: Image.Image, where: str) -> None:
        check_label(image, where)
        opened.append((raw_mode(image), _palette(image, where)))

    values = np.array(_load(path, check))
    ((raw, palette),) = opened
    if raw in _STRETCH:
        values //= _STRETCH[raw]
    classes = _to_classes(values, path, spec)
    if palette is not None:
        check_palette(palette, values, str(path), spec, spec.values_of(path))
    return classes


def _to_classes(values: NDArray[np.generic], path: Path, spec: DatasetSpec) -> Bytes:
    mapping = spec.values_of(path)
    size = max(256, int(values.max(initial=0)) + 1)
    allowed = np.zeros(size, dtype=bool)
    allowed[list(mapping)] = True
    wide = values.astype(np.intp, copy=False)
    if wide.min(initial=0) < 0 or not allowed[wide].all():
        found = np.unique(wide)
        foreign = [int(value) for value in found if value < 0 or not allowed[value]]
        text = f"label values that are no class of {spec.name}: {enumerate_briefly(foreign)}"
        if all(value in spec.foreign_values for value in foreign):
            raise FplError(text, where=str(path), hint=spec.foreign_hint)
        if foreign == [IGNORE] and IGNORE not in mapping:
            hint = "these are trainIds under the name of labelIds: give the file the ending of trainIds"
            raise FplError(text, where=str(path), hint=hint)
        known = [value for value in mapping if value != IGNORE]
        ignored = f" and {IGNORE} (ignore)" if IGNORE in mapping else ""
        hint = f"allowed are {min(known)}..{max(known)}{ignored}"
        raise FplError(text, where=str(path), hint=hint)
    table = np.full(size, IGNORE, dtype=np.uint8)
    table[list(mapping)] = list(mapping.values())
    return table[wide]


def orientation_ignored(names: Sequence[str]) -> str:
    """What to say about images that are taken as they are stored."""
    return (
        f"the EXIF orientation of {plural(len(names), 'image', spec='d')} is ignored, as labels do not "
        f"follow it: {enumerate_briefly(names, 3)}"
    )


def check_pair(image: Header, label_size: tuple[int, int], image_path: Path, label_path: Path) -> None:
    """Refuse an image and a label of different sizes.

    Args:
        image: Size and orientation of the image.
        label_size: Height and width.
        image_path: File of the image.
        label_path: File of the label.

    Raises:
        FplError: They differ; the message has both sizes, height x width, and says if the EXIF orientation explains it.
    """
    if image.size == label_size:
        return
    hint = "image and label must have the same size: one of the two was resized or belongs to another image"
    if image.upright_size == label_size:
        hint = (
            f"the label was made for the image turned as its EXIF orientation ({image.orientation}) says, which is "
            "ignored here: save the image upright and without this entry (PIL: ImageOps.exif_transpose)"
        )
    raise FplError(
        f"label is {label_size[0]}x{label_size[1]}, its image {one_line(image_path.name)} is "
        f"{image.size[0]}x{image.size[1]} (height x width)",
        where=str(label_path),
        hint=hint,
    )


def _open(path: Path) -> Image.Image:
    check_regular(path)
    try:
        return Image.open(path)
    except FileNotFoundError as error:
        raise FplError("no such file", where=str(path)) from error
    except (Image.DecompressionBombError, MemoryError) as error:
        raise _too_large(path, error) from error
    except Exception as error:  # broken files make the decoders raise whatever they please
        raise _unreadable(path, error) from error


def _load(path: Path, check: Callable[[Image.Image, str], None]) -> Image.Image:
    """The decoded image; `check` looks at it before anything is decoded."""
    with _open(path) as image:
        check(image, str(path))
        try:
            image.load()
        except (Image.DecompressionBombError, MemoryError) as error:
            raise _too_large(path, error) from error
        except Exception as error:  # as above
            raise _unreadable(path, error) from error
    return image


def _orientation(image: Image.Image) -> int:
    try:
        # Of EXIF, of the text that ImageMagick writes it as, or of XMP. PNG's own method decodes the image first.
        found = Image.Image.getexif(image).get(_ORIENTATION, 1)
    except (OSError, ValueError, SyntaxError, TypeError, KeyError, struct.error):
        # A damaged entry turns no image in a viewer either.
        return 1
    return found if found in _TURNS else 1


def _palette(image: Image.Image, where: str) -> Bytes | None:
    if image.mode != "P" or image.palette is None:
        return None
    # BMP keeps its colours as BGRX.
    order, colours = image.palette.getdata()
    if not set("RGB") <= set(order):
        return None
    if len(colours) % len(order):
        what = f"its palette is damaged: {len(colours)} bytes are no whole number of colours"
        raise FplError(what, where=where, hint="copy the file again")
    return np.frombuffer(bytes(colours), dtype=np.uint8).reshape(-1, len(order))[:, [order.index(c) for c in "RGB"]]


def _unreadable(path: Path, error: Exception) -> FplError:
    # Of many files the same is said in the same words: the name is told once.
    reason = str(error).replace(f" {str(path)!r}", "").replace(str(path), path.name).rstrip(": ")
    reason = reason if isinstance(error, OSError | ValueError | SyntaxError) else f"{type(error).__name__}: {reason}"
    return FplError(f"the image cannot be decoded ({reason})", where=str(path), hint="copy the file again")


def _too_large(path: Path, error: Exception) -> FplError:
    if isinstance(error, MemoryError):
        return FplError("no memory to decode the image", where=str(path), hint="cut or reduce it, or free memory")
    limit = 2 * (Image.MAX_IMAGE_PIXELS or 0)
    size = re.search(r"\d+", str(error))
    found = f"{int(size[0]):,} pixels, " if size else ""
    return FplError(
        f"the image is too large: {found}more than the limit of {limit:,}",
        where=str(path),
        hint="cut it into tiles or reduce it, and its label in the same way; the limit is PIL's, against files that "
        "fill the memory",
    )
