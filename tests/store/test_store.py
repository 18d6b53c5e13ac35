"""Finished runs on disk and back as pandas frames."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

import fpl
from fpl.config.identity import ARITHMETIC
from fpl.errors import FplError
from fpl.report.results import print_results
from fpl.store.done import read_run
from fpl.store.schema import CLASSES, FUZZINESS, HISTORY, RUNS
from fpl.store.write import run_path, write_run, write_table

CONFIG = {
    "arithmetic": ARITHMETIC,
    "seed": 0,
    "data": {"dataset": "camvid", "split": {"fraction": "1/8"}},
    "loss": {"kind": "fpl"},
}


def add(out: Path, name: str, *, miou: float = 40.0, seed: int = 0) -> None:
    config = json.dumps({**CONFIG, "seed": seed, "train": {"steps": 4}})
    row = {"run_id": name, "digest": name, "config": config, "miou_whole_last": miou, "train_seconds": 5.0}
    history = [{"step": 2, "loss": 1.5, "lr": 0.1}, {"step": 4, "loss": 1.0, "lr": 0.05}, {"step": 4, "miou": miou}]
    classes = [{"choice": "last", "class_index": 0, "class_name": "sky", "iou": float("nan"), "label_pixels": 0}]
    fuzziness = [{"step": 2, "direction": "12", "mean_k": 1.25, "k_histogram": [3, 1]}]
    write_run(out, row, history, classes, fuzziness)


def test_frames(tmp_path: Path) -> None:
    add(tmp_path, "b", miou=41.0, seed=1)
    add(tmp_path, "a")
    results = fpl.load_results(tmp_path)
    assert list(results.runs["run_id"]) == ["a", "b"]
    assert list(results.runs["data.split.fraction"]) == ["1/8", "1/8"]
    assert list(results.runs.query("`loss.kind` == 'fpl' and seed == 1")["miou_whole_last"]) == [41.0]
    last = results.history.query("run_id == 'a' and step == 4").iloc[0]
    assert (last["loss"], last["miou"]) == (1.0, 40.0)
    assert pd.isna(results.history.query("step == 2")["miou"]).all()
    assert pd.isna(results.classes["iou"]).all() and list(results.classes["class_name"]) == ["sky", "sky"]
    assert list(results.fuzziness["k_histogram"].iloc[0]) == [3, 1]


def test_row_of_an_older_version_lacks_columns(tmp_path: Path) -> None:
    add(tmp_path, "a")
    path = run_path(tmp_path, "a")
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["miou_center_last", "miou_center_best", "workers"]), path)
    assert read_run(path) == {"miou_whole_last": 40.0, "train_seconds": 5.0}
    assert pd.isna(fpl.load_results(tmp_path).runs["miou_center_last"]).all()


def test_nan_survives_as_nan_in_the_file(tmp_path: Path) -> None:
    add(tmp_path, "a")
    column = pq.read_table(tmp_path / "classes" / "a.parquet").column("iou")
    assert column.null_count == 0 and pd.isna(column[0].as_py())


def test_row_is_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    original = write_table

    def spy(path: Path, table: str, rows: object) -> None:
        order.append(table)
        original(path, table, rows)  # type: ignore[arg-type]

    monkeypatch.setattr("fpl.store.write.write_table", spy)
    add(tmp_path, "a")
    assert order == [HISTORY, CLASSES, FUZZINESS, RUNS]
    assert run_path(tmp_path, "a").exists()
    assert not list(tmp_path.rglob("*.tmp"))


def test_files_of_an_older_version_read_with_missing_columns(tmp_path: Path) -> None:
    add(tmp_path, "a")
    table = pq.read_table(tmp_path / HISTORY / "a.parquet")
    fuzzy = pq.read_table(tmp_path / FUZZINESS / "a.parquet").drop_columns(["mean_weight"])
    pq.write_table(fuzzy, tmp_path / FUZZINESS / "a.parquet")
    frame = fpl.load_results(tmp_path).fuzziness
    assert len(table) and frame["mean_weight"].isna().all()


def test_hidden_temporary_files_are_not_read(tmp_path: Path) -> None:
    add(tmp_path, "a")
    (tmp_path / RUNS / ".b.parquet.123.tmp").write_bytes(b"half")
    assert len(fpl.load_results(tmp_path).runs) == 1


def test_errors_name_the_place(tmp_path: Path) -> None:
    with pytest.raises(FplError, match="no such folder"):
        fpl.load_results(tmp_path / "none")
    with pytest.raises(FplError, match="no results here"):
        fpl.load_results(tmp_path)
    (tmp_path / "checkpoints" / "begun-run").mkdir(parents=True)
    with pytest.raises(FplError, match="no finished run yet, 1 begun: begun-run"):
        fpl.load_results(tmp_path)


def test_unknown_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="surprise"):
        write_table(tmp_path / "x.parquet", RUNS, [{"run_id": "a", "surprise": 1}])


def test_equal_results_of_different_configurations_warn(tmp_path: Path) -> None:
    add(tmp_path, "a", miou=40.0)
    add(tmp_path, "b", miou=40.0, seed=1)
    add(tmp_path, "c", miou=41.0, seed=2)
    warnings = fpl.load_results(tmp_path).warnings()
    assert len(warnings) == 1 and "a, b" in warnings[0] and "to the last bit" in warnings[0]


def test_results_table_query_and_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add(tmp_path, "a")
    add(tmp_path, "b", miou=41.5, seed=1)
    print_results(tmp_path, "seed == 1", None, None)
    printed = capsys.readouterr().out
    assert "41.50" in printed and "40.00" not in printed and "1 of 2 runs" in printed
    print_results(tmp_path, None, None, tmp_path / "all.csv")
    frame = pd.read_csv(tmp_path / "all.csv")
    assert list(frame["miou_whole_last"]) == [40.0, 41.5] and "loss.kind" in frame
    for query in ("nothing == 3", "seed ==", "seed + 1"):
        with pytest.raises(FplError) as caught:
            print_results(tmp_path, query, None, None)
        assert caught.value.where == "--query"
    with pytest.raises(FplError, match="no column speed"):
        print_results(tmp_path, None, "run_id,speed", None)
