"""Pictures of the table `examples`: arrays as rows and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

SCORES = ("vanilla_score", "fuzzy_score")
MAPS = ("ground_truth", "prediction", "k")
KINDS = ("image", *MAPS, *SCORES)


def encode(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of `examples` whose picture is an `array`, as the table holds it: `height`, `width`, `data`.

    Args:
        row: `kind` and `array`, beside any other columns. `array` is uint8 [h, w, 3] of an image, float16 [h, w] of a
            score and uint8 [h, w] of everything else.

    Raises:
        ValueError: An unknown kind, or an array of another type or shape; a programming error.
    """
    array, kind = np.asarray(row["array"]), row["kind"]
    if kind not in KINDS:
        raise ValueError(f"no kind of picture {kind!r}; there are {', '.join(KINDS)}")
    shape = (*array.shape[:2], 3) if kind == "image" else array.shape[:2]
    if array.dtype != _dtype(kind) or array.shape != shape or len(array.shape) < 2:
        raise ValueError(f"a picture of kind {kind} cannot be {array.dtype} {array.shape}")
    rest = {name: value for name, value in row.items() if name != "array"}
    return {**rest, "height": array.shape[0], "width": array.shape[1], "data": array.tobytes()}


def decode(kind: str, height: int, width: int, data: bytes) -> np.ndarray:
    """The array that `encode` was given; it cannot be written to.

    Raises:
        ValueError: As many bytes as no such picture has.
    """
    shape = (height, width, 3) if kind == "image" else (height, width)
    return np.frombuffer(data, dtype=_dtype(kind)).reshape(shape)


def _dtype(kind: str) -> np.dtype[Any]:
    return np.dtype(np.float16 if kind in SCORES else np.uint8)
