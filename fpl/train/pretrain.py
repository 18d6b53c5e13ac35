"""Pre-training of the tiny backbone on drawn textures: what ImageNet weights are to a ResNet, for networks that small.

The file goes through the same code as any other weights file: found by its name, pinned by its SHA-256.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fpl.config.defaults import MOST_CHANNELS, MOST_DEPTH, MOST_SEED
from fpl.config.sections import ModelConfig, OptimConfig
from fpl.config.weights import CHECKSUM_SUFFIX, weights_file_names
from fpl.data.augment import normalise
from fpl.data.textures import TEXTURE_CLASSES, TextureSource
from fpl.errors import FplError
from fpl.files import check_regular, write_atomic
from fpl.losses import cross_entropy
from fpl.methods.optimizers import sgd
from fpl.models import SegmentationNetwork, build_network
from fpl.models.foreign import seems

STEPS = 200
_BATCH = 16
_OPTIM = OptimConfig(lr=0.1)


def pretrain_tiny(
    folder: Path,
    *,
    width: int = 16,
    depth: int = 1,
    seed: int = 0,
    steps: int = STEPS,
    progress: Callable[[int, float], None] | None = None,
) -> Path:
    """Train a tiny backbone to tell textures apart and write it, unless the same file is there already.

    Runs on one CPU thread, so that on one machine the same arguments give the same bytes.

    Args:
        folder: Folder of weights files; made if missing.
        width: `model.tiny_width` of the networks that will use it.
        depth: Their `model.tiny_depth`.
        seed: Seed of weights and textures.
        steps: Length; the default takes about a quarter of a minute.
        progress: Called with (steps taken, pixel accuracy of the step in 0..1).

    Returns:
        The file (`fpl.config.weights.tiny_file_name`): the backbone's state dict and how it was made. Its checksum
        stands beside it, `.sha256`.

    Raises:
        FplError: A file made in another way stands there, or a number is outside of its limits.
    """
    if not (8 <= width <= MOST_CHANNELS and 1 <= depth <= MOST_DEPTH and steps >= 1 and 0 <= seed <= MOST_SEED):
        what = f"width {width}, depth {depth}, steps {steps}, seed {seed}"
        limits = f"width 8 to {MOST_CHANNELS}, depth 1 to {MOST_DEPTH}, 1 step or more, seed 0 to {MOST_SEED}"
        raise FplError(what, hint=limits)
    model = ModelConfig(
        backbone="tiny", pretrained="none", tiny_width=width, tiny_depth=depth,
        aspp_rates=(1, 2, 3), head_channels=32, low_level_channels=16,
    )  # fmt: skip
    path = folder / weights_file_names(model)[0]
    about: dict[str, Any] = {
        "made_by": "fpl pretrain tiny", "width": width, "depth": depth, "seed": seed, "steps": steps,
    }  # fmt: skip
    if _is_made(path, about):
        return path
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = build_network(model, TEXTURE_CLASSES)
            _train(network, TextureSource(seed), steps, progress)
    finally:
        torch.set_num_threads(threads)
    # By way of memory: in a file, the archive would be named after the temporary file.
    buffer = io.BytesIO()
    torch.save({"state_dict": network.backbone.state_dict(), "about": about}, buffer)
    content = buffer.getvalue()
    # The checksum first: a kill between the two leaves no file without one.
    record = f"{hashlib.sha256(content).hexdigest()}  {path.name}\n"
    write_atomic(path.with_name(path.name + CHECKSUM_SUFFIX), record.encode())
    write_atomic(path, content)
    return path


def _is_made(path: Path, about: dict[str, Any]) -> bool:
    """Whether the file at `path` was made with these parameters; refuses another one."""
    if not path.exists():
        return False
    check_regular(path)
    hint = "remove it, or choose another folder"
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can raise anything
        kind, _ = seems(path)
        what = f"cannot be read{f': it {kind}' if kind else f' ({type(error).__name__})'}"
        raise FplError(what, where=str(path), hint=hint) from error
    made = found.get("about") if isinstance(found, dict) else None
    if not isinstance(made, dict):
        raise FplError("a weights file that was not made by this command", where=str(path), hint=hint)
    if differing := [key for key in about if made.get(key) != about[key]]:
        pairs = ", ".join(f"{key} = {made.get(key)} there, {about[key]} wanted" for key in differing)
        raise FplError(f"weights made in another way: {pairs}", where=str(path), hint=hint)
    return True


def _train(
    network: SegmentationNetwork, source: TextureSource, steps: int, progress: Callable[[int, float], None] | None
) -> None:
    optimizer = sgd([network], _OPTIM)
    for step in range(steps):
        image, label = source.batch(_BATCH)
        label = label[:, 2::4, 2::4]
        embedding = network.decode(network.encode(normalise(image, torch.ones(1, 1, dtype=torch.bool))))
        logits = network.classify(embedding, label.shape[-2:])
        loss, _ = cross_entropy(logits, label)
        optimizer.set_rate(step, steps)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if progress is not None:
            progress(step + 1, float((logits.argmax(1) == label).float().mean()))
