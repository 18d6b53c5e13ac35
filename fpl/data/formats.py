"""What a reader accepts: formats, bit depths and palettes of images and labels, stated once.

What counts is what a file is, never its name.

| in the file                      | as an image           | as a label                                              |
|----------------------------------|-----------------------|---------------------------------------------------------|
| grey of 1, 2, 4 or 8 bits        | taken                 | taken: the values are the classes                       |
| grey of 16 bits                  | refused               | taken                                                   |
| palette                          | taken: its colours    | taken: its indices, unless its colours contradict them  |
| grey or colours with alpha       | taken without alpha   | refused                                                 |
| RGB, CMYK, YCbCr of 8 bits       | taken                 | refused                                                 |
| more than 8 bits a channel, real | refused               | refused                                                 |
| format                           | PNG, JPEG, WebP, BMP  | PNG, BMP: no compression that changes a value           |
| BMP of more bits than its greys  | refused               | refused: PIL reads other values                         |
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fpl.data.spec import IGNORE, SPECS, DatasetSpec
from fpl.errors import FplError
from fpl.text import enumerate_briefly

# PIL calls a JPEG with further pictures behind the first MPO: telephones write them.
IMAGE_FORMATS = ("PNG", "JPEG", "MPO", "WEBP", "BMP")
LABEL_FORMATS = ("PNG", "BMP")
LOSSY = ("JPEG", "MPO", "WEBP", "JPEG2000", "AVIF")
LABEL_MODES = ("P", "L", "1", "I", "I;16", "I;16B", "I;16L")

Colours = tuple[tuple[int, int, int], ...]


def check_image(image: Image.Image, where: str) -> None:
    """Refuse an opened image file of another kind than the table's.

    Raises:
        FplError: More than 8 bits a channel, numbers that are no colours, or another format.
    """
    check_bits(image, where)
    depth = raw_mode(image)
    # PIL keeps the high byte of 16-bit colours without a word, but refuses to do so with 16-bit grey.
    if image.mode.startswith(("I", "F")) or (depth.endswith((";16", ";16B", ";16L", ";16N")) and image.format != "BMP"):
        kind = image.mode if image.mode == depth.partition(";")[0] or not depth else f"{image.mode} ({depth})"
        raise FplError(
            f"image has mode {kind}",
            where=where,
            hint="images need 8 bits a channel: convert it, and all others of the data set in the same way",
        )
    if image.format not in IMAGE_FORMATS:
        names = ", ".join(name for name in IMAGE_FORMATS if name != "MPO")
        raise FplError(f"image is a {image.format} file", where=where, hint=f"read are {names}: convert it to PNG")


def check_label(image: Image.Image, where: str) -> None:
    """Refuse an opened label file of another kind than the table's.

    Raises:
        FplError: A format that changes values or is not read, or colours instead of indices.
    """
    check_bits(image, where)
    if image.format in LOSSY:
        kind = "JPEG" if image.format == "MPO" else image.format
        raise FplError(
            f"the label is a {kind} file: its compression changes label values",
            where=where,
            hint="take the original labels, or make them again as PNG; what the compression changed cannot be mended "
            "by saving this file as PNG",
        )
    if image.format not in LABEL_FORMATS:
        hint = f"labels are read from {' and '.join(LABEL_FORMATS)}: save them as PNG without changing a value"
        raise FplError(f"the label is a {image.format} file", where=where, hint=hint)
    if image.mode not in LABEL_MODES:
        raise FplError(
            f"label has mode {image.mode}: colours instead of class indices",
            where=where,
            hint="save labels as single-channel 8-bit PNG (mode L) or as palette PNG whose indices are the classes "
            "(mode P); a colour label must be converted with its palette first",
        )


def check_bits(image: Image.Image, where: str) -> None:
    """Refuse a BMP whose colours are so few greys that PIL takes it for one of fewer bits a pixel.

    Raises:
        FplError: It is one.
    """
    read_as = {"1": 1, "L": 8}.get(raw_mode(image))
    file = getattr(image, "fp", None)
    if image.format != "BMP" or read_as is None or file is None:
        return
    head = file.tell()
    file.seek(14)
    header = file.read(16)
    file.seek(head)
    # The oldest header is of 12 bytes.
    place = 10 if int.from_bytes(header[:4], "little") == 12 else 14
    if (bits := int.from_bytes(header[place : place + 2], "little")) != read_as:
        what = f"is a BMP of {bits} bits a pixel with a colour table of few greys, which is read as one of {read_as}"
        raise FplError(what, where=where, hint="save it as PNG with another program, without changing a value")


def raw_mode(image: Image.Image) -> str:
    """The pixel format in the file as PIL names it, `RGB;16B`; empty where it does not say."""
    tiles = getattr(image, "tile", None)
    arguments = tiles[0].args if tiles else ""
    first = arguments[0] if isinstance(arguments, tuple) and arguments else arguments
    return first if isinstance(first, str) else ""


def check_palette(palette: NDArray[np.uint8], pixels: NDArray[np.uint8], where: str, spec: DatasetSpec,
                  values: Mapping[int, int]) -> None:  # fmt: skip
    """Refuse a palette label whose colours say that its indices mean other classes.

    Only indices count, so a palette may be anything that says nothing about classes: the data set's, a grey ramp of
    the indices, one colour for all, colours of no data set. It contradicts where an index that occurs has the colour
    of another class, where the palette is another data set's, and where it is a grey ramp of other values.

    Args:
        palette: Colours of the indices, uint8 [n, 3].
        pixels: Indices, uint8 [H, W].
        where: The file.
        spec: The data set.
        values: Index -> class, or `IGNORE`.

    Raises:
        FplError: Names the indices and what their colours say.
    """
    claims = _claims(palette.tobytes(), spec, tuple(sorted(values.items())))
    if not claims:
        return
    present = np.bincount(pixels.ravel(), minlength=256)
    wrong = [text for value, text in claims.items() if present[value]]
    if wrong:
        raise FplError(
            f"the palette contradicts the classes of {spec.name}: {enumerate_briefly(dict.fromkeys(wrong), 3)}",
            where=where,
            hint="compare a label with its image: if the colours are right, map the indices to the classes; if the "
            f"indices are right, save the labels without a palette (mode L) or with that of {spec.name}",
        )


@functools.lru_cache(maxsize=256)
def _claims(palette: bytes, spec: DatasetSpec, values: tuple[tuple[int, int], ...]) -> dict[int, str]:
    """Indices that the palette calls something else than we do, and what it says."""
    colours: Colours = tuple((palette[at], palette[at + 1], palette[at + 2]) for at in range(0, len(palette), 3))
    ours = {value: index for value, index in values if index != IGNORE and value < len(colours)}
    wrong = [value for value, index in ours.items() if colours[value] != spec.palette[index]]
    if not wrong or all(colours[value] == (value, value, value) for value in ours):
        return {}
    for name, other in SPECS.items():
        length = min(len(colours), other.num_classes)
        if other.palette != spec.palette and length > 1 and colours[:length] == other.palette[:length]:
            return dict.fromkeys(wrong, f"it is that of {name}")
    shown = [colours[value] for value in ours]
    greys = [red for red, green, blue in shown if red == green == blue]
    steps = [after - before for before, after in pairwise(greys)]
    if len(greys) == len(shown) and (all(step > 0 for step in steps) or all(step < 0 for step in steps)):
        return {value: f"index {value} is shown as grey {colours[value][0]}" for value in wrong}
    classes = {colour: index for index, colour in enumerate(spec.palette)}
    # A colour of several indices is filling, not a name.
    return {
        value: f"index {value} ({spec.class_names[ours[value]]}) has the colour of {spec.class_names[named]}"
        for value in wrong
        if (named := classes.get(colours[value])) is not None and shown.count(colours[value]) == 1
    }


def other_colours(
    palette: NDArray[np.uint8], present: Iterable[int], spec: DatasetSpec, values: Mapping[int, int]
) -> list[str]:
    """Classes whose index has another colour than the data set's: allowed, but worth a word.

    Args:
        palette: uint8 [n, 3].
        present: Classes that occur.
        spec: The data set.
        values: Index -> class.
    """
    # A grey ramp is what converters write that have no colours to give.
    if (palette == np.arange(len(palette), dtype=np.uint8)[:, None]).all():
        return []
    index_of = {index: value for value, index in values.items()}
    return [
        spec.class_names[index]
        for index in sorted(present)
        if (value := index_of[index]) >= len(palette) or tuple(palette[value].tolist()) != spec.palette[index]
    ]
