"""Class maps and colour overlays for a folder of images."""

from __future__ import annotations

import difflib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from fpl.data.read import read_image
from fpl.data.spec import DatasetSpec
from fpl.errors import FplError
from fpl.files import write_atomic
from fpl.train.progress import Progress
from fpl.train.trained import Trained

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
# Share of the class colour in an overlay.
OPACITY = 0.5
# Overlays of images smaller than this are enlarged by a whole factor: they are made to be looked at.
LEAST_SIDE = 240


def predict_folder(trained: Trained, images: Path, to: Path) -> int:
    """Predict every image of a folder (or one image) and write three things per image and one legend.

    `NAME.png` is the class map (palette PNG, indices are class ids, size of the image), `NAME_overlay.png` the image
    under its colours, `legend.png` names the colours.

    Args:
        trained: The network.
        images: Folder whose images, also those in folders below it, are predicted; or one image.
        to: Folder for the results; made if missing.

    Returns:
        Number of images predicted.

    Raises:
        FplError: No image there, two images of the same name, or one that cannot be read.
    """
    if to.resolve().is_relative_to(images.resolve()):
        raise FplError("the results would lie among the images", where=str(to), hint="give another folder")
    names = _images_in(images)
    progress = Progress(len(names), unit="image")
    for done, (name, path) in enumerate(names.items(), start=1):
        image = read_image(path)
        classes = _classes(trained, image)
        _save(to / f"{name}.png", palette_image(classes, trained.spec))
        _save(to / f"{name}_overlay.png", overlay(image, classes, trained.spec))
        progress.show(done)
    progress.note()
    _save(to / "legend.png", legend(trained.spec))
    return len(names)


def _images_in(images: Path) -> dict[Path, Path]:
    """Image files by their name below the folder, without suffix."""
    if images.is_file():
        return {Path(images.stem): images}
    if not images.is_dir():
        there = sorted(path.name for path in images.parent.iterdir()) if images.parent.is_dir() else []
        near = difflib.get_close_matches(images.name, there, n=1)
        hint = f"did you mean {images.parent / near[0]}?" if near else f"{images.parent} holds {len(there)} entries"
        raise FplError("no such folder or image", where=str(images), hint=hint)
    found: dict[Path, Path] = {}
    for path in sorted(images.rglob("*")):
        if path.suffix.lower() not in SUFFIXES:
            continue
        name = path.relative_to(images).with_suffix("")
        if name in found:
            raise FplError(f"two images are called {name}", where=str(images), hint="rename one of them")
        found[name] = path
    if not found:
        raise FplError("no image in this folder", where=str(images), hint=f"looked for {', '.join(SUFFIXES)}")
    return found


def _classes(trained: Trained, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    height, width = image.shape[:2]
    factor = trained.config.data.downscale
    reduced = Image.fromarray(image)
    if factor > 1:
        # The network was trained on images reduced in this way.
        reduced = reduced.resize((max(1, width // factor), max(1, height // factor)), Image.Resampling.BILINEAR)
    pixels = torch.from_numpy(np.array(reduced)).permute(2, 0, 1).contiguous()
    return trained.classes(pixels, (height, width)).to(torch.uint8).cpu().numpy()


def palette_image(classes: NDArray[np.uint8], spec: DatasetSpec) -> Image.Image:
    """A class map `[H, W]` as a palette image whose indices are the class ids."""
    image = Image.fromarray(classes)
    image.putpalette([int(value) for colour in spec.palette for value in colour])
    return image


def overlay(image: NDArray[np.uint8], classes: NDArray[np.uint8], spec: DatasetSpec) -> Image.Image:
    """The image `[H, W, 3]` blended with its class colours, enlarged if it is small."""
    colours = np.array(spec.palette, dtype=np.float32)[classes]
    blended = Image.fromarray((image * (1 - OPACITY) + colours * OPACITY).astype(np.uint8))
    factor = max(1, LEAST_SIDE // min(blended.size))
    return blended.resize((blended.width * factor, blended.height * factor), Image.Resampling.NEAREST)


def legend(spec: DatasetSpec) -> Image.Image:
    """One line per class: its colour, number and name."""
    row = 18
    picture = Image.new("RGB", (180, row * spec.num_classes), "white")
    draw = ImageDraw.Draw(picture)
    for index, (name, colour) in enumerate(zip(spec.class_names, spec.palette, strict=True)):
        top = index * row
        draw.rectangle((2, top + 2, 30, top + row - 3), fill=tuple(colour), outline="black")
        draw.text((38, top + 3), f"{index}  {name}", fill="black")
    return picture


def _save(path: Path, image: Image.Image) -> None:
    write_atomic(path, lambda file: image.save(file, format="PNG"))
