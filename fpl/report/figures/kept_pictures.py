"""The pictures that a run kept of a few fixed images, and the tables of numbers behind the figures that show them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from fpl.report.figures.series import Found, Source
from fpl.store.lookup import Record
from fpl.store.pictures import SCORES

# Of maps of classes: no label.
UNKNOWN = 255


@dataclass(frozen=True)
class Pictures:
    """The pictures that one run kept.

    Attributes:
        label: What the legend calls the run, for example `FPL+CPS`.
        frame: Its rows of `Results.examples`.
        steps: Length of its training.
        classes: Name of each class, by index; classes without a name are called by their index.
    """

    label: str
    frame: pd.DataFrame
    steps: int
    classes: tuple[str, ...] = ()

    def images(self, *kinds: str, part: str = "") -> list[str]:
        """Ids of the images that have a picture of every kind, in the order they were kept in."""
        found = self.frame[self.frame["part"] == part] if part else self.frame
        held = [set(found.loc[found["kind"] == kind, "image_id"]) for kind in kinds]
        return [name for name in dict.fromkeys(found["image_id"]) if all(name in ids for ids in held)]

    def only(self, images: Sequence[str]) -> Pictures:
        """Those of some images, and no others."""
        return replace(self, frame=self.frame[self.frame["image_id"].isin(list(images))])

    def stored_steps(self, kind: str) -> list[int]:
        """Steps with pictures of a kind, rising."""
        return sorted({int(step) for step in self.frame.loc[self.frame["kind"] == kind, "step"]})

    def get(self, image: str, kind: str, step: int | None = None) -> np.ndarray | None:
        """One picture: that of a step, or without a step the last there is."""
        found = self.frame[(self.frame["image_id"] == image) & (self.frame["kind"] == kind)]
        if step is not None:
            found = found[found["step"] == step]
        return None if found.empty else np.asarray(found.sort_values("step")["array"].iloc[-1])

    def scores(self) -> Iterator[tuple[str, int, np.ndarray, np.ndarray]]:
        """Image, step, R^v and R^f of each image that has both, at the last step with scores."""
        step = max(self.stored_steps(SCORES[0]), default=0)
        for image in self.images(*SCORES):
            vanilla, fuzzy = (self.get(image, kind, step) for kind in SCORES)
            if vanilla is not None and fuzzy is not None:
                yield image, step, vanilla, fuzzy

    def when(self, step: int) -> str:
        """A step as the title of a column."""
        return f"step {step:,}\n{100 * step / self.steps:.0f} % of training"


def pictures_of(source: Source, item: Found, record: Record) -> Pictures:
    """The pictures of one run of a series."""
    assert source.results is not None
    own, classes = (
        frame[frame["run_id"] == record["run_id"]] for frame in (source.results.examples, source.results.classes)
    )
    names = classes.sort_values("class_index").drop_duplicates("class_index")["class_name"]
    return Pictures(item.label, own.reset_index(drop=True), int(record["train.steps"]), tuple(names))


def k_map_table(run: Pictures) -> pd.DataFrame:
    """How many pixels have which K, per image and step.

    Returns:
        `image_id`, `step`, `training` (share that is over), `pixels`, `mean_k`, `share_k1`, `share_k2`, `share_k3`,
        `share_k4_or_more`.
    """
    rows = []
    for image in run.images("k"):
        for step in run.stored_steps("k"):
            k = run.get(image, "k", step)
            if k is None:
                continue
            shares = [float((np.minimum(k, 4) == value).mean()) for value in (1, 2, 3, 4)]
            rows.append([image, step, step / run.steps, k.size, _mean(k), *shares])
    shares_of = ["share_k1", "share_k2", "share_k3", "share_k4_or_more"]
    return pd.DataFrame(rows, columns=["image_id", "step", "training", "pixels", "mean_k", *shares_of])


def score_table(run: Pictures) -> pd.DataFrame:
    """Mean gradient scores per image and case, at the last step that has them.

    Returns:
        `image_id`, `step`, `training`, `case` (1 to 3), `pixels`, `vanilla_score`, `fuzzy_score` (means, NaN without
        pixels).
    """
    rows = []
    for image, step, vanilla, fuzzy in run.scores():
        case = cases(vanilla, fuzzy)
        for number in (1, 2, 3):
            chosen = case == number
            means = [_mean(scores[chosen]) for scores in (vanilla, fuzzy)]
            rows.append([image, step, step / run.steps, number, int(chosen.sum()), *means])
    return pd.DataFrame(rows, columns=["image_id", "step", "training", "case", "pixels", *SCORES])


def cases(vanilla: np.ndarray, fuzzy: np.ndarray) -> np.ndarray:
    """Case of each pixel, 1 to 3, from its gradient scores; 0 where one is NaN, the true class being unknown.

    It follows from the signs, those of zeros too: R^v is positive in case 1 alone, R^f in cases 1 and 2.
    """
    case = 1 + np.signbit(vanilla).astype(int) + (np.signbit(vanilla) & np.signbit(fuzzy))
    return np.where(np.isnan(vanilla) | np.isnan(fuzzy), 0, case)


def segmentation_table(runs: Sequence[Pictures]) -> pd.DataFrame:
    """How well each run segments each image at its last step with pictures.

    Returns:
        `image_id`, `run` (label), `step`, `pixels` (labeled), `pixel_accuracy` and `miou` in percent; the latter over
        the classes that are there in the image or predicted in it.
    """
    rows = []
    for image in segmented(runs):
        for run in runs:
            truth, found = run.get(image, "ground_truth"), run.get(image, "prediction")
            assert truth is not None and found is not None
            known = truth != UNKNOWN
            right, wanted = found[known], truth[known]
            accuracy = 100 * _mean(right == wanted)
            ious = [
                ((right == index) & (wanted == index)).sum() / ((right == index) | (wanted == index)).sum()
                for index in np.union1d(right, wanted)
            ]
            step = run.stored_steps("prediction")[-1]
            rows.append([image, run.label, step, int(known.sum()), accuracy, 100 * _mean(np.array(ious))])
    return pd.DataFrame(rows, columns=["image_id", "run", "step", "pixels", "pixel_accuracy", "miou"])


def found_classes(runs: Sequence[Pictures]) -> list[tuple[str, int, int]]:
    """How many classes each run finds: gives to at least one pixel that has it, in all images that it segments.

    Returns:
        Label of the run, number of classes found, and number of classes that are there.
    """
    rows = []
    for run in runs:
        found: set[int] = set()
        there: set[int] = set()
        for image in segmented(runs):
            truth, guess = run.get(image, "ground_truth"), run.get(image, "prediction")
            assert truth is not None and guess is not None
            there |= set(truth[truth != UNKNOWN].tolist())
            found |= set(truth[(truth == guess) & (truth != UNKNOWN)].tolist())
        rows.append((run.label, len(found), len(there)))
    return rows


def segmented(runs: Sequence[Pictures]) -> list[str]:
    """Images that every run has segmented, those for validation alone where there are any."""
    every = [run.images("image", "ground_truth", "prediction", part="val") for run in runs]
    if not all(every):
        every = [run.images("image", "ground_truth", "prediction") for run in runs]
    return [image for image in every[0] if all(image in ids for ids in every)] if every else []


def _mean(values: np.ndarray) -> float:
    return float(values.astype(float).mean()) if values.size else float("nan")
