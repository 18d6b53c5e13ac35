"""Reading results: pandas frames from a folder of Parquet files."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fpl.config.identity import ARITHMETIC, recipe_digest
from fpl.config.layers import flatten
from fpl.errors import FplError
from fpl.store.pictures import decode
from fpl.store.schema import (
    CLASSES,
    EXAMPLES,
    FAILURES,
    FUZZINESS,
    HISTORY,
    METRICS,
    NOISE,
    RUNS,
    SCHEMAS,
    STUDIES,
    TRIALS,
)
from fpl.store.search_frame import search_frame


class Results:
    """The results in one folder; every frame is read when first asked for.

    Args:
        folder: Folder that `fpl train --out` or a later command wrote.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def runs(self) -> pd.DataFrame:
        """One row a run: `run_id`, every configuration field as a dotted column, metrics in percent, provenance.

        `recipe` is what runs share whose configurations differ only in the pins to their data and weights.
        """
        raw = self._read(RUNS)
        config = [flatten(json.loads(text)) for text in raw["config"]]
        columns = pd.DataFrame(config, index=raw.index).drop(
            columns="schema", errors="ignore"
        )  # the name of `arithmetic` before
        recipe = pd.Series([recipe_digest(flat) for flat in config], index=raw.index, name="recipe", dtype="str")
        frame = pd.concat(
            [raw[["run_id", "digest"]], recipe, columns, raw.drop(columns=["run_id", "digest", "config"])], axis=1
        )
        return frame.sort_values("run_id", ignore_index=True)

    @property
    def of_other_arithmetic(self) -> list[str]:
        """Ids of the runs that another version of the arithmetic made (`fpl.config.identity.ARITHMETIC`)."""
        frame = self.runs
        known = frame["arithmetic"] == ARITHMETIC if "arithmetic" in frame else pd.Series(False, index=frame.index)
        return list(frame.loc[~known, "run_id"])

    @cached_property
    def history(self) -> pd.DataFrame:
        """One row per run and logged step, metrics as columns; NaN where a metric was not logged at that step."""
        long = self._read(HISTORY)
        wide = long.pivot_table(index=["run_id", "step"], columns="metric", values="value", aggfunc="last")
        wide.columns.name = None
        return wide.reset_index()

    @cached_property
    def classes(self) -> pd.DataFrame:
        """One row per run, choice of weights (`last`, `best`) and class: IoU in percent and pixel counts."""
        return self._read(CLASSES)

    @cached_property
    def fuzziness(self) -> pd.DataFrame:
        """K statistics per run, logged step and direction of the pixel loss."""
        return self._read(FUZZINESS)

    @cached_property
    def examples(self) -> pd.DataFrame:
        """One row a picture of a fixed image at a step: `run_id`, `step`, `part`, `image_id`, `kind`, `array`.

        What the kinds are and how their arrays look is said in `fpl.store.schema`. Runs without pictures have no rows.
        """
        frame = self._read(EXAMPLES)
        pictures = zip(frame["kind"], frame["height"], frame["width"], frame["data"], strict=True)
        frame["array"] = pd.Series([decode(*picture) for picture in pictures], index=frame.index, dtype=object)
        return frame.drop(columns=["height", "width", "data"])

    @cached_property
    def failures(self) -> pd.DataFrame:
        """One row a run that ended with an error and has not succeeded since: reason and log file."""
        frame = self._read(FAILURES)
        return frame[~frame["run_id"].isin(self.runs["run_id"])].reset_index(drop=True)

    @cached_property
    def noise(self) -> pd.DataFrame:
        """One row per repetition of one run with the same seed (`fpl reproduce noise`)."""
        return self._read(NOISE)

    @cached_property
    def studies(self) -> pd.DataFrame:
        """One row a study of a search: what its trials share (`fpl.store.schema`)."""
        return self._read(STUDIES).sort_values("study", ignore_index=True)

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row a trial of any search as it was recorded, with its reports; `search` gives those of one search."""
        return self._read(TRIALS).sort_values(["study", "number"], ignore_index=True)

    @property
    def searches(self) -> list[str]:
        """Names of the searches there are trials or studies of."""
        return sorted(set(self.studies["search"]))

    def search(self, name: str) -> pd.DataFrame:
        """One row a trial of the search `name`, all its studies: parameters and objectives as columns.

        Its columns are those of `fpl.store.search_frame.search_frame`.

        Raises:
            FplError: There is no such search here; the message lists those there are.
        """
        return search_frame(self.studies, self.trials, name)

    def warnings(self) -> list[str]:
        """What a reader of these results should know before trusting them."""
        found = []
        frame = self.runs
        if others := self.of_other_arithmetic:
            found.append(
                f"{len(others)} runs are of another arithmetic than {ARITHMETIC}, which is this version's, and answer "
                f"for no cell ({others[0]}, ...): the version that made them shows them, this one trains them anew"
            )
        metrics = [name for name in METRICS if name in frame and frame[name].notna().any()]
        if metrics and len(frame) > 1:
            for _, group in frame.groupby(metrics, dropna=False):
                if group["digest"].nunique() > 1:
                    found.append(
                        f"equal to the last bit although configured differently: {', '.join(group['run_id'])}; "
                        "a setting may not have reached the training"
                    )
        return found

    def _read(self, table: str) -> pd.DataFrame:
        frame: pd.DataFrame = read_table(self.folder, table).to_pandas()
        return frame


def read_table(folder: Path, table: str) -> pa.Table:
    """All rows of one table of a store, file by file in the order of their names.

    Raises:
        FplError: A file that is no Parquet.
    """
    schema = SCHEMAS[table]
    parts = []
    for path in sorted((folder / table).glob("*.parquet")):
        try:
            # Small files: threads cost more than they give.
            part = pq.ParquetFile(path).read(use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise FplError(
                f"cannot be read as Parquet: {error}", where=str(path), hint="remove the file and run it again"
            ) from None
        parts.append(_with_schema(part, schema))
    return pa.concat_tables(parts) if parts else schema.empty_table()


def _with_schema(part: pa.Table, schema: pa.Schema) -> pa.Table:
    """A file of an older version lacks columns: they become null; extra ones are left out."""
    columns: list[Any] = [
        part.column(field.name).cast(field.type) if field.name in part.column_names else pa.nulls(len(part), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def read_run(path: Path) -> dict[str, float]:
    """Metrics (those that were measured, mIoU in percent) and `train_seconds` from the file of one finished run."""
    row = _with_schema(pq.read_table(path), SCHEMAS[RUNS]).to_pylist()[0]
    return {name: row[name] for name in (*METRICS, "train_seconds") if row[name] is not None}


def load_results(folder: Path | str) -> Results:
    """Open a folder of results.

    Args:
        folder: For example `results/mini`.

    Returns:
        Frames `.runs`, `.history`, `.classes`, `.fuzziness`, `.examples`, `.failures`, `.noise`, `.studies`, `.trials`,
        and `.search(name)`.

    Raises:
        FplError: There is no such folder, or it holds no results.
    """
    path = Path(folder)
    if not any(any((path / table).glob("*.parquet")) for table in (RUNS, FAILURES, STUDIES)):
        if begun := sorted(folder.name for folder in path.glob("checkpoints/*/")):
            raise FplError(
                f"no finished run yet, {len(begun)} begun: {', '.join(begun)}",
                where=str(path),
                hint="the same `fpl train` command continues each of them",
            )
        raise FplError(
            "no results here" if path.is_dir() else "no such folder",
            where=str(path),
            hint="name the folder that `fpl train --out` wrote",
        )
    return Results(path)
