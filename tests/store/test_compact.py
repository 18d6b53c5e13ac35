"""The compacted files of a store: whatever happens to them or to the single files, what is shown is what those hold."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fpl.errors import FplError
from fpl.store import compact as compacting
from fpl.store.collect import look_over, read_parts
from fpl.store.columns import SCHEMAS
from fpl.store.compact import FOLDER, compact, held
from fpl.store.done import is_done, put_aside
from fpl.store.parts import clean, files_of, read_part
from fpl.store.publish import publish_runs
from fpl.store.read import Results
from fpl.store.schema import FAILURES, HISTORY, RUNS, STUDIES, TRIALS
from fpl.store.write import failure_path, run_path, write_failure, write_table
from tests.report.world_search import study, trial
from tests.store.test_store import add, id_of

RUN_A, RUN_B, RUN_C, RUN_D, RUN_E, RUN_F = NAMES = tuple(
    id_of(f"run-{letter}", seed) for seed, letter in enumerate("abcdef")
)
# Sorted between the others.
LATER = id_of("run-c2")
FAILED = id_of("failed-a")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six runs, two failures, a study with two trials, all of yesterday; nothing is compacted yet."""
    folder = tmp_path_factory.mktemp("world")
    for number, letter in enumerate("abcdef"):
        add(folder, f"run-{letter}", miou=40.0 + number, seed=number)
    for name in (FAILED, "failed-b"):
        write_failure(folder, {"run_id": name, "recipe": name, "reason": "out of memory"})
    study(folder)
    for number in range(2):
        trial(folder, number, {"loss.strategy": "n-1", "loss.threshold": 0.9}, 40.0 + number)
    age(folder)
    return folder


@pytest.fixture
def out(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(world, tmp_path / "out")
    monkeypatch.setattr(compacting, "ENOUGH", 1)
    monkeypatch.setattr(compacting, "AT_ONCE", 4)
    return tmp_path / "out"


def age(folder: Path) -> None:
    """Make all files older than what may still change unseen."""
    yesterday = time.time() - 86400
    for path in folder.glob("*/*.parquet"):
        os.utime(path, (yesterday, yesterday))


def singly(out: Path, table: str) -> tuple[pa.Table, list[str]]:
    """The truth: every file by itself, in the order of names."""
    parts = [(path, *read_part(path, table)) for path in sorted((out / table).glob("[!.]*.parquet"))]
    whole = pa.concat_tables([SCHEMAS[table].empty_table(), *(part for _, part, _ in parts)])
    return clean(whole), [f"{path}: {problem}" for path, _, problems in parts for problem in problems]


def check(out: Path) -> None:
    for table in SCHEMAS:
        rows, left_out = read_parts(out, table)
        wanted, problems = singly(out, table)
        # As text NaN equals itself.
        assert rows.schema == wanted.schema and repr(rows.to_pylist()) == repr(wanted.to_pylist()), table
        assert [f"{each.path}: {each.what}" for each in left_out] == problems
        # Who only looks over a table names the files that cannot be read at all.
        assert {each.path for each in look_over(out, table)} <= {each.path for each in left_out}


def count(out: Path, table: str) -> int:
    """Files that the compacted one answers for."""
    return len(held(out, table, files_of(out, table)).places)


def remove(out: Path) -> None:
    run_path(out, RUN_C).unlink()
    failure_path(out, FAILED).unlink()


def train_again(out: Path) -> None:
    add(out, "run-b", miou=12.0, seed=1)


def fail_again(out: Path) -> None:
    write_failure(out, {"run_id": "failed-b", "recipe": "failed-b", "reason": "another"})


def succeed(out: Path) -> None:
    add(out, "failed-a", miou=50.0)


def add_between(out: Path) -> None:
    add(out, "run-c2", miou=33.0)


def damage(out: Path) -> None:
    run_path(out, RUN_D).write_bytes(b"")
    (out / HISTORY / f"{RUN_A}.parquet").write_bytes(b"x")
    shutil.copy(run_path(out, RUN_A), run_path(out, RUN_E))


def change_a_trial(out: Path) -> None:
    trial(out, 1, {"loss.strategy": "n-1", "loss.threshold": 0.9}, 45.0)


CHANGES = (remove, train_again, fail_again, succeed, add_between, damage, change_a_trial)


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_is_read_anew(out: Path, change: Callable[[Path], None]) -> None:
    compact(out)
    assert (count(out, RUNS), count(out, FAILURES), count(out, TRIALS)) == (6, 2, 2)
    check(out)
    change(out)
    check(out)
    assert count(out, HISTORY) >= 5 or change is damage
    # Once more: from what was compacted and what is new.
    age(out)
    compact(out)
    check(out)


def test_held_rows_are_not_opened_again(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compact(out)
    add(out, "run-c2")
    opened: list[str] = []

    def spy(path: Path, table: str) -> tuple[pa.Table, list[str]]:
        opened.append(path.stem)
        return read_part(path, table)

    monkeypatch.setattr("fpl.store.collect.read_part", spy)
    assert len(read_parts(out, RUNS)[0]) == 7 and opened == [LATER]


def test_what_changed_just_now_waits(out: Path) -> None:
    """Within a tick of the clock it could change again and have the same size and time."""
    add(out, "run-c2")
    compact(out)
    assert (count(out, RUNS), len(files_of(out, RUNS))) == (6, 7)


def test_few_new_files_are_not_worth_it(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compact(out)
    before = (out / FOLDER / "runs.parquet").read_bytes()
    monkeypatch.setattr(compacting, "ENOUGH", 2)
    add(out, "run-c2")
    age(out)
    # The other files have another time now, and are as new.
    compact(out)
    assert count(out, RUNS) == 7 and (out / FOLDER / "runs.parquet").read_bytes() != before
    os.utime(run_path(out, add(out, "run-z")), (0, 0))
    compact(out)
    assert count(out, RUNS) == 7
    check(out)


def test_a_damaged_run_is_named_and_trained_again(out: Path) -> None:
    compact(out)
    damage(out)
    assert not is_done(out, RUN_D) and "zero bytes" in Results(out).warnings()[-1] + Results(out).warnings()[0]
    put_aside(out, RUN_D)
    add(out, "run-d", miou=1.0, seed=3)
    assert list(Results(out).runs.query(f"run_id == '{RUN_D}'")["miou_whole_last"]) == [1.0]


def of_another_schema(path: Path) -> None:
    table = pq.read_table(path)
    pq.write_table(table.drop_columns([table.column_names[-1]]), path)


def with_first_row(path: Path, column: str, value: str) -> None:
    """As a stranger might make it: a good index over rows that no single file would be let through with."""
    index = pq.read_metadata(path).metadata[compacting.INDEX]
    table = pq.read_table(path)
    values = [value, *table[column].to_pylist()[1:]]
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table.set_column(table.schema.get_field_index(column), column, pa.array(values)))
        writer.add_key_value_metadata({compacting.INDEX: index})


def with_rows_of_others(path: Path) -> None:
    with_first_row(path, "run_id", "../../x")


def with_a_configuration_that_is_none(path: Path) -> None:
    with_first_row(path, "config", "{")


def with_the_configuration_of_another(path: Path) -> None:
    with_first_row(path, "config", pq.read_table(path)["config"][1].as_py())


def without_index(path: Path) -> None:
    pq.write_table(pq.read_table(path), path)


def flipped(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:40] + bytes(byte ^ 255 for byte in content[40:60]) + content[60:])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)  # whoever opens it waits for ever


def gone(path: Path) -> None:
    path.unlink()


BROKEN = (
    *(of_another_schema, with_rows_of_others, with_a_configuration_that_is_none, with_the_configuration_of_another),
    *(without_index, flipped, empty),
)


@pytest.mark.parametrize("harm", [*BROKEN, folder, pipe, gone])
def test_a_compacted_file_that_is_none_is_as_if_it_were_not_there(out: Path, harm: Callable[[Path], None]) -> None:
    compact(out)
    harm(out / FOLDER / "runs.parquet")
    check(out)
    assert len(Results(out).runs) == 6 and not Results(out).left_out
    if harm not in (folder, pipe):
        compact(out)
        check(out)


def test_trials_that_do_not_fit_their_study_are_named_file_by_file(out: Path) -> None:
    compact(out)
    path = out / TRIALS / files_of(out, TRIALS)[1]
    (row,) = pq.read_table(path).to_pylist()
    write_table(path, TRIALS, [{**row, "params": '{"loss.gamma": 1}'}])
    age(out)
    compact(out)  # by itself the row is as good as any
    assert count(out, TRIALS) == 2 and count(out, STUDIES) == 1
    (found,) = Results(out).left_out if len(Results(out).trials) == 2 else [*read_parts(out, TRIALS)[1]]
    assert found.path == path and "no parameter of its study" in found.what


def test_a_store_that_cannot_be_written(out: Path) -> None:
    compact(out)
    before = {path.name: path.read_bytes() for path in (out / FOLDER).iterdir()}
    add(out, "run-c2")
    age(out)
    shutil.rmtree(out / FOLDER)
    (out / FOLDER).write_text("a file")
    with pytest.raises(FplError, match=FOLDER):
        compact(out)
    check(out)
    assert before


def test_a_kill_at_any_moment_loses_nothing(out: Path) -> None:
    """Killed in the middle of writing, again and again: the compacted file is the old or the new one."""
    compact(out)
    program = (
        "import sys, os, signal\n"
        "from pathlib import Path\n"
        "from fpl.store import compact as c\n"
        "c.ENOUGH = 1\n"
        "moment, calls = int(sys.argv[2]), []\n"
        "def audit(event, args):\n"
        "    if event in ('open', 'os.rename') and '/compact/' in str(args):\n"
        "        calls.append(event)\n"
        "        if len(calls) == moment:\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "sys.addaudithook(audit)\n"
        "c.compact(Path(sys.argv[1]))\n"
    )
    add(out, "run-c2")
    age(out)
    codes = []
    for moment in (2, 3, 5, 1000):
        codes.append(subprocess.run([sys.executable, "-c", program, str(out), str(moment)], check=False).returncode)
        check(out)
    assert codes == [-signal.SIGKILL] * 3 + [0] and count(out, RUNS) == 7


def test_progress_is_told(out: Path) -> None:
    told: list[tuple[int, int]] = []
    compact(out, lambda done, total: told.append((done, total)))
    files = sum(len(files_of(out, table)) for table in SCHEMAS)
    assert told == [(number, files) for number in range(1, files + 1)] and files == 29


def test_what_was_published_lies_beside_it(out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a copy of what was published, whose runs are in one file, those that came later are compacted."""
    publish_runs(out, tmp_path / "published", set(NAMES))
    shutil.copytree(tmp_path / "published", out, dirs_exist_ok=True)
    add(out, "run-c2")
    age(out)
    compact(out)
    opened = []

    def spy(path: Path, table: str) -> tuple[pa.Table, list[str]]:
        opened.append(path.stem)
        return read_part(path, table)

    monkeypatch.setattr("fpl.store.collect.read_part", spy)
    rows, left_out = read_parts(out, RUNS)
    assert sorted(rows["run_id"].to_pylist()) == sorted((*NAMES, LATER)) and not left_out and opened == ["all"]
