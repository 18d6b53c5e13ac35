"""The embedded data set: a drawn city in the official Cityscapes tree, so that everything runs without a download."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from fpl.data.scene import draw_scene
from fpl.data.spec import DRAWING_RECORD, SPECS
from fpl.errors import FplError

# Raised when the drawing itself changes: results on other images are other results.
DRAWING = 1

_CITIES = {
    "train": ("alderbrook", "birchwick", "cedarholm", "dunmarsh", "elmcastle", "fernhaven", "greywater", "hollowgate"),
    "val": ("ivybridge", "juniperton"),
}
# Frame number at which Cityscapes annotates each sequence.
_FRAME = 19


def draw_city(
    root: Path,
    *,
    train: int = 320,
    validation: int = 100,
    size: tuple[int, int] = (64, 128),
    seed: int = 0,
    separation: float = 2.5,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Draw street scenes with the 19 Cityscapes classes below `root`, unless they are there already.

    The tree is drawn beside `root` and renamed when it is complete. An image is a function of seed, part, number,
    size and separation alone.

    Args:
        root: Root folder of the data set, usually `<data root>/synthetic_city`.
        train: Number of training images.
        validation: Number of validation images.
        size: Height and width in pixels.
        seed: Seed of the drawing.
        separation: Distance between the colours of similar classes: 1 hard, 3 easy.
        progress: Called with (images drawn, images in all).

    Returns:
        `root`.

    Raises:
        FplError: `root` holds a tree with other parameters, or something else.
    """
    parameters = {
        "drawing": DRAWING,
        "train": train,
        "validation": validation,
        "size": list(size),
        "seed": seed,
        "separation": separation,
    }
    if min(train, validation) < 1 or min(size) < 1:
        raise FplError(f"nothing to draw: {parameters}", hint="at least one image per part and one pixel a side")
    if _is_complete(root, parameters):
        return root
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{root.name}-", dir=root.parent) as temporary:
        tree = Path(temporary) / "tree"
        done = 0
        for part, count in (("train", train), ("val", validation)):
            for number in range(count):
                _draw_one(tree, part, number, size, seed, separation)
                done += 1
                if progress is not None:
                    progress(done, train + validation)
        (tree / DRAWING_RECORD).write_text(json.dumps(parameters, indent=2) + "\n", encoding="utf-8")
        try:
            tree.rename(root)
        except OSError:
            # Another process was faster, which is fine if it drew the same.
            if not _is_complete(root, parameters):
                raise
    return root


def _is_complete(root: Path, parameters: dict[str, object]) -> bool:
    """Whether `root` holds exactly this drawing; refuses anything else in its place."""
    if not root.exists() or (root.is_dir() and not any(root.iterdir())):
        return False
    record = root / DRAWING_RECORD
    if not record.is_file():
        raise FplError("the folder holds something else than a drawn city", where=str(root), hint="use another folder")
    found = json.loads(record.read_text(encoding="utf-8"))
    differing = [key for key in parameters if found.get(key) != parameters[key]]
    if differing:
        pairs = ", ".join(f"{key} = {found.get(key)} there, {parameters[key]} wanted" for key in differing)
        hint = "delete the folder to draw it again, or use another data root"
        raise FplError(f"a city with other parameters stands here: {pairs}", where=str(root), hint=hint)
    return True


def _draw_one(tree: Path, part: str, number: int, size: tuple[int, int], seed: int, separation: float) -> None:
    spec, cities = SPECS["synthetic_city"], _CITIES[part]
    image_id = f"{cities[number % len(cities)]}_{number // len(cities):06d}_{_FRAME:06d}"
    key = np.random.SeedSequence((seed, list(_CITIES).index(part), number))
    image, label = draw_scene(np.random.default_rng(key), size, separation)
    (image_path,) = spec.layout.image_candidates(tree, part, image_id)
    label_path = spec.label_path(tree, part, image_id)
    for path, array in ((image_path, image), (label_path, label)):
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(array).save(path, compress_level=1)
