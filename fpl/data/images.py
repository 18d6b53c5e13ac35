"""The images and labels of a data set by their ids."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
from PIL import Image

from fpl.data.cache import Cache
from fpl.data.read import Bytes, Header, check_pair, read_header, read_image, read_label
from fpl.data.spec import DatasetSpec
from fpl.errors import FplError


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
        self._headers: dict[str, Header] = {}

    def image(self, image_id: str) -> Bytes:
        """Reduced image, uint8 [h, w, 3]."""
        kept = self._kept.get(("image", image_id))
        if kept is not None:
            return kept
        if (cached := self._cached("image", image_id)) is not None:
            return cached
        image = read_image(self.spec.image_path(self.root, self.part, image_id))
        return self._keep("image", image_id, self._reduce(image, Image.Resampling.BILINEAR))

    def label(self, image_id: str) -> Bytes:
        """Reduced label, uint8 [h, w], 0..C-1 or 255."""
        return self._label(image_id, self.label_reads)

    def truth(self, image_id: str) -> Bytes | None:
        """Reduced label of an image that training must not learn from, for diagnostics; None where there is no file.

        Raises:
            FplError: The file is damaged; says how to train without reading it.
        """
        if not self.spec.has_label(self.root, self.part, image_id):
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
        if (kept := self._kept.get(("full_label", image_id))) is not None:
            return kept
        return self._keep("full_label", image_id, self._read_label(image_id, self.label_reads))

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
        # Once per file: opening it again takes a while where labels are read again and again.
        if image_id not in self._headers:
            self._headers[image_id] = read_header(image_path)
        check_pair(self._headers[image_id], (label.shape[0], label.shape[1]), image_path, path)
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
