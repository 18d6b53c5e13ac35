"""Class annotations of SBD, which labels the training images of VOC 2012 that VOC itself does not."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from fpl.config.classes import IGNORE
from fpl.data.read import Bytes
from fpl.data.spec import DatasetSpec
from fpl.errors import FplError
from fpl.text import enumerate_briefly

BORDER = (224, 224, 192)
"""Colour of the pixels to ignore in VOC's own files."""

_AGAIN = "is this benchmark.tgz of SBD, undamaged? fpl data download voc fetches it"


def read_annotation(content: bytes, where: str) -> Bytes:
    """The label in an SBD annotation (Hariharan et al., ICCV 2011), `cls/<id>.mat`: uint8 [H, W], 0..20.

    Args:
        content: The bytes of the file.
        where: Its place, for errors.

    Raises:
        FplError: It is not a MATLAB 5 file whose struct `GTcls` has such a `Segmentation`.
    """
    # Imported late: no other command that imports this module needs it.
    from scipy.io import loadmat

    try:
        values = np.asarray(loadmat(io.BytesIO(content), variable_names=["GTcls"])["GTcls"]["Segmentation"][0, 0])
    except Exception as error:
        # Broken files make the reader raise whatever it pleases.
        reason = f"{type(error).__name__}: {error}"
        raise FplError(f"cannot be read as an SBD annotation ({reason})", where=where, hint=_AGAIN) from error
    if values.ndim != 2 or values.dtype.kind not in "ui":
        what = f"Segmentation is {values.dtype} {list(values.shape)}, not a matrix of class indices"
        raise FplError(what, where=where, hint=_AGAIN)
    if foreign := sorted({int(value) for value in np.unique(values)} - set(range(21))):
        what = f"values that are no class of VOC: {enumerate_briefly(foreign)}"
        raise FplError(what, where=where, hint="SBD's class annotations hold 0..20")
    return values.astype(np.uint8)


def label_png(label: Bytes, spec: DatasetSpec) -> bytes:
    """A label file as VOC's own: PNG of class indices, uint8 [H, W], with the palette of the data set."""
    image = Image.fromarray(label)
    colours = [*spec.palette, *[(0, 0, 0)] * (IGNORE - len(spec.palette)), BORDER]
    image.putpalette([channel for colour in colours for channel in colour])
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()
