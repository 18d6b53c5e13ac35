"""Files of the store that are damaged, of strangers or of another version: named, and nothing else is lost."""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fpl
from fpl.errors import FplError
from fpl.names import is_name
from fpl.report.results import print_results
from fpl.store.collect import read_table
from fpl.store.columns import SCHEMAS
from fpl.store.done import has_failed, is_done, put_aside, read_run
from fpl.store.parts import read_part
from fpl.store.publish import publish_runs, publish_searches
from fpl.store.read import Results
from fpl.store.schema import EXAMPLES, FAILURES, HISTORY, KEYS, NOISE, RUNS, STUDIES, TRIALS
from fpl.store.write import failure_path, run_path, write_failure, write_run, write_table
from tests.report.world_search import EIGHTH, study, trial
from tests.store.test_store import add, config_of, id_of, named_run

GOOD, BAD = id_of("a-run"), id_of("b-run", 1)
FILES = {NOISE: f"{BAD}-0", STUDIES: "demo-bbbb0002", TRIALS: f"{EIGHTH}-00001"}
PARAMS = {"loss.strategy": "n-1", "loss.threshold": 0.9}


def file_of(out: Path, table: str) -> Path:
    return out / table / f"{FILES.get(table, BAD)}.parquet"


@pytest.fixture
def out(undamaged: Path, tmp_path: Path) -> Path:
    """Two of everything; the second is damaged by the tests."""
    shutil.copytree(undamaged, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undamaged")
    picture = {"step": 4, "part": "val", "image_id": "i", "kind": "k", "array": np.zeros((2, 3), np.uint8)}
    for number in range(2):
        name = add(folder, ("a-run", "b-run")[number], miou=40.0 + number, seed=number)
        write_table(
            file_of(folder, NOISE).with_stem(f"{name}-0"), NOISE, [{"run_id": name, "recipe": "r", "repeat": 0}]
        )
        (row,) = pq.read_table(run_path(folder, name)).to_pylist()
        classes = [{"choice": "last", "class_index": 0, "class_name": "sky"}]
        fuzziness = [{"step": 2, "direction": "12", "k_histogram": [3, 1]}]
        write_run(folder, row, [{"step": 4, "miou": 40.0 + number}], classes, fuzziness, [picture])
        write_failure(folder, {"run_id": f"{name}-failed", "recipe": name, "reason": "out of memory"})
    failure_path(folder, f"{BAD}-failed").rename(failure_path(folder, BAD))
    write_failure(folder, {"run_id": BAD, "recipe": BAD, "reason": "out of memory"})
    study(folder)
    study(folder, FILES[STUDIES], fraction="1/4")
    trial(folder, 0, PARAMS, 40.0)
    trial(folder, 1, PARAMS, 41.0)
    return folder


def check(out: Path, table: str, what: str = "") -> None:
    """The second file of a table is named, with words, and the first is shown."""
    before = len(getattr(Results(out), table))
    results = Results(out)
    frame = getattr(results, table)
    named = [found for found in results.left_out if found.table == table]
    assert named and {found.path for found in named} == {file_of(out, table)}
    assert what in str(named[0]) and str(file_of(out, table)) in str(named[0]) and named[0].hint
    assert len(frame) == before and BAD not in set(frame.get("run_id", ()))
    if table in (RUNS, HISTORY, EXAMPLES):
        assert GOOD in set(frame["run_id"])
    # Whoever only looks on, and does not read this table, hears of a whole file too.
    assert any(str(file_of(out, table)) in text for text in results.warnings())


@pytest.mark.parametrize("table", SCHEMAS)
@pytest.mark.parametrize("damage", ["empty", "text", "half", "folder", "foreign", "link", "pipe", "no rows", "flipped"])
def test_a_file_that_is_none(out: Path, table: str, damage: str) -> None:
    path = file_of(out, table)
    content = path.read_bytes()
    path.unlink()
    words = {"empty": "zero bytes", "folder": "is a folder", "foreign": "something else", "link": "link to nothing"}
    if damage == "folder":
        path.mkdir()
    elif damage == "link":
        path.symlink_to(out / "nowhere")
    elif damage == "pipe":
        os.mkfifo(path)  # whoever opens it waits for ever
    elif damage == "foreign":
        pq.write_table(pa.table({"feature": [1.0], "label": [2]}), path)
    elif damage == "no rows":
        write_table(path, table, [])
        if table not in (RUNS, FAILURES, NOISE, STUDIES, TRIALS):
            assert not Results(out).left_out  # a run without fuzziness has an empty one
            return
    elif damage == "flipped":
        path.write_bytes(content[: len(content) // 2] + bytes(8) + content[len(content) // 2 + 8 :])
    else:
        path.write_bytes({"empty": b"", "text": b"run_id,digest\n", "half": content[: len(content) // 2]}[damage])
    check(out, table, words.get(damage, ""))
    assert (out / table).is_dir() and is_done(out, GOOD)
    if table == RUNS:
        assert not is_done(out, BAD)
        with pytest.raises(FplError, match=BAD):
            read_run(path)
    if table == FAILURES:
        assert not has_failed(out, BAD)
    with pytest.raises(FplError):
        read_table(out, table)


def variants(table: str, path: Path) -> list[tuple[str, pa.Table]]:
    """The file with each column missing, retyped, null or nested."""
    whole = pq.read_table(path)
    made = []
    for number, field in enumerate(SCHEMAS[table]):
        other: Any = [1.5] * len(whole) if pa.types.is_string(field.type) else ["x"] * len(whole)
        made += [
            (f"{field.name} missing", whole.drop_columns([field.name])),
            (f"{field.name} retyped", whole.set_column(number, field.name, pa.array(other))),
            (f"{field.name} null", whole.set_column(number, field.name, pa.nulls(len(whole), field.type))),
            (f"{field.name} nested", whole.set_column(number, field.name, pa.array([{"x": 1}] * len(whole)))),
            (f"{field.name} twice", whole.append_column(field.name, whole[field.name])),
        ]
    return made


@pytest.mark.parametrize("table", SCHEMAS)
def test_columns_that_drifted(out: Path, table: str) -> None:
    """A key that is missing or null, and any column of another type, blocks its file; another that is missing none."""
    path = file_of(out, table)
    for name, changed in variants(table, path):
        column, damage = name.split()
        pq.write_table(changed, path)
        part, problems = read_part(path, table)
        blocked = damage in ("retyped", "nested", "twice") or column in KEYS[table]
        # What a trial that is complete must have beside its keys.
        blocked |= table == TRIALS and column == "score"
        assert len(problems) == blocked and (len(part) > 0) != blocked, name
        assert not blocked or column in problems[0] or "score" in problems[0]


def test_stored_otherwise_is_no_damage(out: Path) -> None:
    table = pq.read_table(run_path(out, BAD))
    changed = [
        pa.field(field.name, {pa.string(): pa.large_string(), pa.int64(): pa.int32()}.get(field.type, field.type))
        for field in table.schema
    ]
    pq.write_table(table.cast(pa.schema(changed)), run_path(out, BAD))
    assert is_done(out, BAD) and not Results(out).left_out


def test_a_row_of_another_run_is_no_run_that_is_done(out: Path) -> None:
    run_path(out, BAD).write_bytes(run_path(out, GOOD).read_bytes())
    assert not is_done(out, BAD) and list(Results(out).runs["run_id"]) == [GOOD]
    check(out, RUNS, f"another run, {GOOD}")


def test_one_bad_row_among_many_blocks_itself_alone(out: Path, tmp_path: Path) -> None:
    target = tmp_path / "published"
    publish_runs(out, target, {GOOD, BAD})
    path = target / RUNS / "all.parquet"
    rows = pq.read_table(path).to_pylist()
    broken = [{**rows[1], "run_id": f"c{number}", "config": "{"} for number in range(5)]
    write_table(path, RUNS, [*rows, *broken, {**rows[1], "run_id": "../../x"}])
    results = Results(target)
    assert list(results.runs["run_id"]) == [GOOD, BAD]
    one, other = results.left_out
    assert one.what.startswith("c0, c1, c2 and 2 more: no JSON") and other.what.startswith("row 8: run_id '../../x'")
    assert "version control" in one.hint


def test_a_run_under_another_name_is_left_out(out: Path, tmp_path: Path) -> None:
    """Where one file has the rows of many, their names alone tell them apart."""
    target = tmp_path / "published"
    publish_runs(out, target, {GOOD, BAD})
    path = target / RUNS / "all.parquet"
    one, other = pq.read_table(path).to_pylist()
    for name in ("b-run-00000000", "b", BAD.upper()):
        write_table(path, RUNS, [one, {**other, "run_id": name}])
        results = Results(target)
        assert list(results.runs["run_id"]) == [GOOD] and not is_done(target, name)
        (found,) = results.left_out
        assert found.what.startswith(f"{name}: its configuration is another run's") and name[-8:] in found.what


@pytest.mark.parametrize(
    ("table", "column", "value", "what"),
    [
        (RUNS, "config", "[1]", "object"),
        (RUNS, "config", "[" * 100_000, "nested too deeply"),
        (RUNS, "config", '{"seed": ' + "1" * 5000 + "}", "digits"),
        (RUNS, "config", '{"run_id": 1}', "column of the table"),
        # A number whose digits take for ever.
        (RUNS, "config", '{"data": {"split": {"fraction": "1e99999999"}}}', "data.split.fraction is '1e99999999'"),
        (RUNS, "config", '{"data": {"split": {"fraction": "1/0"}}}', "data.split.fraction is '1/0'"),
        (RUNS, "config", config_of(0), "its configuration is another run's"),
        (RUNS, "config", config_of(1).replace("camvid", "voc"), "its configuration is another run's"),
        (RUNS, "config", f" {config_of(1)}", "its configuration is another run's"),
        (RUNS, "digest", "0" * 16, "digest is '0000000000000000'"),
        (RUNS, "digest", "", "digest is ''"),
        (STUDIES, "search", "../../x", "no name"),
        (STUDIES, "space", '[{"key": "loss.threshold"}]', "choices, or low and high"),
        (STUDIES, "space", "[]", "without parameters"),
        (STUDIES, "base", "{}", "data.split.fraction"),
        (STUDIES, "base", '{"data": {"split": {"fraction": "1e99999999"}}}', "data.split.fraction"),
        (STUDIES, "metric", "run_id", "metric"),
        (STUDIES, "objectives", ["cost"], "objectives"),
        (STUDIES, "seeds", 0, "fewer than one"),
        (TRIALS, "params", '{"loss.gamma": 1}', "no parameter of its study"),
        (TRIALS, "params", '{"loss.threshold": 7}', "outside of its study"),
        (TRIALS, "state", "done", "state"),
        (TRIALS, "run_ids", ["/etc/passwd"], "no name"),
        (TRIALS, "run_scores", [float("nan")], "no number"),
        (TRIALS, "run_scores", [], "no number"),
        (TRIALS, "steps", [1, 2, 3], "reports"),
        (EXAMPLES, "height", 5, "bytes are no picture"),
        (EXAMPLES, "kind", "video", "no kind of picture"),
    ],
)
def test_values_that_are_none(out: Path, table: str, column: str, value: Any, what: str) -> None:
    path = file_of(out, table)
    (row,) = pq.read_table(path).to_pylist()
    write_table(path, table, [{**row, column: value}])
    results = Results(out)
    assert len(getattr(results, table)) == 1
    (found,) = results.left_out
    assert (found.table, found.path) == (table, path) and what in found.what


def test_a_file_that_the_system_keeps_is_not_put_aside(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, whole = run_path(out, BAD), Path.read_bytes

    def locked(self: Path) -> bytes:
        if self == path:
            raise PermissionError(13, "Permission denied", str(self))
        return whole(self)

    monkeypatch.setattr(Path, "read_bytes", locked)
    check(out, RUNS, "Permission denied")
    assert "permissions" in Results(out).left_out[0].hint
    with pytest.raises(FplError, match="Permission denied"):
        put_aside(out, BAD)
    assert path.exists()


def test_what_is_damaged_is_put_aside_and_kept(out: Path) -> None:
    for content in (b"first", b"second"):
        run_path(out, BAD).write_bytes(content)
        (told,) = put_aside(out, BAD)
        assert str(run_path(out, BAD)) in told and ".damaged" in told
    assert {path.read_bytes() for path in (out / RUNS).glob("*.damaged*")} == {b"first", b"second"}
    assert not Results(out).left_out and put_aside(out, GOOD) == []
    file_of(out, HISTORY).unlink()
    file_of(out, HISTORY).mkdir()
    put_aside(out, BAD)
    add(out, "b-run", seed=1)
    assert is_done(out, BAD)


def test_a_table_that_is_a_file(out: Path) -> None:
    for path in (out / NOISE).iterdir():
        path.unlink()
    (out / NOISE).rmdir()
    (out / NOISE).write_text("x")
    results = Results(out)
    assert results.noise.empty and [found.path for found in results.left_out] == [out / NOISE]


def test_results_are_printed_with_what_is_left_out(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_path(out, BAD).write_bytes(b"")
    file_of(out, HISTORY).write_bytes(b"x")
    print_results(out, None, None, None)
    printed = capsys.readouterr().out
    assert GOOD in printed and "40.00" in printed and "1 of 1 runs" in printed
    assert f"left out: {run_path(out, BAD)}: is empty" in printed and "puts this file aside" in printed
    # The run is not done without its row: what is left of its history has other advice.
    assert f"left out: {file_of(out, HISTORY)}" in printed and "its scores stand" in printed
    run_path(out, GOOD).write_bytes(b"")
    with pytest.raises(FplError, match="no finished run here") as caught:
        print_results(out, None, None, None)
    assert "zero bytes" in caught.value.hint


def test_publishing_leaves_out_what_is_damaged_and_never_overwrites_it(out: Path, tmp_path: Path) -> None:
    target = tmp_path / "published"
    file_of(out, TRIALS).write_bytes(b"x")
    run_path(out, BAD).write_bytes(b"x")
    publish_runs(out, target, {GOOD, BAD})
    assert list(Results(target).runs["run_id"]) == [GOOD] and publish_searches(out, target).new == 2
    assert len(Results(target).trials) == 1
    (target / TRIALS / "all.parquet").write_bytes(b"of many searches")
    with pytest.raises(FplError, match="Parquet file"):
        publish_searches(out, target)
    assert (target / TRIALS / "all.parquet").read_bytes() == b"of many searches"


def test_names() -> None:
    good = ("a", "synthetic_city-cps-fpl-tiny-1_8-s0-3fa91c02", "joint-d9cee4a1", "t090", "A" * 100)
    bad = ("", ".", "..", "a/b", "../x", "a.b", "-x", "_x", "a b", "a\n", "é", 'x"><img onerror=', "A" * 101, None, 3)
    assert all(map(is_name, good)) and not any(map(is_name, bad))


def test_frames_can_be_filtered_grouped_and_compared(tmp_path: Path) -> None:
    methods: list[dict[str, Any]] = [{"name": "cps", "cutmix": True}, {"name": "cps", "cutmix": False}, {"name": "ael"}]
    ids: list[str] = []
    for number, method in enumerate(methods):
        config = pd.Series({"method": method, "data": {"crop": [64, 64 + number // 2]}, "seed": number}).to_json()
        ids.append(named_run(f"r{number}", config)["run_id"])
        write_run(tmp_path, {**named_run(f"r{number}", config), "warnings": ["w"] * number}, [], [], [])
    runs = fpl.load_results(tmp_path).runs
    assert str(runs["method.cutmix"].dtype) == "boolean"
    assert list(runs[runs["method.cutmix"]]["run_id"]) == ids[:1]
    assert list(runs.groupby("data.crop")["run_id"].count()) == [2, 1] and runs.loc[0, "data.crop"] == (64, 64)
    assert len(runs.drop_duplicates()) == 3 and runs.loc[2, "warnings"] == ("w", "w")
    assert list(runs.query("`method.cutmix` == False")["run_id"]) == ids[1:2]
    stream = io.StringIO()
    runs.to_csv(stream, index=False)
    assert "(64, 65)" in stream.getvalue()


def test_a_score_that_is_another_in_runs_is_told(tmp_path: Path) -> None:
    study(tmp_path)
    one, other = named_run("a-run"), named_run("b-run")
    trial(tmp_path, 0, PARAMS, 19.63, run_ids=[one["run_id"]])
    trial(tmp_path, 1, PARAMS, 30.0, run_ids=[other["run_id"]])
    trial(tmp_path, 2, PARAMS, 50.0, state="final", run_ids=[one["run_id"]])
    scores = {"miou_whole_best": 19.53, "miou_whole_last": 50.0}
    write_run(tmp_path, {**one, **scores}, [], [], [])
    write_run(tmp_path, {**other, **scores, "miou_whole_best": 30.0}, [], [], [])
    told = [text for text in Results(tmp_path).warnings() if "two scores" in text]
    assert len(told) == 1 and one["run_id"] in told[0] and "19.63 in trial 0" in told[0] and "19.53 in runs" in told[0]


def test_hints_of_what_was_meant(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FplError) as caught:
        print_results(out, "miou_last > 20", None, None)
    assert "did you mean miou_whole_last" in caught.value.hint and "sliding" not in caught.value.hint
    monkeypatch.chdir(out.parent)
    out.rename(out.parent / "mini")
    (out.parent / "runs").mkdir()
    (out.parent / "mini").rename(out.parent / "runs" / "mini")
    with pytest.raises(FplError, match="no such folder") as caught:
        fpl.load_results("results/local")
    assert caught.value.hint == "there are some in runs/mini"
