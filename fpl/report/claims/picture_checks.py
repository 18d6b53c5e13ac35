"""Checks of claims on the pictures that runs keep of a few images. Each takes the runs of a figure first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
import pandas as pd

from fpl.report.claims.measure import Outcome, decided, no_values, not_run
from fpl.report.figures.kept_pictures import UNKNOWN, Pictures, k_map_table, pictures_of, score_table
from fpl.report.figures.series import Source
from fpl.text import plural

Stage = Literal["first", "last", "all"]
STAGES: dict[Stage, str] = {"first": "at the first stage", "last": "at the last stage", "all": "over all stages"}
# VOC's class of what is no object.
BACKGROUND = 0
# Of the shorter side of an image: how far from the border between two classes a pixel is still at the border.
NEAR = 1 / 50
# Share of training that counts as its beginning.
EARLY = 0.25

# What pixels of an image can be: K and class of each [h, w] -> those that are [h, w].
REGIONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "with K = 1": lambda k, truth: k == 1,
    "with K > 1": lambda k, truth: k > 1,
    "with K > 1 and a label": lambda k, truth: (k > 1) & (truth != UNKNOWN),
    "in the background": lambda k, truth: truth == BACKGROUND,
    "on objects": lambda k, truth: (truth != BACKGROUND) & (truth != UNKNOWN),
    "at borders": lambda k, truth: near_border(truth),
}
# For data with a class for the background alone, that is VOC.
NEED_BACKGROUND = {"in the background", "on objects"}


def most_pixels(source: Source, of: str, are: str, stage: Stage, more_than_of_all: bool = False) -> Outcome:
    """Whether most of the pixels of one of the `REGIONS` are in another one too.

    Rule: more than half of them are, of all images together, and if asked for a larger share than of all pixels.
    Counted is at the first stage that was kept, which must be in the first quarter of training, at the last one, or
    over all stages together. "At borders" is at most 1/50 of the image's shorter side from where the ground truth
    changes.
    """
    if {of, are} & NEED_BACKGROUND and not all(str(run["data.dataset"]).endswith("voc") for run in source.records):
        return not_run("the runs are on data without a class for the background")
    if stage == "first" and (late := _late_start(source)):
        return not_run(late)
    scenes = list(_scenes(source, stage))
    if not scenes:
        return no_values(source)
    whole, inside = ([REGIONS[name](k, truth) for _, k, truth in scenes] for name in (of, are))
    count = sum(int(mask.sum()) for mask in whole)
    if not count:
        return not_run(f"no pixel is {of} {STAGES[stage]}")
    share = sum(int((mask & other).sum()) for mask, other in zip(whole, inside, strict=True)) / count
    of_all = sum(int(mask.sum()) for mask in inside) / sum(mask.size for mask in inside)
    text = f"{_percent(share)} of the pixels {of} {STAGES[stage]} are {are}"
    text += f", of all pixels {_percent(of_all)}" if more_than_of_all else ""
    holds = share > 0.5 and (share > of_all or not more_than_of_all)
    return decided(holds, f"{text}; {_amount(source, len({image for image, *_ in scenes}))}")


def fewer_uncertain(source: Source) -> Outcome:
    """Whether pixels with K > 1 become fewer.

    Rule: their share over all images at the last stage that was kept is below that at the first, which is in the first
    quarter of training.
    """
    if late := _late_start(source):
        return not_run(late)
    # Images that have both stages alone: a row each, with their pixels at both.
    parts = [pd.DataFrame()]
    for table in (k_map_table(run) for run in _runs(source)):
        first, last = (table[table["step"] == step] for step in (table["step"].min(), table["step"].max()))
        if table["step"].nunique() > 1:
            parts.append(first.merge(last, on="image_id", suffixes=("_first", "_last")))
    both = pd.concat(parts)
    if both.empty:
        return no_values(source)
    before, after = (
        1 - float(np.average(both[f"share_k1_{stage}"], weights=both[f"pixels_{stage}"])) for stage in ("first", "last")
    )
    text = f"share of K > 1: {_percent(before)} at the first stage, {_percent(after)} at the last"
    return decided(after < before, f"{text}; {_amount(source, len(both))}")


def pushed_up_instead(source: Source, share: float) -> Outcome:
    """Whether many pixels with R^v < 0 have R^f > 0. The paper says "many" without a number: `share` is ours.

    Rule: it is more than `share` of them, of all images at the last stage that was kept. Scores that round to zero keep
    their sign.
    """
    tables = [score_table(run) for run in _runs(source)]
    if not sum(map(len, tables)):
        return no_values(source)
    table = pd.concat(tables)
    pixels = table.groupby("case")["pixels"].sum()
    down = pixels[2] + pixels[3]
    if not down:
        return not_run("no pixel has Rᵛ < 0")
    found = f"Rᶠ > 0 at {_percent(pixels[2] / down)} of the pixels with Rᵛ < 0 at the last stage"
    images = _amount(source, len(table) // 3)
    return decided(bool(pixels[2] / down > share), f"{found} (over {100 * share:g} % counts as many); {images}")


def near_border(truth: np.ndarray) -> np.ndarray:
    """Pixels of a map of classes [h, w] that are near another class (or what is unknown, as VOC's ribbons are)."""
    from scipy.ndimage import binary_dilation, generate_binary_structure, maximum_filter, minimum_filter

    cross: Any = {"footprint": generate_binary_structure(2, 1), "mode": "nearest"}
    border = maximum_filter(truth, **cross) != minimum_filter(truth, **cross)
    if (further := round(NEAR * min(truth.shape)) - 1) > 0:
        border = binary_dilation(border, np.ones((3, 3), dtype=bool), iterations=further)
    return np.asarray(border)


def _late_start(source: Source) -> str:
    """Why the first stage that was kept says nothing about early training; empty if it does."""
    for run in _runs(source):
        stages = run.stored_steps("k")
        if stages and stages[0] > EARLY * run.steps:
            when = f"step {stages[0]:,} of {run.steps:,}"
            return f"the first pictures kept are of {when}: the run was continued from a checkpoint without pictures"
    return ""


def _runs(source: Source) -> Iterator[Pictures]:
    for item in source.drawn:
        for record in item.records:
            yield pictures_of(source, item, record)


def _scenes(source: Source, stage: Stage) -> Iterator[tuple[tuple[int, str], np.ndarray, np.ndarray]]:
    """Run and image, K and ground truth of every image of every run that has both, at its stages."""
    for number, run in enumerate(_runs(source)):
        steps = run.stored_steps("k")
        for step in {"first": steps[:1], "last": steps[-1:], "all": steps}[stage]:
            for image in run.images("k", "ground_truth"):
                k, truth = run.get(image, "k", step), run.get(image, "ground_truth")
                if k is not None and truth is not None and (truth != UNKNOWN).any():
                    yield (number, image), k, _fit(truth, k.shape)


def _fit(truth: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A map of classes at the resolution of the maps of K, by nearest pixels."""
    places = [(np.arange(new) + 0.5) * old / new for new, old in zip(shape, truth.shape, strict=True)]
    return np.asarray(truth[np.ix_(*(place.astype(int) for place in places))])


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _amount(source: Source, images: int) -> str:
    return f"{plural(images, 'image')} of {plural(len(source.records), 'run')}"


CHECKS: dict[str, Callable[..., Outcome]] = {
    check.__name__: check for check in (most_pixels, fewer_uncertain, pushed_up_instead)
}
