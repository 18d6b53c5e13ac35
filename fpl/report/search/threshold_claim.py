"""The paper's claim about T, "the more labels, the lower the best T", checked on the studies of a search."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import pandas as pd

from fpl.config.layers import flatten
from fpl.report.claims.measure import State
from fpl.report.search.studies import SearchView, StudyView, count, fraction_of, value_text
from fpl.store.rows import amount, read_object
from fpl.store.search_frame import records
from fpl.text import plural

THRESHOLD = "loss.threshold"
CLAIM = "the more labels, the lower the best T"
SOURCE = "paper, section 4.3.1"

# Studies are compared where these are equal, and all of the runs they vary but for the labels and what is searched.
SAME = (
    *("scale", "metric", "protocol", "holdout", "sampler", "sampler_seed"),
    *("stop", "seeds", "splits", "steps", "space"),
)


@dataclass(frozen=True)
class Check:
    """The claim on studies that differ in their labels alone.

    Attributes:
        verdict: What they say.
        rows: Per fraction, fewest labels first: `fraction`, `labeled_images`, `best_threshold`, `score`, `score_std`,
            `runs_scored`, `number`, `study`, `trials` (complete, with T), `lowest`, `highest` (T tried).
        sentence: Verdict and numbers in one line.
        studies: Ids of the studies that were compared.
    """

    verdict: State
    rows: pd.DataFrame
    sentence: str
    studies: tuple[str, ...]


def thresholds(search: SearchView) -> pd.DataFrame:
    """T and score of every complete trial of every study that varies T.

    Returns:
        `fraction`, `labeled_images`, `study`, `title`, `threshold`, `score`, `score_std`, `runs_scored`, `number`,
        `origin`; fewest labels first, then by T.
    """
    columns = ["threshold", "score", "score_std", "runs_scored", "number", "origin"]
    parts = []
    for study in search.studies:
        if THRESHOLD not in study.keys:
            continue
        found = study.complete.dropna(subset=[THRESHOLD]).rename(columns={THRESHOLD: "threshold"})
        found = found.sort_values(["threshold", "number"])[columns]
        found.insert(0, "title", study.title)
        found.insert(0, "study", study.about["study"])
        found.insert(0, "labeled_images", count(study.about["labeled_images"]))
        found.insert(0, "fraction", fraction_of(study.about))
        parts.append(found)
    if not parts:
        return pd.DataFrame(columns=["fraction", "labeled_images", "study", "title", *columns])
    return pd.concat(parts, ignore_index=True)


def checks(search: SearchView) -> list[Check]:
    """The claim, once per group of comparable studies; nothing for a search that does not vary T."""
    groups: dict[str, list[StudyView]] = {}
    for study in search.studies:
        if THRESHOLD in study.keys:
            groups.setdefault(_kind(study), []).append(study)
    tried = thresholds(search)
    return [_check(studies, tried, len(groups) > 1) for studies in groups.values()]


def _kind(study: StudyView) -> str:
    """What studies share whose best T may be compared."""
    run = flatten(read_object(study.about["base"]))
    fixed = {key: value for key, value in run.items() if not key.startswith("data.split.")}
    # The digest of the files that are trained on changes with the labeled ones among them.
    for key in (*study.keys, "seed", "data.contents"):
        fixed.pop(key, None)
    return json.dumps([*(str(study.about[key]) for key in SAME), fixed], sort_keys=True, default=str)


def _check(studies: list[StudyView], tried: pd.DataFrame, several: bool) -> Check:
    ids = tuple(str(study.about["study"]) for study in studies)
    ours = tried[tried["study"].isin(ids)]
    keys = ["labeled_images", "fraction"]
    best = ours.sort_values(["score", "number"], ascending=[False, True]).drop_duplicates(keys)
    spans = ours.groupby(keys)["threshold"].agg(trials="size", lowest="min", highest="max").reset_index()
    columns = ["fraction", "labeled_images", "best_threshold", "score", "score_std", "runs_scored", "number", "study"]
    frame = best.rename(columns={"threshold": "best_threshold"}).merge(spans, on=keys)
    frame = frame[[*columns, "trials", "lowest", "highest"]]
    # A fraction `1/8` or a number of images; a row of an older store may lack the images.
    frame = frame.sort_values(["labeled_images", "fraction"], key=_amount, ignore_index=True)
    verdict = falling(list(frame["best_threshold"]))
    about = studies[0].about
    said = (
        about["scale"],
        about["protocol"],
        f"{about['sampler']} seed {about['sampler_seed']}",
        f"stop {about['stop']}",
    )
    where = f" ({', '.join(said)})" if several else ""
    numbers = "; ".join(
        f"{row['fraction']} labeled: best T {value_text(float(row['best_threshold']))} of "
        f"{plural(row['trials'], 'trial')} ({row['score']:.2f} %)"
        for row in records(frame)
    )
    why = {
        "not run": ", it needs at least two labeled fractions",
        "holds": f" (an order that chance alone gives {_chance(list(frame['best_threshold']))})",
    }.get(verdict, "")
    return Check(verdict, frame, f"{CLAIM}{where}: {verdict}{why}" + (f". {numbers}" if numbers else ""), ids)


def _chance(best: list[float]) -> str:
    """How often values in a random order never rise: of equal ones each order does."""
    orders = math.factorial(len(best))
    falling_orders = math.prod(math.factorial(times) for times in Counter(best).values())
    return f"once in {orders // falling_orders}"


def _amount(column: pd.Series) -> pd.Series:
    return column.map(lambda value: float(amount(value) if isinstance(value, str) else value)).astype("float64")


def falling(best: list[float]) -> State:
    """The verdict on the best T of each amount of labels, fewest first.

    It holds where the best T never rises with the labels, and falls at least once.
    """
    if len(best) < 2:
        return "not run"
    never_rises = all(later <= earlier for earlier, later in pairwise(best))
    return "holds" if never_rises and best[-1] < best[0] else "does not hold"
