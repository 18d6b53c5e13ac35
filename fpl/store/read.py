"""Reading results: pandas frames from a folder of Parquet files."""

from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from fpl.config.identity import ARITHMETIC
from fpl.config.shipped import experiments_folder
from fpl.config.stores import LOCAL, PUBLISHED, own_stores
from fpl.errors import FplError
from fpl.files import check_folder
from fpl.mirrors import MARK, name_of
from fpl.store.alike import alike_warnings
from fpl.store.collect import look_over, read_parts
from fpl.store.columns import COLUMNS, DERIVED, SCHEMAS
from fpl.store.frames import config_frame, described, fractions, table_frame
from fpl.store.lookup import look_up
from fpl.store.parts import DamagedError, LeftOut, files_of
from fpl.store.pictures import decode
from fpl.store.remote import open_store
from fpl.store.rows import FRACTION, read_config, read_space
from fpl.store.schema import CLASSES, EXAMPLES, FAILURES, FUZZINESS, HISTORY, NOISE, RUNS, STUDIES, TRIALS
from fpl.store.search_frame import final_metric, records, search_frame
from fpl.store.trials import read_trials
from fpl.text import plural

if TYPE_CHECKING:
    from optuna import Study


class Results:
    """The results in one folder; every frame is read when first asked for.

    Args:
        folder: Folder that `fpl train --out` or a later command wrote.
        experiments: Tables, recipes and scales that its cells are of; None: `./experiments`, or the package's.
    """

    def __init__(self, folder: Path, experiments: Path | None = None) -> None:
        self.folder = folder
        self.experiments = experiments or experiments_folder()
        self._left_out: dict[str, list[LeftOut]] = {}

    def __repr__(self) -> str:
        return f"Results({str(self.folder)!r}): {plural(len(self.runs), 'run')}"

    @cached_property
    def runs(self) -> pd.DataFrame:
        """One row a run: `run_id`, every configuration field as a dotted column, metrics in percent, provenance.

        `recipe` is what runs share whose configurations differ only in the pins to their data and weights.
        """
        raw = self._read(RUNS)
        configs = [read_config(text) for text in raw["config"]]
        # `schema` was the name of `arithmetic` before it covered that.
        columns = config_frame(configs, raw.index).drop(columns="schema", errors="ignore")
        if FRACTION in columns:
            columns[FRACTION] = fractions(columns[FRACTION])
        recipe = pd.Series([config.recipe for config in configs], index=raw.index, name="recipe", dtype="str")
        frame = pd.concat(
            [raw[["run_id", "digest"]], recipe, columns, raw.drop(columns=["run_id", "digest", "config"])], axis=1
        )
        return described(frame.sort_values("run_id", ignore_index=True), COLUMNS[RUNS], DERIVED)

    @property
    def of_other_arithmetic(self) -> list[str]:
        """Ids of the runs that another version of the arithmetic made (`fpl.config.identity.ARITHMETIC`)."""
        frame = self.runs
        known = frame["arithmetic"] == ARITHMETIC if "arithmetic" in frame else pd.Series(False, index=frame.index)
        return list(frame.loc[~known, "run_id"])

    @cached_property
    def cells(self) -> pd.DataFrame:
        """One row per scale, table, row, column and seed: the paper's number, ours, and the run behind it.

        See `fpl.store.cells.cells_frame`; `cells.merge(runs, on="run_id")` adds settings and metrics.

        Raises:
            FplError: No run here is of a cell, or a file of `experiments/` is broken.
        """
        from fpl.store.cells import cells_frame

        return cells_frame(look_up(self), self.experiments, str(self.folder))

    @cached_property
    def history(self) -> pd.DataFrame:
        """One row per run and logged step, metrics as columns; NaN where a metric was not logged at that step."""
        long = self._read(HISTORY)
        latest = long.drop_duplicates(["run_id", "step", "metric"], keep="last")
        wide = latest.pivot(index=["run_id", "step"], columns="metric", values="value")
        wide.columns.name = None
        return described(wide.reset_index(), COLUMNS[HISTORY], DERIVED)

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

        What the kinds are and how their arrays look is said in `fpl.store.columns`. Runs without pictures have no rows.
        """
        frame = self._read(EXAMPLES)
        pictures = zip(frame["kind"], frame["height"], frame["width"], frame["data"], strict=True)
        frame["array"] = pd.Series([decode(*picture) for picture in pictures], index=frame.index, dtype=object)
        return described(frame.drop(columns=["height", "width", "data"]), COLUMNS[EXAMPLES], DERIVED)

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
        """One row a study of a search: what its trials share (`fpl.store.columns`)."""
        return self._read(STUDIES).sort_values("study", ignore_index=True)

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row a trial of any search as it was recorded, with its reports; `search` gives those of one search."""
        return self._read(TRIALS).sort_values(["study", "number"], ignore_index=True)

    @property
    def searches(self) -> list[str]:
        """Names of the searches there are studies of."""
        return sorted(set(self.studies["search"]))

    def search(self, name: str) -> pd.DataFrame:
        """One row a trial of the search `name`, all its studies: parameters and objectives as columns.

        Its columns are those of `fpl.store.search_frame.search_frame`.

        Raises:
            FplError: There is no such search here; the message lists those there are.
        """
        found = search_frame(self.studies, self.trials, name)
        return described(found, COLUMNS[TRIALS], COLUMNS[STUDIES], DERIVED)

    def study(self, name: str) -> Study:
        """One study as Optuna's, in memory: for its charts, importances and proposals.

        Args:
            name: As in `studies`, or that of a search with one study.

        Raises:
            FplError: There is no such study here, or the search has several; the message lists them.
        """
        # Optuna takes a second to import.
        from fpl.store.as_optuna import as_optuna

        frame = self.studies
        found = records(frame[(frame["study"] == name) | (frame["search"] == name)])
        if len(found) != 1:
            names = ", ".join(str(row["study"]) for row in found or records(frame))
            what = f"search {name!r} has {len(found)} studies" if found else f"no study {name!r}"
            raise FplError(what, where=str(self.folder), hint=f"there are: {names or 'none'}")
        (row,) = found
        return as_optuna(read_space(row["space"]), read_trials(self.folder, row["study"]), row["objectives"])

    def compare(self, other: Results) -> pd.DataFrame:
        """The runs beside those of another store, one row a recipe: columns as `fpl.store.compare.compared`."""
        from fpl.store.compare import compared

        return compared(self.runs, other.runs)

    def gains(self, table: str, row: str, over: str) -> pd.DataFrame:
        """What a row of a table gains over another, one line a pair of runs, as `fpl.store.cells.gains_frame`."""
        from fpl.store.cells import gains_frame

        return gains_frame(self.cells, table, row, over, str(self.folder))

    def warnings(self) -> list[str]:
        """What a reader of these results should know before trusting them."""
        frame = self.runs
        found = [*self._disagreements(), *map(str, self.left_out)]
        if others := self.of_other_arithmetic:
            found.append(
                f"{len(others)} runs are of another arithmetic than {ARITHMETIC}, which is this version's, and answer "
                f"for no cell ({others[0]}, ...): the version that made them shows them, this one trains them anew"
            )
        found.extend(alike_warnings(frame, lambda: look_up(self).fuzzy_shares))
        return found

    def _disagreements(self) -> list[str]:
        """Runs that a trial was scored by with another number than they have: older code answered one of them."""
        metrics = self.studies.set_index("study")["metric"]
        runs = self.runs.set_index("run_id")
        found: dict[str, str] = {}
        for row in records(self.trials[self.trials["study"].isin(metrics.index)]):
            metric = metrics[row["study"]]
            if row["state"] == "final":
                metric = final_metric(metric)
            for run, score in zip(row["run_ids"], row["run_scores"], strict=False):
                held = runs[metric].get(run)
                if held is not None and not math.isclose(score, held, rel_tol=0.0, abs_tol=1e-6):
                    told = f"{score:.2f} in trial {row['number']} of {row['study']}, {held:.2f} in runs ({metric})"
                    found.setdefault(run, f"{run} has two scores, of different code: {told}")
        return list(found.values())

    @property
    def left_out(self) -> list[LeftOut]:
        """Files and rows that cannot be used, and are in no frame.

        Of tables that no frame was asked of yet, the files are opened and their columns looked at, but not their rows.
        """
        return [
            found
            for table in SCHEMAS
            for found in (self._left_out[table] if table in self._left_out else look_over(self.folder, table))
        ]

    def _read(self, table: str) -> pd.DataFrame:
        rows, self._left_out[table] = read_parts(self.folder, table)
        return described(table_frame(rows, table), COLUMNS[table])


def load_results(folder: Path | str) -> Results:
    """Open a folder of results.

    Args:
        folder: For example `results/mini`, or a folder on object storage: `s3://BUCKET/PATH`.

    Returns:
        Frames `.runs`, `.cells`, `.history`, `.classes`, `.fuzziness`, `.examples`, `.failures`, `.noise`, `.studies`,
        `.trials`, and `.search(name)`, `.study(name)`, `.compare(other)`. `frame.attrs["columns"]` has the unit and the
        description of its columns.

    Raises:
        FplError: There is no such folder, or it holds no results.
    """
    path = open_store(folder)
    check_folder(path, str(path), "name the folder that `fpl train --out` wrote")
    if not has_results(path):
        if begun := sorted(folder.name for folder in path.glob("checkpoints/*/")):
            raise FplError(
                f"no finished run yet, {len(begun)} begun: {', '.join(begun)}",
                where=name_of(path),
                hint="the same `fpl train` command continues each of them",
            )
        others = [str(other) for other in sorted(_near(path)) if has_results(other) and not (other / MARK).exists()]
        raise FplError(
            "no results here" if path.is_dir() else "no such folder",
            where=name_of(path),
            hint=f"there are some in {', '.join(others)}" if others else "name the folder that `fpl train --out` wrote",
        )
    return Results(path)


def find_store() -> Path:
    """The store that commands wrote last without being told where; the published one where there is none."""
    return next(filter(has_results, [*own_stores(), PUBLISHED]), LOCAL)


def has_results(folder: Path) -> bool:
    """Whether a folder holds files of results, be they good or not."""
    try:
        return any(files_of(folder, table) for table in (RUNS, FAILURES, STUDIES))
    except (DamagedError, FplError):
        return True


def _near(path: Path) -> set[Path]:
    """Folders beside one, and those where commands put results."""
    return {other for place in (path.parent, Path("runs"), Path("results")) for other in place.glob("*/")}
