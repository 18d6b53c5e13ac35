"""A store on object storage with a compacted file: few requests, and what is read is what the single files hold."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fpl import mirrors
from fpl.errors import FplError
from fpl.files import keep, remove
from fpl.store import compact as compacting
from fpl.store.collect import read_parts
from fpl.store.columns import SCHEMAS
from fpl.store.compact import FOLDER, compact
from fpl.store.done import is_done, put_aside, run_row
from fpl.store.left import left_there
from fpl.store.read import Results, load_results
from fpl.store.remote import open_store
from fpl.store.schema import CLASSES, FAILURES, FUZZINESS, HISTORY, RUNS
from fpl.store.write import run_path, write_failure, write_table
from tests.s3_server import ENVIRONMENT, Server, s3_server
from tests.store.test_store import add, id_of

RUN_A, RUN_B, RUN_C = NAMES = tuple(id_of(name, seed) for seed, name in enumerate("abc"))
FAILED = id_of("x")
RUN = (RUNS, HISTORY, CLASSES, FUZZINESS)


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with s3_server() as server:
        yield server


class World:
    """A store at a URL, written from one machine, and a plain folder with the same files written to it."""

    def __init__(self, server: Server, place: str, folder: Path) -> None:
        self.server = server
        self.url = server.url(place)
        self.folder = folder
        self.plain = folder / "plain"
        self.own = self.machine("writer")

    def machine(self, name: str) -> Path:
        """The mirror of a machine, the only one that this process knows now."""
        mirrors._MIRRORS.clear()
        return mirrors.attach(self.url, self.folder / name).folder

    def write(self, change: Callable[[Path], None]) -> None:
        """Carry out a change as the writer, and in the plain folder."""
        self.machine("writer")
        change(self.own)
        change(self.plain)

    def compact(self) -> None:
        self.machine("writer")
        open_store(self.own, whole=True)
        compact(self.own)

    def fetched(self, name: str) -> list[str]:
        """The files whose content a machine asks for when it opens the store; what it reads then is checked."""
        place = self.machine(name)
        self.server.requests.clear()
        open_store(place)
        self.check(place)
        asked = [each.split()[1] for each in self.server.requests if each.startswith("GET ") and each.count(" ") == 1]
        return sorted({each.split("/", 3)[3] for each in asked})

    def check(self, place: Path) -> None:
        for table in SCHEMAS:
            rows, left_out = read_parts(place, table)
            wanted, problems = read_parts(self.plain, table)
            assert repr(rows.to_pylist()) == repr(wanted.to_pylist()), table
            assert [(each.path.name, each.what) for each in left_out] == [(p.path.name, p.what) for p in problems]


@pytest.fixture(scope="module")
def settings() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        for name, value in ENVIRONMENT.items():
            patched.setenv(name, value)
        patched.setattr(compacting, "ENOUGH", 1)
        # What was written a moment ago is fit to be compacted.
        patched.setattr(compacting, "SETTLED", -60.0)
        yield


def make(server: Server, place: str, folder: Path) -> World:
    """Three runs and two failures, compacted."""
    found = World(server, place, folder)
    for number, name in enumerate("abc"):
        found.write(functools.partial(add, name=name, miou=40.0 + number, seed=number))
    for name in (FAILED, "y"):
        found.write(functools.partial(fail, name=name))
    found.compact()
    return found


@pytest.fixture(scope="module")
def still(running: Server, settings: None, tmp_path_factory: pytest.TempPathFactory) -> World:
    """One whose objects no test changes for good."""
    return make(running, "bucket/still", tmp_path_factory.mktemp("still"))


@pytest.fixture
def world(still: World) -> Iterator[World]:
    yield still
    mirrors._MIRRORS.clear()
    shutil.rmtree(still.folder / "reader", ignore_errors=True)


def fail(out: Path, name: str) -> None:
    write_failure(out, {"run_id": name, "recipe": name, "reason": "out of memory"})


COMPACTED = sorted(f"{FOLDER}/{table}.parquet" for table in (*RUN, FAILURES))


def test_of_all_runs_only_compacted_files_are_fetched(world: World) -> None:
    assert world.fetched("reader") == COMPACTED
    assert not list((world.folder / "reader").glob("[!c.]*/*.parquet"))
    # Each table, the store's own folder and that of the compacted files are listed once; where there is nothing, once
    # more, for another answer than a list looks like an empty one. Nothing else is asked.
    listings = [each for each in world.server.requests if each.startswith("GET ") and each.count(" ") == 2]
    assert len(listings) == len(SCHEMAS) + 2 + len(set(SCHEMAS) - {*RUN, FAILURES})
    assert world.fetched("reader") == []


def test_python_reads_it_by_its_url(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    mirrors._MIRRORS.clear()
    monkeypatch.setenv(mirrors.SCRATCH_VARIABLE, str(world.folder / "scratch"))
    results, plain = load_results(world.url), load_results(world.plain)
    assert list(results.runs["run_id"]) == list(NAMES)
    for name in ("runs", "history", "classes", "fuzziness", "failures"):
        assert repr(getattr(results, name).to_dict("records")) == repr(getattr(plain, name).to_dict("records"))
    assert results.left_out == []


def test_what_is_newer_is_fetched_beside(running: Server, settings: None, tmp_path: Path) -> None:
    world = make(running, "bucket/newer", tmp_path)
    world.fetched("early")
    world.write(functools.partial(add, name="d", miou=50.0, seed=5))
    world.write(functools.partial(add, name="x", miou=12.0))  # its failure goes
    world.write(longer)
    world.write(lambda out: remove(run_path(out, RUN_B)))
    new = (id_of("d", 5), FAILED)
    changed = sorted([f"{RUNS}/{RUN_A}.parquet", *(f"{table}/{name}.parquet" for table in RUN for name in new)])
    assert world.fetched("early") == changed
    assert world.fetched("late") == sorted([*COMPACTED, *changed])
    # By a machine that has few of the single files, such as one that trained a run.
    compact(world.machine("early"))
    assert world.fetched("early") == [] and world.fetched("last") == COMPACTED
    # Of failures there was none to write anew; what was fetched before stays.
    assert world.fetched("late") == [name for name in COMPACTED if FAILURES not in name]
    mirrors._MIRRORS.clear()


def longer(out: Path) -> None:
    """The row of a run of another size: within a second of the server's clock that alone tells it from the old one."""
    write_table(run_path(out, RUN_A), RUNS, [{**run_row(run_path(out, RUN_A)), "device": "a processor" * 20}])


@pytest.mark.parametrize("content", [b"x", b"PAR1" + bytes(200), None])
def test_without_a_compacted_file_that_can_be_used_all_are_fetched(world: World, content: bytes | None) -> None:
    world.machine("writer")
    harmed = world.own / FOLDER / f"{RUNS}.parquet"
    twin = mirrors.mirror_of(harmed)
    assert twin is not None
    if content is None:
        twin.delete(harmed)
    else:
        (world.folder / "content").write_bytes(content)
        twin.put(world.folder / "content", harmed)
    rest = [name for name in COMPACTED if content is not None or name != f"{FOLDER}/{RUNS}.parquet"]
    try:
        assert world.fetched("reader") == sorted([*rest, *(f"{RUNS}/{name}.parquet" for name in NAMES)])
    finally:
        world.machine("writer")
        keep(harmed)


def test_rows_that_are_none_are_found_when_they_are_read(world: World) -> None:
    """The index is good, the rows behind it are not: then, too, the single files are fetched."""
    place = world.machine("reader")
    open_store(place)
    path = place / FOLDER / f"{HISTORY}.parquet"
    content = path.read_bytes()
    path.write_bytes(content[:30] + bytes(byte ^ 255 for byte in content[30:60]) + content[60:])
    world.check(place)
    assert {path.stem for path in (place / HISTORY).iterdir()} == set(NAMES) and not left_there(place, HISTORY)


def test_a_folder_that_is_not_known_as_a_mirror_says_what_it_lacks(world: World) -> None:
    place = world.machine("reader")
    open_store(place)
    mirrors._MIRRORS.clear()
    world.check(place)  # of the compacted files alone
    shutil.rmtree(place / FOLDER)
    results = Results(place)
    assert results.runs.empty and len(results.left_out) == len(NAMES) * len(RUN) + 2
    assert "object storage alone: name the store by its URL" in str(results.left_out[0])


def test_a_run_that_is_not_here_is_not_trained_again(world: World) -> None:
    place = world.machine("reader")
    open_store(place)
    assert not run_path(place, RUN_A).exists()
    with pytest.raises(FplError, match="object storage alone"):
        put_aside(place, RUN_A)
    # Who carries out runs fetches all.
    open_store(place, whole=True)
    assert is_done(place, RUN_A) and put_aside(place, RUN_A) == [] and not left_there(place, RUNS)
    world.check(place)
