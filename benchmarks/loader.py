"""How many training samples per second one core prepares at the size of Cityscapes, in four ways.

Writes PNGs of 2048x1024 with mild noise (about 3 MB each) and their labels to a temporary folder, then prepares the
same samples (scale 0.5 to 2, crop 800x800, flip) in four ways that take turns, in this one process on one thread:

    a  the released order: decode, flip, resize the whole image, normalise it to float32, crop
    b  the peer way: PIL decodes, torchvision v2 flips, resizes, crops and pads; uint8, normalised on the device
    c  decode, then resize only what the crop shows (this suite without a cache)
    d  the same from the cache of decoded images (this suite with `fpl data cache`)

    python benchmarks/loader.py [--images 4] [--rounds 12] [--csv results/benchmarks/loader.csv]
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import PIL
import torch
from PIL import Image

from fpl.config.sections import DataConfig
from fpl.data.augment import FOR_SAMPLE, Augmentation, Parameters, _window, normalise, seeded
from fpl.data.build_cache import build_cache, plan_cache
from fpl.data.cache import open_cache
from fpl.data.images import Images
from fpl.data.spec import get_spec
from fpl.files import write_atomic

SIZE, CROP = (1024, 2048), (800, 800)
WAYS = {
    "a": "released order, PIL + torch, float32",
    "b": "peer: PIL + torchvision v2",
    "c": "decode + crop first",
    "d": "cache + crop first",
}
SPEC = get_spec("synthetic_city")


def write_images(root: Path, count: int) -> None:
    """Smooth colours with noise of one grey level, and labels in blocks: what PNGs of street scenes weigh."""
    random = np.random.default_rng(0)
    for part, number in [("train", number) for number in range(count)] + [("val", 0)]:
        small = random.integers(0, 256, (SIZE[0] // 16, SIZE[1] // 16, 3), dtype=np.uint8)
        smooth = np.asarray(Image.fromarray(small).resize(SIZE[::-1], Image.Resampling.BICUBIC), dtype=np.int16)
        image = np.clip(smooth + random.integers(-1, 2, smooth.shape), 0, 255).astype(np.uint8)
        label = random.integers(0, SPEC.num_classes, (SIZE[0] // 32, SIZE[1] // 32), dtype=np.uint8)
        image_id = f"town_{number:06d}_000019"
        image_path = Path(next(SPEC.layout.image_candidates(root, part, image_id)))
        for path, array in (
            (image_path, image),
            (SPEC.label_path(root, part, image_id), label.repeat(32, 0).repeat(32, 1)),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(array).save(path)


def released(augmentation: Augmentation, image: np.ndarray, label: np.ndarray, parameters: Parameters) -> None:
    """Everything on the whole image and in float32 before the crop."""
    from torchvision.transforms.v2 import functional as F

    pixels, classes = torch.from_numpy(image).permute(2, 0, 1), torch.from_numpy(label)[None]
    if parameters.flip:
        pixels, classes = pixels.flip(-1), classes.flip(-1)
    size = [int(side * parameters.scale) for side in SIZE]
    pixels = F.resize(pixels, size, antialias=False)
    classes = F.resize(classes, size, interpolation=F.InterpolationMode.NEAREST)
    floats = normalise(pixels, torch.ones(size, dtype=torch.bool))
    (top, rows, above), (left, columns, before) = (
        _window(side, crop, place)
        for side, crop, place in zip(size, CROP, (parameters.top, parameters.left), strict=True)
    )
    padding = [before, above, CROP[1] - columns - before, CROP[0] - rows - above]
    F.pad(F.crop(floats, top, left, rows, columns), padding, fill=0).contiguous()
    F.pad(F.crop(classes, top, left, rows, columns), padding, fill=255).contiguous()


def samplers(root: Path, augmentation: Augmentation) -> dict[str, Callable[[str, Parameters], object]]:
    """The four ways, each a function of an image id and drawn parameters."""
    files = Images(SPEC, root, "train", keep=False)
    cache = open_cache(SPEC, root, "train")
    assert cache is not None
    cached = Images(SPEC, root, "train", cache=cache)
    return {
        "a": lambda i, p: released(augmentation, files.image(i), files.label(i), p),
        "b": lambda i, p: augmentation.apply_whole(files.image(i), files.label(i), p),
        "c": lambda i, p: augmentation.apply(files.image(i), files.label(i), p),
        "d": lambda i, p: augmentation.apply(cached.image(i), cached.label(i), p),
    }


def measure(root: Path, rounds: int, sampling: str) -> dict[str, list[float]]:
    """Seconds of CPU per sample; in a round all ways prepare the same sample, in changing order."""
    ids = SPEC.list_ids(root, "train")
    scales = (0.5, 0.75, 1.0, 1.5, 1.75, 2.0) if sampling == "choice" else (0.5, 2.0)
    data = {"dataset": SPEC.name, "num_classes": SPEC.num_classes, "split": {"fraction": "1/2"}, "labeled_batch": 1}
    augmentation = Augmentation(DataConfig(**data, crop=CROP, scales=scales, scale_sampling=sampling))
    ways = samplers(root, augmentation)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(-len(ids), rounds * len(ids)):
        parameters = augmentation.draw(seeded(0, FOR_SAMPLE, 0, number + len(ids)))
        names = list(ways)
        names = names[number % 4 :] + names[: number % 4]
        for name in names:
            began = time.process_time()
            ways[name](ids[number % len(ids)], parameters)
            # The first pass over the images warms caches and does not count.
            if number >= 0:
                seconds[name].append(time.process_time() - began)
    return seconds


def machine() -> str:
    """Processor and libraries."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else []
    name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"{name}, {os.cpu_count()} cores, torch {torch.__version__}, Pillow {PIL.__version__}, 1 thread"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=12, help="passes over the images")
    parser.add_argument("--csv", type=Path, help="write the table here")
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.pop("FPL_CACHE", None)
    table = [["scales", "way", "what", "ms_median", "ms_mean", "images_per_second", "times_b"]]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "synthetic_city"
        write_images(root, options.images)
        weight = statistics.mean(path.stat().st_size for path in root.rglob("train/**/*_leftImg8bit.png"))
        print(f"{machine()}\n{options.images} PNGs of 2048x1024, {weight / 1e6:.1f} MB each; CPU time, warm page cache")
        build_cache(plan_cache(SPEC, root, "val"))
        plan = plan_cache(SPEC, root, "train")
        began = time.process_time()
        build_cache(plan)
        build = (time.process_time() - began) / options.images
        for sampling in ("choice", "uniform"):
            seconds = measure(root, options.rounds, sampling)
            peer = statistics.median(seconds["b"])
            for name, what in WAYS.items():
                middle, mean = statistics.median(seconds[name]), statistics.mean(seconds[name])
                row = [f"{middle * 1e3:.1f}", f"{mean * 1e3:.1f}", f"{1 / middle:.1f}", f"{peer / middle:.1f}"]
                table.append([sampling, name, what, *row])
        table.append(
            ["", "build", "building the cache", f"{build * 1e3:.1f}", f"{build * 1e3:.1f}", f"{1 / build:.1f}", ""]
        )
    for row in table:
        print(f"{row[0]:8} {row[1]:6} {row[2]:38} {row[3]:>10} {row[4]:>8} {row[5]:>18} {row[6]:>8}")
    if options.csv is not None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(
            [[*table[0], "machine"], *([*row, machine()] for row in table[1:])]
        )
        write_atomic(options.csv, text.getvalue().encode())


if __name__ == "__main__":
    main()
