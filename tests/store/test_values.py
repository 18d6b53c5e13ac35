"""Values that nothing can have, and rows of one name that differ: left out and named, and nothing else is lost."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from fpl.store.columns import SCHEMAS
from fpl.store.done import is_done
from fpl.store.lookup import look_up
from fpl.store.parts import read_part
from fpl.store.publish import publish_runs
from fpl.store.read import Results
from fpl.store.schema import CLASSES, FUZZINESS, HISTORY, NOISE, RUNS, STUDIES, TRIALS
from fpl.store.values import RANGES, columns_of
from fpl.store.write import run_path, write_table
from tests.report.world_search import EIGHTH, study, trial
from tests.store.test_store import add, id_of

RUN_IDS = [id_of(f"run-{number}", number) for number in range(6)]


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """Six runs, two trials and a repetition in one file a table."""
    source, target = tmp_path / "source", tmp_path / "published"
    for number, name in enumerate(RUN_IDS):
        add(source, f"run-{number}", miou=40.0 + number, seed=number)
        write_table(source / NOISE / f"{name}-0.parquet", NOISE, [{"run_id": name, "recipe": "r", "repeat": 0}])
        write_table(
            source / CLASSES / f"{name}.parquet", CLASSES, [{"run_id": name, "choice": "last", "class_index": 0}]
        )
        write_table(source / FUZZINESS / f"{name}.parquet", FUZZINESS, [{"run_id": name, "step": 1, "direction": "12"}])
        write_table(
            source / HISTORY / f"{name}.parquet",
            HISTORY,
            [{"run_id": name, "step": 1, "metric": metric, "value": 30.0} for metric in ("miou", "loss")],
        )
    publish_runs(source, target, set(RUN_IDS))
    study(target)
    for number in range(2):
        trial(target, number, {"loss.strategy": "n-1", "loss.threshold": 0.9}, 40.0)
    return target


def path_of(store: Path, table: str) -> Path:
    names = {STUDIES: f"{EIGHTH}.parquet", TRIALS: f"{EIGHTH}-00001.parquet"}
    return store / table / names.get(table, "all.parquet")


def change(path: Path, table: str, place: int, **values: Any) -> str:
    """Give one row of a file other values."""
    rows = pq.read_table(path).to_pylist()
    rows[place] |= values
    write_table(path, table, rows)
    return str(rows[place].get("run_id", ""))


@pytest.mark.parametrize(
    ("table", "column", "values"),
    [
        (RUNS, "miou_whole_last", [250.0, float("inf"), float("nan"), 1e300, -1.0]),
        (RUNS, "pixel_accuracy_center_best", [100.1, float("-inf")]),
        (RUNS, "train_seconds", [-1.0, float("inf"), float("nan"), 1e300]),
        (RUNS, "labeled_images", [-3, 2**63 - 1]),
        (NOISE, "miou_whole_best", [250.0, float("nan")]),
        (CLASSES, "iou", [-5.0, 101.0, float("inf")]),
        (CLASSES, "right_pixels", [-1]),
        (FUZZINESS, "share_k1", [1.5]),
        (HISTORY, "value", [250.0, float("-inf")]),
        (HISTORY, "step", [-2]),
        (STUDIES, "wall_seconds", [float("inf")]),
        (TRIALS, "score", [-1e308]),
        (TRIALS, "values", [[50.0, 1e300]]),
        (TRIALS, "number", [-1, -(2**62)]),
        (TRIALS, "device_hours", [-1e308]),
    ],
)
def test_impossible_values(published: Path, table: str, column: str, values: list[Any]) -> None:
    path, before = path_of(published, table), len(read_part(path_of(published, table), table)[0])
    original = path.read_bytes()
    for value in values:
        path.write_bytes(original)
        more = {"steps": [1, 2]} if column == "values" else {"metric": "miou"} if column == "value" else {}
        run = change(path, table, before - 2 if before > 1 else 0, **{column: value}, **more)
        part, (problem,) = read_part(path, table)
        assert len(part) == before - 1 and f"{column} is no number from 0 to" in problem and run in problem
        results = Results(published)
        _ = getattr(results, table)  # rows are looked at when their frame is asked for
        assert len(results.left_out) == 1 and column in str(results.left_out[0])


def test_numbers_that_can_be(published: Path) -> None:
    """NaN where nothing is known, any loss at all, and a mean of 100 rounded up."""
    change(path_of(published, CLASSES), CLASSES, 0, iou=float("nan"))
    change(path_of(published, HISTORY), HISTORY, 1, metric="loss", value=float("-inf"))
    change(path_of(published, RUNS), RUNS, 0, miou_whole_last=100.00000000000001, pixel_accuracy_whole_last=0.0)
    results = Results(published)
    assert len(results.runs) == len(results.history) == len(results.classes) == 6 and not results.left_out
    assert all(set(columns_of(table)) <= set(SCHEMAS[table].names) for table in RANGES)


def test_a_run_with_an_impossible_score_is_not_done(tmp_path: Path) -> None:
    run = add(tmp_path, "a-run")
    assert is_done(tmp_path, run)
    for value in (float("inf"), float("nan")):
        change(run_path(tmp_path, run), RUNS, 0, miou_whole_best=value)
        results = Results(tmp_path)
        assert not is_done(tmp_path, run) and results.runs.empty and len(results.left_out) == 1


def test_rows_of_one_name_in_one_file(published: Path) -> None:
    """Those that differ are both left out, those that do not are one."""
    path = path_of(published, RUNS)
    rows = pq.read_table(path).to_pylist()
    other = [{**row, "miou_whole_last": 1.0} for row in rows[:4]]
    write_table(path, RUNS, [*rows, *other, {**rows[5], "finished_at": "2020-01-01T00:00:00+00:00"}])
    results = Results(published)
    assert list(results.runs["run_id"]) == RUN_IDS[4:]
    (found,) = results.left_out
    assert found.path == path and found.what.startswith(
        f"{', '.join(RUN_IDS[:3])} and 1 more: stands there more than once"
    )


@pytest.mark.parametrize(
    ("table", "column", "value"), [(HISTORY, "value", 7.0), (CLASSES, "iou", 99.0), (FUZZINESS, "k_histogram", [3, 9])]
)
def test_rows_of_what_a_run_did_stand_once(published: Path, table: str, column: str, value: Any) -> None:
    path = path_of(published, table)
    rows = pq.read_table(path).to_pylist()
    write_table(path, table, [*rows, *rows])
    assert len(read_part(path, table)[0]) == len(rows)
    write_table(path, table, [*rows, {**rows[0], column: value}])
    # Which of the two is right, nobody knows.
    assert len(read_part(path, table)[0]) == len(rows) - 1
    results = Results(published)
    _ = getattr(results, table)
    (found,) = results.left_out
    assert found.path == path and "stands there more than once" in found.what and rows[0]["run_id"] in found.what


def test_a_run_with_a_file_of_its_own_and_published(published: Path) -> None:
    shutil.copytree(published.parent / "source", published, dirs_exist_ok=True)
    results = Results(published)
    assert list(results.runs["run_id"]) == RUN_IDS and len(results.classes) == 6 and not results.left_out
    change(run_path(published, RUN_IDS[0]), RUNS, 0, miou_whole_last=1.0)
    results = Results(published)
    assert list(results.runs["run_id"]) == RUN_IDS and results.runs.loc[0, "miou_whole_last"] == 1.0
    (found,) = results.left_out
    assert found.path == path_of(published, RUNS) and found.what.startswith(
        f"{RUN_IDS[0]}: stands with other results in {RUN_IDS[0]}"
    )


@pytest.mark.parametrize("seed", ['"abc"', "[1, 2]", "1e400", "1.5", "true", "-1", "3000000000"])
def test_a_seed_that_is_none_blocks_its_run_alone(published: Path, seed: str) -> None:
    run = change(path_of(published, RUNS), RUNS, 0, config=f'{{"seed": {seed}}}')
    results = Results(published)
    assert look_up(results).seeds == [1, 2, 3, 4, 5]
    (found,) = results.left_out
    assert run in found.what and ("seed" in found.what or "number" in found.what)


@pytest.mark.parametrize("column", ["started_at", "updated_at"])
@pytest.mark.parametrize("written", ["y", "2026-13-01", "0001-01-01T00:00:00+14:00"])
def test_a_time_that_is_none_blocks_its_trial_alone(published: Path, column: str, written: str) -> None:
    change(path_of(published, TRIALS), TRIALS, 0, **{column: written})
    results = Results(published)
    assert len(results.study("demo").trials) == len(results.trials) == 1
    (found,) = results.left_out
    assert found.path == path_of(published, TRIALS) and f"{written!r} is no time" in found.what


def test_trials_without_times(published: Path) -> None:
    change(path_of(published, TRIALS), TRIALS, 0, started_at=None, updated_at=None)
    assert [trial.datetime_start.year for trial in Results(published).study("demo").trials][1] == 1970
