"""Trials of a search as rows of the store: written as they go, so that no kill costs more than a report."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from fpl.store.collect import read_parts
from fpl.store.parts import SUFFIX, read_part
from fpl.store.rows import State, read_object
from fpl.store.schema import HISTORY, STUDIES, TRIALS
from fpl.store.write import write_table
from fpl.text import timestamp


@dataclass
class TrialRow:
    """One trial; see the columns of `trials` in `fpl.store.columns`."""

    study: str
    number: int
    params: dict[str, Any]
    origin: str
    run_ids: list[str]
    state: State = "running"
    run_scores: list[float] = field(default_factory=list)
    step: int = 0
    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    device_hours: float = 0.0
    cost: float = 0.0
    reason: str = ""
    started_at: str = field(default_factory=timestamp)
    updated_at: str = ""

    @property
    def score(self) -> float | None:
        """Mean over its runs once all are done; of a pruned trial the last mean reported; None for others."""
        if self.state in ("complete", "final"):
            return statistics.fmean(self.run_scores)
        return self.values[-1] if self.state == "pruned" and self.values else None

    @property
    def score_std(self) -> float | None:
        """Standard deviation over its runs (n - 1), None for fewer than two."""
        if self.state not in ("complete", "final") or len(self.run_scores) < 2:
            return None
        return statistics.stdev(self.run_scores)

    def report(self, step: int, value: float) -> None:
        """Keep what was reported; a run that goes on from its checkpoint repeats some of it."""
        while self.steps and self.steps[-1] >= step:
            del self.steps[-1], self.values[-1]
        self.steps.append(step)
        self.values.append(value)
        self.step = step


def is_cell(origin: str) -> bool:
    """Whether a trial comes from a cell (`TABLE.ROW.COLUMN`), not from a sampler."""
    return "." in origin


def write_trial(out: Path, row: TrialRow) -> None:
    """Write a trial's row, in the place of its last one."""
    row.updated_at = timestamp()
    held = asdict(row) | {
        "params": json.dumps(row.params, sort_keys=True),
        "score": row.score,
        "score_std": row.score_std,
        "runs_scored": len(row.run_scores),
        # Parquet keeps NaN, JSON and comparisons do not: what is no number is none.
        "values": [value if math.isfinite(value) else None for value in row.values],
    }
    write_table(out / TRIALS / f"{row.study}-{row.number:05d}.parquet", TRIALS, [held])


def write_study(out: Path, row: Mapping[str, Any]) -> None:
    """Write a study's row, in the place of its last one."""
    write_table(out / STUDIES / f"{row['study']}.parquet", STUDIES, [{**row, "updated_at": timestamp()}])


def read_study(out: Path, study: str) -> dict[str, Any] | None:
    """A study's row, or None."""
    rows: list[dict[str, Any]] = read_parts(out, STUDIES)[0].to_pylist()
    return next((row for row in rows if row["study"] == study), None)


def read_trials(out: Path, study: str) -> list[TrialRow]:
    """The trials of a study that can be used, by number."""
    known = {item.name for item in fields(TrialRow)}
    rows = []
    for row in read_parts(out, TRIALS)[0].to_pylist():
        if row["study"] == study:
            row["params"] = read_object(row["params"])
            row["values"] = [math.nan if value is None else value for value in row["values"]]
            rows.append(TrialRow(**{name: value for name, value in row.items() if name in known}))
    return sorted(rows, key=lambda row: row.number)


def validations(out: Path, run_id: str) -> list[tuple[int, float]]:
    """Step and mIoU of each validation of a finished run; none where its history is damaged."""
    rows, _ = read_part(out / HISTORY / f"{run_id}{SUFFIX}", HISTORY)
    rows = rows.filter(pc.equal(rows["metric"], "miou")).sort_by("step")
    return list(zip(rows["step"].to_pylist(), rows["value"].to_pylist(), strict=True))
