"""The only place that opens image files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fpl.data.cache import Cache
from fpl.data.lists import enumerate_briefly
from fpl.data.spec import IGNORE, DatasetSpec
from fpl.errors import FplError

Bytes = NDArray[np.uint8]

# PIL stretches grey values of 1, 2 and 4 bits to 0..255; optimizers save small label images that way.
_STRETCH = {"L;2": 85, "L;4": 17}


def read_image(path: Path) -> Bytes:
    """An image as uint8 [H, W, 3], RGB.

    Grey and palette images are converted; EXIF orientation is ignored, as labels do not follow it.

    Raises:
        FplError: The file is missing, broken, truncated or has more than 8 bits a channel.
    """
    image, _ = _load(path)
    if image.mode.startswith(("I", "F")):
        raise FplError(f"image has mode {image.mode}", where=str(path), hint="images need 8 bits a channel")
    return np.array(image.convert("RGB"))


def read_size(path: Path) -> tuple[int, int]:
    """Height and width of an image from its header."""
    with _open(path) as image:
        return image.height, image.width


def read_palette(path: Path) -> Bytes | None:
    """Colours of a palette file as uint8 [n, 3], RGB, from its header; None if it has no palette."""
    with _open(path) as image:
        if image.mode != "P" or image.palette is None:
            return None
        mode, colours = image.palette.getdata()
        return np.frombuffer(bytes(colours), dtype=np.uint8).reshape(-1, 3) if mode == "RGB" else None


def read_label(path: Path, spec: DatasetSpec) -> Bytes:
    """A label as uint8 [H, W] with values 0..C-1 or 255 (ignore).

    Palette files give their indices, never their colours or grey values.

    Raises:
        FplError: The file is missing or broken, has colours instead of indices, or holds values that are none of
            the data set's; the message names the values.
    """
    image, raw_mode = _load(path)
    if image.mode not in ("P", "L", "1", "I", "I;16", "I;16B", "I;16L"):
        raise FplError(
            f"label has mode {image.mode}: colours instead of class indices",
            where=str(path),
            hint="save labels as single-channel 8-bit PNG (mode L) or as palette PNG whose indices are the classes "
            "(mode P); a colour label must be converted with its palette first",
        )
    values = np.array(image)
    if raw_mode in _STRETCH:
        values //= _STRETCH[raw_mode]
    return _to_classes(values, path, spec)


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


def check_pair(image_size: tuple[int, int], label_size: tuple[int, int], image_path: Path, label_path: Path) -> None:
    """Refuse an image and a label of different sizes (height, width).

    Raises:
        FplError: They differ; the message has both sizes, height x width.
    """
    if image_size != label_size:
        raise FplError(
            f"label is {label_size[0]}x{label_size[1]}, its image {image_path.name} is {image_size[0]}x{image_size[1]} "
            "(height x width)",
            where=str(label_path),
            hint="image and label must have the same size: one of the two was resized or belongs to another image",
        )


class Images:
    """The images and labels of one part of a data set, read on demand.

    Args:
        spec: The data set.
        root: Its root folder (`find_root`).
        part: "train" or "val".
        downscale: Images and labels come at 1/downscale of their size (rounded down, at least 1 pixel): images
            bilinear with antialiasing, labels nearest.
        keep: Keep decoded arrays in memory, 4 bytes per reduced pixel of a labeled image and 3 of an unlabeled one
            (synthetic_city: 12 MB; CamVid at 1/3: 31 MB; full Cityscapes: 25 GB, so use False there), and that once
            per loader process. Returned arrays are then shared: do not write to them.
        cache: Where decoded arrays are taken from (`open_cache`): the same ones, read-only, in memory that all
            processes of a machine share. Nothing is kept then.

    Attributes:
        label_reads: How often the label file of each id was opened, or its label taken from the cache, in this
            process. Training must never read the label of an unlabeled image.
        truth_reads: The same for `truth`, which diagnostics read and no loss sees.
    """

    def __init__(
        self,
        spec: DatasetSpec,
        root: Path,
        part: str,
        downscale: int = 1,
        keep: bool = True,
        cache: Cache | None = None,
    ) -> None:
        if downscale < 1:
            raise FplError(f"downscale = {downscale}", hint="1 or more is allowed")
        self.spec = spec
        self.root = root
        self.part = part
        self.downscale = downscale
        self.keep = keep and cache is None
        self.cache = cache
        self.label_reads: Counter[str] = Counter()
        self.truth_reads: Counter[str] = Counter()
        self._kept: dict[tuple[str, str], Bytes] = {}
        self._sizes: dict[str, tuple[int, int]] = {}

    def image(self, image_id: str) -> Bytes:
        """Reduced image, uint8 [h, w, 3]."""
        kept = self._kept.get(("image", image_id))
        if kept is not None:
            return kept
        if (cached := self._cached("image", image_id)) is not None:
            return cached
        image = read_image(self.spec.image_path(self.root, self.part, image_id))
        self._sizes[image_id] = image.shape[:2]
        return self._keep("image", image_id, self._reduce(image, Image.Resampling.BILINEAR))

    def label(self, image_id: str) -> Bytes:
        """Reduced label, uint8 [h, w], 0..C-1 or 255."""
        return self._label(image_id, self.label_reads)

    def truth(self, image_id: str) -> Bytes | None:
        """Reduced label of an image that training must not learn from, for diagnostics; None where there is no file.

        Raises:
            FplError: The file is damaged; says how to train without reading it.
        """
        if not self.spec.label_path(self.root, self.part, image_id).is_file():
            return None
        try:
            return self._label(image_id, self.truth_reads)
        except FplError as error:
            without = "--diagnose-every 0 trains without reading labels of unlabeled images"
            hint = f"{error.hint}; {without}" if error.hint else without
            raise FplError(error.what, where=error.where, hint=hint) from error

    def _label(self, image_id: str, reads: Counter[str]) -> Bytes:
        kept = self._kept.get(("label", image_id))
        if kept is not None:
            return kept
        if (cached := self._cached("label", image_id, reads)) is not None:
            return cached
        label = self._reduce(self._read_label(image_id, reads), Image.Resampling.NEAREST)
        return self._keep("label", image_id, label)

    def full_label(self, image_id: str) -> Bytes:
        """Label at its own size, uint8 [H, W], 0..C-1 or 255."""
        if self.downscale == 1:
            return self.label(image_id)
        if (cached := self._cached("full_label", image_id, self.label_reads)) is not None:
            return cached
        if (kept := self._kept.get(("full label", image_id))) is not None:
            return kept
        return self._keep("full label", image_id, self._read_label(image_id, self.label_reads))

    @property
    def kept_bytes(self) -> int:
        """Bytes of the decoded arrays this process keeps."""
        return sum(array.nbytes for array in self._kept.values())

    def _cached(self, kind: str, image_id: str, reads: Counter[str] | None = None) -> Bytes | None:
        found = None if self.cache is None else self.cache.get(kind, image_id)
        if found is not None and reads is not None:
            reads[image_id] += 1
        return found

    def _read_label(self, image_id: str, reads: Counter[str]) -> Bytes:
        path = self.spec.label_path(self.root, self.part, image_id)
        reads[image_id] += 1
        label = read_label(path, self.spec)
        image_path = self.spec.image_path(self.root, self.part, image_id)
        if image_id not in self._sizes:
            self._sizes[image_id] = read_size(image_path)
        check_pair(self._sizes[image_id], (label.shape[0], label.shape[1]), image_path, path)
        return label

    def _reduce(self, array: Bytes, resampling: Image.Resampling) -> Bytes:
        if self.downscale == 1:
            return array
        height, width = array.shape[:2]
        size = (max(1, width // self.downscale), max(1, height // self.downscale))
        return np.array(Image.fromarray(array).resize(size, resampling))

    def _keep(self, kind: str, image_id: str, array: Bytes) -> Bytes:
        if self.keep:
            self._kept[kind, image_id] = array
        return array

    def __getstate__(self) -> dict[str, object]:
        # Where loader processes are spawned, decoded images are not worth the pipe.
        return {**self.__dict__, "_kept": {}}


def _open(path: Path) -> Image.Image:
    try:
        return Image.open(path)
    except FileNotFoundError as error:
        raise FplError("no such file", where=str(path)) from error
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise _unreadable(path, error) from error


def _load(path: Path) -> tuple[Image.Image, str]:
    """The decoded image and the pixel format in the file."""
    with _open(path) as image:
        tiles = getattr(image, "tile", None)
        raw_mode = tiles[0].args if tiles else ""
        try:
            image.load()
        except (OSError, ValueError, SyntaxError, EOFError) as error:
            raise _unreadable(path, error) from error
    return image, raw_mode if isinstance(raw_mode, str) else ""


def _unreadable(path: Path, error: Exception) -> FplError:
    reason = str(error).replace(str(path), path.name).replace(repr(str(path)), path.name)
    return FplError(f"the image cannot be decoded ({reason})", where=str(path), hint="copy the file again")
