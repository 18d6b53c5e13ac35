"""Decodes one image and its label and says all that is wrong with them; runs in worker processes, without torch."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from fpl.data.damage import damage
from fpl.data.read import Header, check_pair, foreign_colours, read_label, read_size, read_stored
from fpl.data.spec import IGNORE, DatasetSpec
from fpl.errors import FplError

Value = TypeVar("Value")
Size = tuple[int, int]


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong or remarkable.

    Attributes:
        level: A fault makes the check fail; a warning is allowed but rarely meant; a note is information.
        part: "train" or "val".
        kind: Findings of one part, kind and remedy are reported together.
        file: Path below the root of the data set.
        what: What is wrong with it.
        remedy: What to do.
    """

    level: Literal["fault", "warning", "note"]
    part: str
    kind: str
    file: str
    what: str
    remedy: str = ""


@dataclass(frozen=True)
class Pair:
    """An image on disk and its label, if that is on disk."""

    part: str
    image_id: str
    image: Path
    label: Path | None


@dataclass(frozen=True)
class Decoded:
    """What is in the two files.

    Attributes:
        image_size: Height, width; None if it cannot be decoded.
        pixels: Label pixels per class and, last, of those to ignore: int64 [C + 1]; None without a readable label.
        digest: Hash of the bytes of the image file; empty if it cannot be read.
        findings: All that is wrong.
        turned: Whether the image's EXIF orientation, which is ignored, is another than upright.
    """

    image_size: Size | None
    pixels: NDArray[np.int64] | None
    digest: str
    findings: tuple[Finding, ...]
    turned: bool = False


def decode_pair(pair: Pair, spec: DatasetSpec, root: Path) -> Decoded:
    """Decode both files in full. Never raises: whatever happens to a file becomes a finding."""
    findings: list[Finding] = []

    def report(kind: str, path: Path, what: str, remedy: str, level: Literal["fault", "warning"] = "fault") -> None:
        findings.append(Finding(level, pair.part, kind, relative(path, root), what, remedy))

    def attempt(kind: str, path: Path, read: Callable[[], Value]) -> Value | None:
        try:
            return read()
        except FplError as error:
            report(kind, path, error.what, error.hint)
        except Exception as error:
            # Broken files make the decoders raise whatever they please; one file must not end the check of the others.
            report(kind, path, f"cannot be decoded ({type(error).__name__}: {error})", "copy the file again")
        return None

    decoded = attempt("image", pair.image, lambda: read_stored(pair.image))
    image, orientation = (None, 1) if decoded is None else decoded
    header = None if image is None else Header((image.shape[0], image.shape[1]), orientation)
    image_size = None if header is None else header.size
    turned = header is not None and header.orientation != 1
    if image_size is not None and spec.image_size is not None and image_size != spec.image_size:
        report("image size", pair.image, f"image is {by(image_size)}, not {by(spec.image_size)}", _SIZE_REMEDY)
    if image is not None and (found := attempt("image", pair.image, lambda: damage(pair.image))):
        report("damage", pair.image, f"the image is damaged: {found}", _DAMAGE_REMEDY)
    digest = "" if image is None else _digest(pair.image)
    if pair.label is None:
        return Decoded(image_size, None, digest, tuple(findings), turned)

    path = pair.label
    label = attempt("label", path, lambda: read_label(path, spec))
    if label is not None and (found := attempt("label", path, lambda: damage(path))):
        report("damage", path, f"the label is damaged: {found}", _DAMAGE_REMEDY)
    # A label of wrong values may have a wrong size besides: its header tells.
    label_size = (label.shape[0], label.shape[1]) if label is not None else _header_size(path)
    if header is not None and label_size is not None:
        attempt("size of the label", path, functools.partial(check_pair, header, label_size, pair.image, path))
    if label is None:
        return Decoded(image_size, None, digest, tuple(findings), turned)

    values = np.bincount(label.ravel(), minlength=256)
    if other := foreign_colours(path, np.flatnonzero(values[: spec.num_classes]).tolist(), spec):
        what = f"the palette has other colours than {spec.name} for: {', '.join(other)}"
        report("palette", path, what, _PALETTE_REMEDY, "warning")
    pixels = np.append(values[: spec.num_classes], values[IGNORE]).astype(np.int64)
    return Decoded(image_size, pixels, digest, tuple(findings), turned)


_SIZE_REMEDY = "copy the original image again: this one was resized or belongs to another data set"
_DAMAGE_REMEDY = "copy the file again: it decodes, but a part of it is wrong"
_PALETTE_REMEDY = (
    "only indices count, so this is allowed; but if another program wrote these files, see whether its class 1 is ours"
)


def by(size: Size) -> str:
    """`360x480`: height x width."""
    return f"{size[0]}x{size[1]}"


def relative(path: Path, root: Path) -> str:
    """The path below the root, or the whole path if it is elsewhere."""
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()[:32]
    except OSError:
        return ""


def _header_size(path: Path) -> Size | None:
    try:
        return read_size(path)
    except Exception:
        # That the file cannot be read has been reported.
        return None
