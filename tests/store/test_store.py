"""Finished runs on disk and back as pandas frames."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.table import Table

import fpl
from fpl import mirrors
from fpl.config.identity import ARITHMETIC, recipe_digest
from fpl.config.layers import flatten
from fpl.errors import FplError
from fpl.report.results import print_results
from fpl.store import lease, publish
from fpl.store.columns import SCHEMAS
from fpl.store.done import read_run
from fpl.store.parts import read_part
from fpl.store.publish import publish_runs
from fpl.store.rows import read_config
from fpl.store.schema import CLASSES, FUZZINESS, HISTORY, RUNS
from fpl.store.write import run_path, write_failure, write_run, write_table

RESULTS = Path(__file__).parents[2] / "results"
CONFIG = {
    "arithmetic": ARITHMETIC,
    "seed": 0,
    "data": {"dataset": "camvid", "split": {"fraction": "1/8"}},
    "loss": {"kind": "fpl"},
}


def named_run(name: str, config: str = "{}") -> dict[str, Any]:
    """The columns of a row that have to be those of one run: its configuration, the digest, and an id that ends so."""
    digest = hashlib.sha256(config.encode()).hexdigest()[:16]
    return {"run_id": f"{name}-{digest[:8]}", "digest": digest, "config": config}


def id_of(name: str, seed: int = 0) -> str:
    """What `add` calls a run."""
    return str(named_run(name, config_of(seed))["run_id"])


def config_of(seed: int) -> str:
    return json.dumps({**CONFIG, "seed": seed, "train": {"steps": 4}})


def add(out: Path, name: str, *, miou: float | None = 40.0, seed: int = 0) -> str:
    """Write a run whose id begins with a name, and return the id."""
    logged = float("nan") if miou is None else miou
    row = {**named_run(name, config_of(seed)), "miou_whole_last": miou, "train_seconds": 5.0}
    history = [{"step": 2, "loss": 1.5, "lr": 0.1}, {"step": 4, "loss": 1.0, "lr": 0.05}, {"step": 4, "miou": logged}]
    classes = [{"choice": "last", "class_index": 0, "class_name": "sky", "iou": float("nan"), "label_pixels": 0}]
    fuzziness = [{"step": 2, "direction": "12", "mean_k": 1.25, "k_histogram": [3, 1]}]
    write_run(out, row, history, classes, fuzziness)
    return str(row["run_id"])


A, B = id_of("a"), id_of("b", 1)


def test_frames(tmp_path: Path) -> None:
    add(tmp_path, "b", miou=41.0, seed=1)
    add(tmp_path, "a")
    results = fpl.load_results(tmp_path)
    assert list(results.runs["run_id"]) == [A, B]
    assert list(results.runs["data.split.fraction"]) == ["1/8", "1/8"]
    assert list(results.runs.query("`loss.kind` == 'fpl' and seed == 1")["miou_whole_last"]) == [41.0]
    last = results.history.query(f"run_id == '{A}' and step == 4").iloc[0]
    assert (last["loss"], last["miou"]) == (1.0, 40.0)
    assert pd.isna(results.history.query("step == 2")["miou"]).all()
    assert pd.isna(results.classes["iou"]).all() and list(results.classes["class_name"]) == ["sky", "sky"]
    assert list(results.fuzziness["k_histogram"].iloc[0]) == [3, 1]


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*/runs/*.parquet")), ids=lambda path: path.parts[-3])
def test_published_rows_are_of_the_runs_that_they_say(path: Path) -> None:
    rows, problems = read_part(path, RUNS)
    assert len(rows) and not problems


def test_row_of_an_older_version_lacks_columns(tmp_path: Path) -> None:
    add(tmp_path, "a")
    path = run_path(tmp_path, A)
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["miou_center_last", "miou_center_best", "workers"]), path)
    assert read_run(path) == {"miou_whole_last": 40.0, "train_seconds": 5.0}
    assert pd.isna(fpl.load_results(tmp_path).runs["miou_center_last"]).all()


def test_an_index_that_pandas_noted_in_a_file_is_none_of_ours(tmp_path: Path) -> None:
    add(tmp_path, "a")
    path = tmp_path / HISTORY / f"{A}.parquet"
    noted = pa.Table.from_pandas(pq.read_table(path).to_pandas().set_index("step")).schema.metadata
    pq.write_table(pq.read_table(path).replace_schema_metadata(noted), path)
    assert pq.read_table(path).to_pandas().index.name == "step"
    rows, problems = read_part(path, HISTORY)
    assert list(rows.to_pandas()) == SCHEMAS[HISTORY].names and not problems


def test_nan_survives_as_nan_in_the_file(tmp_path: Path) -> None:
    add(tmp_path, "a")
    column = pq.read_table(tmp_path / "classes" / f"{A}.parquet").column("iou")
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
    assert run_path(tmp_path, A).exists()
    assert not list(tmp_path.rglob("*.tmp"))


def test_files_of_an_older_version_read_with_missing_columns(tmp_path: Path) -> None:
    add(tmp_path, "a")
    table = pq.read_table(tmp_path / HISTORY / f"{A}.parquet")
    fuzzy = pq.read_table(tmp_path / FUZZINESS / f"{A}.parquet").drop_columns(["mean_weight"])
    pq.write_table(fuzzy, tmp_path / FUZZINESS / f"{A}.parquet")
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
    assert len(warnings) == 1 and f"{A}, {B}" in warnings[0] and "to the last bit" in warnings[0]


def test_equal_results_of_rules_for_k_warn_unless_every_k_was_1(tmp_path: Path) -> None:
    """Behind a gate of T or more every rule gives 1: then two are one run, and both ran."""

    def write(name: str, share_k1: float, **loss: object) -> str:
        config = {**CONFIG, "seed": 0, "loss": {"kind": "fpl", "threshold": 0.9, **loss}}
        row = {**named_run(name, json.dumps(config)), "miou_whole_last": 40.0}
        fuzziness = [{"step": 2, "direction": "1", "mean_k": 2.0 - share_k1, "share_k1": share_k1, "pixels": 4}]
        write_run(tmp_path, row, [], [], fuzziness)
        return str(row["run_id"])

    a, b = write("a", 1.0, strategy="n-1"), write("b", 1.0, strategy="fixed", fixed_k=1)
    assert fpl.load_results(tmp_path).warnings() == []
    c = write("c", 1.0, strategy="n-1", curvature=10.0)
    assert f"{a}, {b}, {c}" in fpl.load_results(tmp_path).warnings()[0]
    run_path(tmp_path, c).unlink()
    write("b", 0.75, strategy="fixed", fixed_k=1)
    assert f"{a}, {b}" in fpl.load_results(tmp_path).warnings()[0]


def test_a_new_result_is_published_beside_a_failure_that_a_kill_left(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    add(source, "a", miou=10.0)
    publish_runs(source, target, {A})
    run_path(source, A).unlink()
    add(source, "a", miou=20.0)
    write_failure(source, {"run_id": A, "recipe": "a", "reason": "out of memory"})
    for whole in (False, True):
        publish_runs(source, target, {A}, whole=whole)
        published = fpl.load_results(target)
        assert list(published.runs["miou_whole_last"]) == [20.0] and not (target / "failures" / "all.parquet").exists()


@pytest.mark.parametrize("there", [False, True])
def test_two_that_publish_at_one_place_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    for seed, name in enumerate("ab"):
        add(source, name, seed=seed)
    if there:
        mirrors.attach(f"file://{tmp_path}/there", target)
        monkeypatch.setattr(lease, "SETTLE", 0.0)
    monkeypatch.setattr(publish, "PATIENCE", 0.0)
    real = publish._merge

    def another_begins(*arguments: Any) -> publish.Published:
        monkeypatch.setattr(publish, "_merge", real)
        assert (tmp_path / "there" / "leases" / "published").exists() == there
        with pytest.raises(lease.TakenError, match="another process publishes there"):
            publish_runs(source, target, {B})
        return real(*arguments)

    monkeypatch.setattr(publish, "_merge", another_begins)
    try:
        for run in (A, B):
            publish_runs(source, target, {run})
        assert list(fpl.load_results(target).runs["run_id"]) == [A, B]
    finally:
        mirrors._MIRRORS.clear()
    assert not list(tmp_path.glob("there/leases/*"))


def test_runs_without_a_score_are_not_called_equal(tmp_path: Path) -> None:
    for number, name in enumerate(("a", "b", "c")):
        add(tmp_path, name, miou=None if number < 2 else 40.0, seed=number)
    assert fpl.load_results(tmp_path).warnings() == []


def test_what_was_logged_without_a_number_is_a_row_and_a_column(tmp_path: Path) -> None:
    add(tmp_path, "a", miou=None)
    history = fpl.load_results(tmp_path).history
    assert list(history["step"]) == [2, 4] and history["miou"].isna().all()


def test_a_record_of_what_is_elsewhere_that_is_cut_off_is_named(tmp_path: Path) -> None:
    add(tmp_path / "store", "a")
    path = tmp_path / "store" / ".left" / "runs.json"
    path.parent.mkdir()
    path.write_bytes(b"")
    with pytest.raises(FplError, match=r"runs\.json: cut off"):
        _ = fpl.load_results(tmp_path / "store").runs
    with pytest.raises(FplError, match="no such folder"):  # and blocks no other store
        fpl.load_results(tmp_path / "other")


def test_a_column_asked_for_twice_is_there_once(tmp_path: Path) -> None:
    add(tmp_path, "a")
    print_results(tmp_path, None, "run_id, seed,seed", tmp_path / "some.csv")
    assert (tmp_path / "some.csv").read_text().splitlines() == ["run_id,seed", f"{A},0"]


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


def test_many_rows_look_like_few(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, name in enumerate(("a", "b-with-a-long-name", "c")):
        add(tmp_path, name, miou=4.0 * 5**number, seed=number)
    for columns in (None, "run_id,warnings,loss.kind,seed,best_step"):
        print_results(tmp_path, None, columns, None)
        by_rich = capsys.readouterr().out
        with monkeypatch.context() as patched:
            patched.setattr("fpl.report.results.MANY", 1)
            # Rich draws one of the rows.
            patched.setattr("fpl.report.results.Table", OneRow)
            print_results(tmp_path, None, columns, None)
        assert capsys.readouterr().out == by_rich and by_rich.count("\n") > 6


class OneRow(Table):
    """A table that refuses a second row."""

    def add_row(self, *cells: object, **options: object) -> None:
        assert not self.rows
        super().add_row(*cells, **options)  # type: ignore[arg-type]


def test_configurations_that_differ_in_their_seed_are_read_as_any(tmp_path: Path) -> None:
    """What is read once for all seeds is what each text by itself gives, whatever stands around the seed."""
    texts = [
        *(json.dumps({**CONFIG, "seed": seed}, separators=(",", ":"), sort_keys=True) for seed in (0, 7, 123, -1, 2.5)),
        json.dumps({**CONFIG, "seed": 3}),
        '{"data":{"seed":4,"x":1}}',
        '{"data":{"seed":4},"seed":5}',
        '{"data":[{"seed":4}],"seed" :5}',
        '{"data":[{"seed": 4}],"seed":5}',
        '{"a":"\\"seed\\":1,","seed":5}',
        '{"seed":5,"loss":{"kind":"a\\u0007b"}}',
        '{"seed":true}',
        '{"loss":{}}',
    ]
    for text in texts:
        found = read_config(text)
        tree = json.loads(text.replace("\\u0007", "\N{REPLACEMENT CHARACTER}"))
        flat = found.flat if found.seed is None else {**found.flat, "seed": found.seed}
        assert flat == flatten(tree) and list(flat) == list(flatten(tree)), text
        assert found.recipe == recipe_digest(tree), text
    rows = [named_run(f"r{number}", text) for number, text in enumerate(texts)]
    for row in rows:
        write_run(tmp_path, row, [], [], [])
    frame, ids = fpl.load_results(tmp_path).runs.set_index("run_id"), [row["run_id"] for row in rows]
    # Those whose seed is none are left out.
    assert [frame.loc[ids[number], "seed"] for number in (1, 2, 5, 7)] == [7, 123, 3, 5] and ids[3] not in frame.index
    assert pd.isna(frame.loc[ids[6], "seed"]) and frame.loc[ids[6], "data.seed"] == 4


def test_a_text_nested_too_deeply_is_told_at_every_depth() -> None:
    for depth in (150, 400, 900, 5000):
        for text in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth):
            try:
                read_config('{"seed":0,"x":' + text + "}")
            except ValueError as error:
                assert "nested too deeply" in str(error)
