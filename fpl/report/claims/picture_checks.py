"""Checks of claims on the pictures that runs keep of a few images. Each takes the runs of a figure first."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from fpl.report.claims.measure import Outcome, decided, no_values, not_run, plural
from fpl.report.figures.kept_pictures import UNKNOWN, Pictures, cases
from fpl.report.figures.series import Source

# VOC's class of what is no object.
BACKGROUND = 0
NO_BACKGROUND = "the runs are on data without a class for the background"
# Of the shorter side of an image: how far from the border between two classes a pixel is still at the border.
NEAR = 1 / 50
# Share of training that counts as its beginning.
EARLY = 0.25


def fewer_uncertain(source: Source) -> Outcome:
    """Whether pixels with K > 1 become fewer.

    Rule: their share over all images at the last stage that was kept is below that at the first, which is in the first
    quarter of training.
    """
    if late := _late_start(source):
        return not_run(late)
    above, pixels = np.zeros(2, dtype=int), np.zeros(2, dtype=int)
    images = 0
    for run in _runs(source):
        stages = run.stored_steps("k")
        for image in run.images("k") if len(stages) > 1 else []:
            maps = [k for step in (stages[0], stages[-1]) if (k := run.get(image, "k", step)) is not None]
            if len(maps) == 2:
                images += 1
                pixels += [k.size for k in maps]
                above += [(k > 1).sum() for k in maps]
    if not pixels.all():
        return no_values(source)
    first, last = (above / pixels).tolist()
    text = f"share of K > 1: {_percent(first)} at the first stage, {_percent(last)} at the last"
    return decided(last < first, f"{text}; {_amount(source, images)}")


def uncertain_on_objects(source: Source) -> Outcome:
    """Whether pixels with K > 1 are on objects early in training. For data with a background class (0), that is VOC.

    Rule: at the first stage that was kept, which is in the first quarter of training, more than half of the pixels with
    K > 1 of all images are on objects.
    """
    if not _has_background(source):
        return not_run(NO_BACKGROUND)
    if late := _late_start(source):
        return not_run(late)
    uncertain = background = images = 0
    for k, truth in _with_truth(source, 0):
        uncertain += int(((truth != UNKNOWN) & (k > 1)).sum())
        background += int(((truth == BACKGROUND) & (k > 1)).sum())
        images += 1
    if not images:
        return no_values(source)
    if not uncertain:
        return not_run("no pixel has K > 1 at the first stage")
    share = 1 - background / uncertain
    return decided(
        share > 0.5, f"{_percent(share)} of the pixels with K > 1 at the first stage; {_amount(source, images)}"
    )


def background_certain(source: Source) -> Outcome:
    """Whether K is 1 in the background. For data with a background class (0), that is VOC.

    Rule: over all images and stages that were kept together, more than half of the background has K = 1.
    """
    if not _has_background(source):
        return not_run(NO_BACKGROUND)
    certain = pixels = images = 0
    for run in _runs(source):
        for stage in range(len(run.stored_steps("k"))):
            for k, truth in _stage(run, stage):
                behind = truth == BACKGROUND
                certain += int((behind & (k == 1)).sum())
                pixels += int(behind.sum())
                images += stage == 0
    if not pixels:
        return no_values(source)
    share = certain / pixels
    return decided(
        share > 0.5, f"K = 1 in {_percent(share)} of the background over all stages together; {_amount(source, images)}"
    )


def uncertain_at_borders(source: Source) -> Outcome:
    """Whether pixels with K > 1 are at the borders of objects late in training.

    Rule: at the last stage that was kept more than half of them are at most 1/50 of the image's shorter side from where
    the ground truth changes, and more of them than of all pixels.
    """
    at_border = uncertain = border = pixels = images = 0
    for k, truth in _with_truth(source, -1):
        near = near_border(truth)
        uncertain += int((k > 1).sum())
        at_border += int(((k > 1) & near).sum())
        border += int(near.sum())
        pixels += k.size
        images += 1
    if not pixels:
        return no_values(source)
    if not uncertain:
        return not_run("no pixel has K > 1 at the last stage")
    share, of_all = at_border / uncertain, border / pixels
    text = (
        f"{_percent(share)} of the pixels with K > 1 at the last stage are at borders, of all pixels {_percent(of_all)}"
    )
    return decided(share > 0.5 and share > of_all, f"{text}; {_amount(source, images)}")


def pushed_up_instead(source: Source, share: float) -> Outcome:
    """Whether many pixels with R^v < 0 have R^f > 0. The paper says "many" without a number: `share` is ours.

    Rule: it is more than `share` of them, of all images at the last stage that was kept. Scores that round to zero keep
    their sign.
    """
    down = up = images = 0
    for run in _runs(source):
        for *_, vanilla, fuzzy in run.scores():
            case = cases(vanilla, fuzzy)
            images += 1
            down += int((case > 1).sum())
            up += int((case == 2).sum())
    if not images:
        return no_values(source)
    if not down:
        return not_run("no pixel has Rᵛ < 0")
    many = f"over {100 * share:g} % counts as many"
    return decided(
        up / down > share,
        f"Rᶠ > 0 at {_percent(up / down)} of the pixels with Rᵛ < 0 at the last stage ({many}); "
        f"{_amount(source, images)}",
    )


def near_border(truth: np.ndarray) -> np.ndarray:
    """Pixels of a map of classes [h, w] that are near another class (or what is unknown, as VOC's ribbons are)."""
    from scipy.ndimage import binary_dilation

    border = np.zeros(truth.shape, dtype=bool)
    down, right = truth[1:] != truth[:-1], truth[:, 1:] != truth[:, :-1]
    border[1:] |= down
    border[:-1] |= down
    border[:, 1:] |= right
    border[:, :-1] |= right
    further = round(NEAR * min(truth.shape)) - 1
    return binary_dilation(border, np.ones((3, 3), dtype=bool), iterations=further) if further > 0 else border


def _late_start(source: Source) -> str:
    """Why the first stage that was kept says nothing about early training; empty if it does."""
    for run in _runs(source):
        stages = run.stored_steps("k")
        if stages and stages[0] > EARLY * run.steps:
            when = f"step {stages[0]:,} of {run.steps:,}"
            return f"the first pictures kept are of {when}: the run was continued from a checkpoint without pictures"
    return ""


def _has_background(source: Source) -> bool:
    return all(str(record["data.dataset"]).endswith("voc") for record in source.records)


def _runs(source: Source) -> Iterator[Pictures]:
    if source.results is None:
        return
    examples = source.results.examples
    for item in source.drawn:
        for record in item.records:
            own = examples[examples["run_id"] == record["run_id"]]
            yield Pictures(item.label, own, int(record["train.steps"]))


def _with_truth(source: Source, stage: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """K and ground truth of every image of every run at its first (0) or last (-1) stage."""
    for run in _runs(source):
        yield from _stage(run, stage)


def _stage(run: Pictures, stage: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for image in run.images("k", "ground_truth"):
        k, truth = run.get(image, "k", run.stored_steps("k")[stage]), run.get(image, "ground_truth")
        if k is not None and truth is not None and (truth != UNKNOWN).any():
            yield k, _fit(truth, k.shape)


def _fit(truth: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A map of classes at the resolution of the maps of K, by nearest pixels."""
    places = [(np.arange(new) + 0.5) * old / new for new, old in zip(shape, truth.shape, strict=True)]
    return np.asarray(truth[np.ix_(*(place.astype(int) for place in places))])


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _amount(source: Source, images: int) -> str:
    return f"{plural(images, 'image')} of {plural(len(source.records), 'run')}"


CHECKS: dict[str, Callable[..., Outcome]] = {
    check.__name__: check
    for check in (fewer_uncertain, uncertain_on_objects, background_certain, uncertain_at_borders, pushed_up_instead)
}
