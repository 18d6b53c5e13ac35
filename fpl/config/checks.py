"""What a single field cannot know: contradictions between sections, doubtful choices, and what workers allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fpl.config.gates import gate_warnings

if TYPE_CHECKING:
    from fpl.config.schema import RunConfig

# The image-level pooling of the network and its dilated convolutions need at least this many pixels a side.
SMALLEST_CROP = 33
# Pixels of a step: fifty times those of the paper's largest.
MOST_PIXELS = 2**28


def problems(config: RunConfig) -> list[str]:
    """Contradictions between sections, the first of which is raised; each names the key and the way out."""
    data, loss, model = config.data, config.loss, config.model
    found = []
    if loss.kind == "fpl" and loss.strategy == "fixed" and loss.fixed_k > data.num_classes - 1:
        found.append(
            f"loss.fixed_k = {loss.fixed_k} leaves no negative class among data.num_classes = {data.num_classes}: "
            f"at most {data.num_classes - 1} is allowed"
        )
    if config.method.name != "supervised" and data.unlabeled_batch == 0:
        found.append(f"data.unlabeled_batch = 0: method {config.method.name} needs at least 1 unlabeled image a step")
    batches = {"labeled_batch": data.labeled_batch, "unlabeled_batch": data.unlabeled_batch}
    for key, size in batches.items():
        if size == 1 and model.norm == "batch":
            found.append(
                f"data.{key} = 1 with BatchNorm: the image-level pooling sees one value per channel. "
                f'Ways out: data.{key} = 2 or more, or model.norm = "frozen"'
            )
    if model.norm == "frozen" and model.pretrained == "none":
        found.append('model.norm = "frozen" needs model.pretrained = "imagenet": there are no statistics to freeze')
    for key, crop in {"data.crop": data.crop, "eval.crop": config.eval.crop or data.crop}.items():
        if min(crop) < SMALLEST_CROP:
            found.append(
                f"{key} = {list(crop)} is below {SMALLEST_CROP} x {SMALLEST_CROP}, the network's smallest input"
            )
    pixels = data.crop[0] * data.crop[1] * (data.labeled_batch + data.unlabeled_batch)
    if pixels > MOST_PIXELS:
        found.append(
            f"data.crop = {list(data.crop)} with data.labeled_batch + data.unlabeled_batch = "
            f"{data.labeled_batch + data.unlabeled_batch} is {pixels:,} pixels a step: at most {MOST_PIXELS:,}"
        )
    for key, size in batches.items():
        if data.groups is not None and size % data.groups:
            found.append(f"data.{key} = {size} is no multiple of data.groups = {data.groups}")
    if data.scale_sampling == "balanced" and not min(data.scales) <= 1 <= max(data.scales):
        found.append(f'data.scale_sampling = "balanced" needs scales on both sides of 1, not {list(data.scales)}')
    if data.split.holdout is not None and config.eval.subsample is not None:
        found.append(
            f"eval.subsample = {config.eval.subsample} draws from the validation part, but data.split.holdout = "
            f"{data.split.holdout} validates on labeled images instead: set one of the two"
        )
    return found + _ael_problems(config)


def _ael_problems(config: RunConfig) -> list[str]:
    method, data = config.method, config.data
    if method.name != "ael":
        return []
    found = []
    if method.copy_paste:
        outside = [number for number in method.paste_excluded if number >= data.num_classes]
        if outside:
            found.append(f"method.paste_excluded has {outside[0]}, but classes are 0 to {data.num_classes - 1}")
        elif len(method.paste_excluded) == data.num_classes:
            found.append("method.paste_excluded leaves no class to paste; for none set method.copy_paste = false")
        if not method.paste_scales[0] <= 1 <= method.paste_scales[1]:
            found.append(f"method.paste_scales = {list(method.paste_scales)} must enclose 1: half of the draws shrink")
    return found


def warnings_of(config: RunConfig) -> list[str]:
    """What is allowed but rarely meant, one sentence each."""
    found = []
    if config.method.name != "supervised" and config.method.weight == 0.0:
        found.append("method.weight = 0: the unlabeled images have no influence on this run")
    if config.loss.kind == "fpl" and config.loss.strategy == "n" and config.loss.balance:
        found.append("loss.balance with strategy n divides by a loss that is 0 wherever all classes are positive")
    if config.loss.kind == "fpl" and config.loss.strategy == "step" and config.data.num_classes < 4:
        found.append(f"loss.strategy = step starts at K = 3; {config.data.num_classes} classes cap it")
    if config.method.name == "ael":
        found += gate_warnings("method.confidence_gate", config.method.confidence_gate, config.loss)
    images = config.data.labeled_batch // (config.data.groups or 1)
    pixels = config.data.crop[0] * config.data.crop[1] * images
    if config.loss.supervised == "ohem" and pixels <= config.loss.ohem_min_kept:
        found.append(
            f"loss.ohem_min_kept = {config.loss.ohem_min_kept} keeps all of the {pixels} pixels of a group: "
            "ohem is plain cross-entropy here"
        )
    return found


def worker_problem(config: RunConfig, workers: int) -> str | None:
    """Why `workers` processes cannot share the global batch exactly, or None if they can."""
    sizes = {"labeled_batch": config.data.labeled_batch, "unlabeled_batch": config.data.unlabeled_batch}
    for key, size in sizes.items():
        if size % workers:
            return f"data.{key} = {size} cannot be shared equally by {workers} workers: {_divisors(size)} can"
    groups = config.data.groups or 1
    if groups % workers:
        return f"data.groups = {groups} cannot be shared equally by {workers} workers: {_divisors(groups)} can"
    return None


def _divisors(number: int) -> list[int]:
    return [count for count in range(1, number + 1) if number % count == 0]
