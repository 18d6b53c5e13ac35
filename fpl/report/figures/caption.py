"""Captions: what is seen, then the settings of the runs and how much is behind each point, taken from the runs."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from fpl.config.figure import Figure
from fpl.config.schema import RunConfig
from fpl.config.sections import LossConfig
from fpl.report.figures.frames import POINTS
from fpl.report.figures.series import Source
from fpl.store.lookup import number
from fpl.text import plural


def caption(figure: Figure, source: Source, frame: pd.DataFrame) -> str:
    """The caption of a drawn figure as plain text, without its number.

    Args:
        figure: The figure.
        source: Its runs.
        frame: The numbers behind it.
    """
    parts = [figure.figure.caption, settings(source), amount(source, frame), _absent(source)]
    return " ".join(part for part in parts if part)


def settings(source: Source) -> str:
    """What all runs of a figure have in common; empty for a figure without runs."""
    configs = [item.cell.configs[0] for item in source.drawn]
    if not configs:
        return ""
    scale = source.campaign.scale_name
    words = [text for part in zip(*map(_words, configs), strict=True) if (text := _common(part))]
    images = {number(record, "labeled_images") for record in source.records}
    fraction = _common([config.data.split.fraction for config in configs])
    if fraction:
        count = images.pop() if len(images) == 1 else None
        words.insert(1, f"{fraction} labeled" + (f" ({count:,.0f} images)" if count is not None else ""))
    return f"Settings: {', '.join(words)}; scale {scale}."


def amount(source: Source, frame: pd.DataFrame) -> str:
    """How many runs, steps and pixels or images the numbers come from; empty for a figure without runs."""
    if not source.records:
        return ""
    if "image_id" in frame:
        images = frame["image_id"].nunique()
        return f"n = {plural(images, 'image')} of seed {source.drawn[0].records[0]['seed']}."
    seeds = {len(item.records) for item in source.drawn}
    least, most = min(seeds), max(seeds)
    runs = f"n = {plural(most, 'seed')}" if least == most else f"n = {least} to {most} seeds"
    if most > 1 and "std" in frame:
        runs += " (band or whisker: standard deviation over seeds)"
    parts = [runs]
    if "training" in frame and "pixels" in frame and "quantity" in frame:
        parts.append(_points(source, frame))
    elif "rank" in frame:
        parts.append(f"{len(frame):,} mini-batches, both directions of each pooled")
    elif "miou" in frame and "paper" in frame:
        parts.append(_validation(source))
    return f"{'; '.join(parts)}."


def _points(source: Source, frame: pd.DataFrame) -> str:
    pixels = int(frame["pixels"].max())
    of_seeds = " of each seed" if frame["seeds"].max() > 1 else ""
    longest = max(frame.groupby(["series", "quantity"]).size())
    logged = max(source.fuzziness(record)["step"].nunique() for record in source.records)
    if logged > POINTS and longest <= POINTS:
        return f"a point averages up to {pixels:,} pixels: what was logged of a hundredth of training, both directions"
    return f"a point averages up to {pixels:,} pixels: both directions of a mini-batch{of_seeds}"


def _validation(source: Source) -> str:
    cell = source.drawn[0].cell
    counts = {number(record, "validation_images") for record in source.records}
    images = f"{counts.pop():,.0f} " if len(counts) == 1 and None not in counts else ""
    selection = {"best": "the best of all validations", "last": "the last weights"}[cell.experiment.table.selection]
    return f"mIoU on {images}validation images, protocol {cell.configs[0].eval.protocol}, {selection}"


def _absent(source: Source) -> str:
    """Series and seeds that are not there."""
    absent = [item.label for item in source.found if not item.records]
    partly = [
        f"{item.label} ({len(item.records)} of {len(item.cell.configs)} seeds)" for item in source.drawn if item.reason
    ]
    listed = [f"not run: {', '.join(absent)}" if absent else "", f"partly run: {', '.join(partly)}" if partly else ""]
    return "".join(f"{text[0].upper()}{text[1:]}. " for text in listed if text).strip()


def _words(config: RunConfig) -> list[str]:
    """The settings of a run, always as many; empty where there is nothing to say."""
    loss, model = config.loss, config.model
    fuzzy = loss.kind == "fpl"
    fidelity = "" if loss.fidelity == "paper" else f" ({loss.fidelity})"
    strategies = {"n-1": "K = n − 1", "n": "K = n", "fixed": f"K = {loss.fixed_k}", "soft": "soft K"}
    return [
        config.data.dataset,
        config.method.label,
        f"FPL{fidelity}" if fuzzy else {"ce": "cross-entropy with the pseudo labels"}.get(loss.kind, loss.kind),
        _threshold(loss) if fuzzy and loss.strategy not in ("fixed", "step") else "",
        strategies.get(loss.strategy, f"K by {loss.strategy}") if fuzzy else "",
        f"{'no adaptive' if loss.weight == 'none' else loss.weight} weight" if fuzzy else "",
        f"tiny backbone of depth {model.tiny_depth}" if model.backbone == "tiny" else model.backbone,
        f"{config.train.steps:,} steps",
    ]


def _threshold(loss: LossConfig) -> str:
    return f"T = {loss.threshold:g}" if loss.threshold_rule == "hand" else "T from labeled images"


def _common(values: Sequence[str]) -> str:
    """What all have; empty if they differ."""
    return values[0] if len(set(values)) == 1 else ""
