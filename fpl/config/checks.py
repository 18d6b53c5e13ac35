"""What is no contradiction but has to be said: doubtful choices, and what workers allow."""

from __future__ import annotations

from fpl.config.schema import RunConfig


def warnings_of(config: RunConfig) -> list[str]:
    """What is allowed but rarely meant, one sentence each."""
    found = config.method.warnings(config) if config.method.unlabeled else []
    if config.loss.kind == "fpl" and config.loss.strategy == "n" and config.loss.balance:
        found.append("loss.balance with strategy n divides by a loss that is 0 wherever all classes are positive")
    if config.loss.kind == "fpl" and config.loss.strategy == "step" and config.data.num_classes < 4:
        found.append(f"loss.strategy = step starts at K = 3; {config.data.num_classes} classes cap it")
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
