"""Class maps and colour overlays for a folder of images."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from PIL.PngImagePlugin import PngInfo

from fpl.data.lists import duplicates
from fpl.data.names import bounded, check_utf8, normal
from fpl.data.read import read_header, read_upright
from fpl.data.spec import DatasetSpec
from fpl.errors import FplError, file_error
from fpl.files import check_output, check_regular, is_hidden, remove_left_overs, write_atomic
from fpl.text import enumerate_briefly, one_line, plural
from fpl.train.progress import Progress
from fpl.train.trained import Trained, reduced

# The last two are refused by name, where silence would pass for done.
SUFFIXES = (".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".webp", ".tif", ".tiff")
# Share of the class colour in an overlay.
OPACITY = 0.5
# Overlays of images smaller than this are enlarged by a whole factor: they are made to be looked at.
LEAST_SIDE = 240
# And no further than to this: one row of pixels makes no picture of millions.
MOST_SIDE = 4096
# Several processes may write to a folder; what none has touched for so long is of one that was killed.
IDLE_SECONDS = 600
LEGEND = Path("legend.png")
# In every file that is written: what has it may be written again.
MARK = ("Software", "fpl predict")
# So many images of one fault are named, and so many faults; of the others the number is told.
NAMED = 100


def predict_folder(trained: Trained, images: Path, to: Path) -> int:
    """Predict every image of a folder (or one image) and write three things per image and one legend.

    `NAME.png` is the class map (palette PNG, indices are class ids, size of the image), `NAME_overlay.png` the image
    under its colours, `legend.png` names the colours. Images are turned as their EXIF orientation says, and what is
    written has that size.

    Args:
        trained: The network.
        images: Folder whose images, also those in folders below it, linked ones too, are predicted; or one image.
        to: Folder for the results; made if missing.

    Returns:
        Number of images predicted.

    Raises:
        FplError: No image there, results that would overwrite one another, images that cannot be read (by their headers
            all of them, before anything is predicted), or a network whose logits mean nothing.
    """
    if to.resolve().is_relative_to(images.resolve()):
        raise FplError("the results would lie among the images", where=str(to), hint="give another folder")
    names, others = _images_in(images)
    check_outputs(names, to)
    check_images(names, images)
    check_output(to / LEGEND)
    for folder in {(to / output).parent for name in (*names, LEGEND) for output in outputs_of(name)}:
        remove_left_overs(folder, IDLE_SECONDS)
    progress, turned = Progress(len(names), unit="image"), 0
    for done, (name, path) in enumerate(names.items(), start=1):
        image, was_turned = read_upright(path)
        turned += was_turned
        try:
            classes = _classes(trained, image)
        except FplError as error:
            raise FplError(f"of {one_line(str(path))} {error.what}", where=error.where, hint=error.hint) from error
        label, covered = (to / output for output in outputs_of(name))
        _save(label, palette_image(classes, trained.spec))
        _save(covered, overlay(image, classes, trained.spec))
        progress.show(done)
    if others:
        told = enumerate_briefly([one_line(str(path.relative_to(images))) for path in others], 3)
        progress.note(f"left out: {plural(len(others), 'file')} whose ending is no image's: {told}")
    progress.note(f"{turned} images were turned upright, as their EXIF orientation says" if turned else "")
    _save(to / LEGEND, legend(trained.spec))
    return len(names)


def outputs_of(name: Path) -> tuple[Path, Path]:
    """Class map and overlay of an image by its name below the folder; parts that are too long end with a digest."""
    parts = [bounded(part) for part in name.parts[:-1]]
    return Path(*parts, bounded(name.name, ".png")), Path(*parts, bounded(name.name, "_overlay.png"))


def check_outputs(names: Mapping[Path, Path], to: Path) -> None:
    """Refuse images whose results would overwrite one another, or what is none; nothing has been written then.

    Args:
        names: Name below the folder -> image.
        to: Folder for the results.

    Raises:
        FplError: Names all of them.
    """
    sources: dict[str, list[str]] = {str(LEGEND): ["the legend"]}
    for name, path in names.items():
        for output in outputs_of(name):
            # Disks that do not tell capitals apart, or forms of a letter, would overwrite as well.
            sources.setdefault(normal(str(output)).casefold(), []).append(path.name)
    faults = [f"{output} would hold {' and '.join(of)}" for output, of in sources.items() if len(of) > 1]
    faults += [
        f"{folder} would be a file and a folder"
        for folder in sorted({str(parent) for output in sources for parent in Path(output).parents} & sources.keys())
    ]
    images = {path.resolve() for path in names.values()}
    written = [to / output for name in names for output in outputs_of(name)] + [to / LEGEND]
    faults += [f"{path} is an image itself" for path in written if path.resolve() in images]
    if faults:
        what = f"results would overwrite one another: {enumerate_briefly(faults, 5)}"
        raise FplError(what, where=str(to), hint="rename these images, or predict them into folders of their own")
    # Labels are often called as their images are.
    foreign = [str(path.relative_to(to)) for path in written if path.is_file() and not _is_ours(path)]
    if foreign:
        what = f"holds {plural(len(foreign), 'file')} that fpl predict has not written and would overwrite"
        hint = "name another folder, or move these away (class maps of before have no mark of predict's yet)"
        raise FplError(f"{what}: {enumerate_briefly(foreign, 5)}", where=str(to), hint=hint)


def check_images(names: Mapping[Path, Path], images: Path) -> None:
    """Look at the headers of all images, and refuse those that are none or are not taken.

    Args:
        names: Name below the folder -> image.
        images: The folder, or the one image.

    Raises:
        FplError: Counts and names all of them, those with the same fault together.
    """
    faults: dict[str, list[str]] = {}
    hints: dict[str, None] = {}
    for path in names.values():
        try:
            read_header(path)
        except FplError as error:
            if path == images:
                raise
            faults.setdefault(error.what, []).append(str(path.relative_to(images)))
            hints[error.hint] = None
    if faults:
        count = sum(map(len, faults.values()))
        lines = [f"{len(bad)}: {what}: {enumerate_briefly(bad, NAMED)}" for what, bad in faults.items()]
        more = [f"and {len(lines) - NAMED} more faults"] if len(lines) > NAMED else []
        said = f"{count} of {len(names)} images cannot be read, and none was predicted"
        what = "\n    ".join([said, *lines[:NAMED], *more])
        raise FplError(what, where=str(images), hint="; ".join(filter(None, hints)))


def _images_in(images: Path) -> tuple[dict[Path, Path], list[Path]]:
    """Image files by their name below the folder, without suffix, and the other files; hidden files are neither."""
    check_utf8([str(images)], images.parent)
    if images.is_file():
        return {Path(images.stem): images}, []
    check_regular(images)
    if not images.is_dir():
        # A link to nothing is there, and is not what was meant.
        there = (
            sorted({path.name for path in images.parent.iterdir()} - {images.name}) if images.parent.is_dir() else []
        )
        near = difflib.get_close_matches(images.name, there, n=1)
        hint = f"did you mean {images.parent / near[0]}?" if near else f"{images.parent} holds {len(there)} entries"
        raise FplError("no such folder or image", where=str(images), hint=hint)
    found = _files_below(images)
    files = [path for path in found if path.suffix.lower() in SUFFIXES]
    if not files:
        raise FplError("no image in this folder", where=str(images), hint=f"looked for {', '.join(SUFFIXES)}")
    below = [path.relative_to(images) for path in files]
    check_utf8(map(str, below), images)
    twice = duplicates([str(path.with_suffix("")) for path in below])
    if twice:
        what = f"two images are called {enumerate_briefly(twice)}"
        raise FplError(what, where=str(images), hint="rename one of them")
    names = {name.with_suffix(""): path for name, path in zip(below, files, strict=True)}
    return names, [path for path in found if path.suffix.lower() not in SUFFIXES]


def _refuse(error: OSError) -> None:
    raise file_error(error) from error


def _files_below(folder: Path) -> list[Path]:
    """Files that are not hidden, sorted, in folders that are linked too: data are often put together of links."""
    found, seen = list[Path](), set[Path]()
    for place, folders, files in os.walk(folder, onerror=_refuse, followlinks=True):
        # A link may lead to a folder above it, or two to the same.
        real = Path(place).resolve()
        folders[:] = [] if real in seen else sorted(name for name in folders if not is_hidden(name))
        found += [] if real in seen else [Path(place, name) for name in files if not is_hidden(name)]
        seen.add(real)
    return sorted(found)


def _classes(trained: Trained, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    pixels = reduced(image, trained.config.data.downscale)
    height, width = image.shape[:2]
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
    factor = max(1, min(LEAST_SIDE // min(blended.size), MOST_SIDE // max(blended.size)))
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
    about = PngInfo()
    about.add_text(*MARK)
    write_atomic(path, lambda file: image.save(file, format="PNG", pnginfo=about))


def _is_ours(path: Path) -> bool:
    """Whether a file is one that `fpl predict` wrote."""
    try:
        with Image.open(path) as image:
            return image.info.get(MARK[0]) == MARK[1]
    except (OSError, ValueError, SyntaxError):
        return False
