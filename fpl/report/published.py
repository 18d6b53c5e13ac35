"""What is said about results beside those that were published before, and about why they differ."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from fpl.store.compare import Difference, difference, values
from fpl.store.read import Results
from fpl.store.schema import CIRCUMSTANCES, RUNS

# Keys of ENVIRONMENT that may change a result, beside what each run has recorded itself.
MACHINE = ("cpu instructions", "packages", "cuda")
# Values of an input that are listed; more would be the lists of every split.
MOST_VALUES = 4
# Recorded with each run, and no reason for another result.
TIMES = ("finished_at", "train_seconds")


def compare_lines(results: Results, published: Results) -> list[str]:
    """How the runs of a store differ from the published ones that are of the same recipes; nothing where none is."""
    found = difference(results.runs, published.runs)
    if not found.both:
        return []
    equal = found.both - len(found.differ)
    line = f"{equal} of {found.both} runs equal the published ones in {published.folder} to the last bit"
    if found.differ.empty:
        return [line]
    count = len(found.differ)
    how = f"{count} differ{'s' * (count == 1)}, by up to {found.points:.2f} points of mIoU"
    return [f"{line}; {how}", f"  most: {found.run_id}", *explain_difference(found, results.folder, published.folder)]


def explain_difference(found: Difference, ours: Path, theirs: Path) -> list[str]:
    """What was recorded otherwise with the runs that differ: facts to look at, each in one line.

    Args:
        found: The runs.
        ours: Folder of the store, with its ENVIRONMENT.
        theirs: Folder of what was published.
    """
    frame = found.differ
    reasons = list(_inputs(frame))
    same_inputs = frame[frame["run_id_ours"] == frame["run_id_theirs"]]
    if not same_inputs.empty:
        reasons += [*_recorded(same_inputs), *_machine(ours, theirs)]
    unknown = "nothing recorded of them differs: neither inputs, versions, commit nor processor"
    return [f"  {reason}" for reason in reasons or [unknown]]


def _inputs(frame: pd.DataFrame) -> Iterator[str]:
    """Runs of another id read other data, splits or weights: which, by the columns that differ."""
    other = frame[frame["run_id_ours"] != frame["run_id_theirs"]]
    if other.empty:
        return
    names = [name.removesuffix("_ours") for name in other.columns if "." in name and name.endswith("_ours")]
    differ = [name for name in names if _differ(other[f"{name}_ours"], other[f"{name}_theirs"])]
    yield f"{len(other)} of them: trained on other inputs: {', '.join(differ) or 'their ids differ'}"
    for name in differ:
        here, there = (values(other, f"{name}_{whose}") for whose in ("ours", "theirs"))
        if max(len(here), len(there)) <= MOST_VALUES:
            yield f"  {name}: {', '.join(here) or 'none'} here, {', '.join(there) or 'none'} there"


def _differ(ours: pd.Series, theirs: pd.Series) -> bool:
    """Whether two columns differ anywhere; what neither run has does not."""
    return bool((~(ours.isna() & theirs.isna()) & (ours.astype(str) != theirs.astype(str))).any())


def _recorded(frame: pd.DataFrame) -> Iterator[str]:
    for name in CIRCUMSTANCES[RUNS]:
        here, there = values(frame, f"{name}_ours"), values(frame, f"{name}_theirs")
        if name not in TIMES and here != there:
            yield f"{name}: {', '.join(here) or 'none'} here, {', '.join(there) or 'none'} there"


def _machine(ours: Path, theirs: Path) -> Iterator[str]:
    here, there = _environment(ours), _environment(theirs)
    for name in MACHINE:
        if name in here and name in there and here[name] != there[name]:
            yield f"{name}: {here[name]} here, {there[name]} there"


def _environment(folder: Path) -> dict[str, str]:
    path = folder / "ENVIRONMENT"
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    return {key: value for key, _, value in (line.partition(": ") for line in lines)}
