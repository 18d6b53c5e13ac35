"""Whole runs in a store on object storage, carried on by machines that share nothing else."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

import fpl
from fpl import mirrors
from fpl.config.schema import RunConfig
from fpl.files import write_atomic
from fpl.store.columns import SCHEMAS
from fpl.store.remote import open_store
from fpl.sweep import job, noise
from fpl.sweep.execution import Execution
from fpl.sweep.job import Job, run_job
from fpl.sweep.local import StoppedError
from fpl.sweep.places import Places
from fpl.sweep.plan.wanted import Wanted
from fpl.sweep.prepare import pin
from fpl.sweep.reproduce import Account
from fpl.train.runtime import Verdict
from fpl.train.trained import find_weights
from tests.s3_server import ENVIRONMENT, Server, s3_server
from tests.train.runs import OPTIONS, assert_equal_results, run


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def server(running: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    running.requests.clear()
    yield running
    mirrors._MIRRORS.clear()


def on_machine(places: Places, url: str, folder: Path) -> Places:
    """The places of a machine whose mirror lies in a folder; it is the only one in this process now."""
    mirrors._MIRRORS.clear()
    found = dataclasses.replace(places, out=folder, url=url)
    found.attach()
    return found


def test_a_run_begun_on_one_machine_ends_on_another_with_the_same_bits(
    config: RunConfig, places: Places, server: Server, tmp_path: Path
) -> None:
    url = server.url("bucket/moved")
    one = on_machine(places, url, tmp_path / "one")
    with pytest.raises(StoppedError):
        run(config, one, on_report=lambda step, metrics: Verdict.STOP if step == 4 else Verdict.GO)
    steps = {path.name for path in tmp_path.glob("one/checkpoints/*/*.pt")}
    assert {"step_00000002.pt", "step_00000004.pt"} <= steps

    two, said = on_machine(places, url, tmp_path / "two"), list[int]()

    def report(step: int, metrics: dict[str, float]) -> Verdict:
        said.append(step)
        return Verdict.GO

    run(config, two, on_report=report)
    assert min(said) > 4
    # What the second machine wrote, as a third reads it.
    run(config, places)
    third = on_machine(places, url, tmp_path / "three")
    assert open_store(url) != third.out  # Python, which is told nothing of folders, has one of its own
    mirrors._MIRRORS.clear()
    third.attach()
    for table in SCHEMAS:
        mirrors.refresh(third.out / table)
    (run_id,) = fpl.load_results(places.out).runs["run_id"]
    assert find_weights(third.out, run_id[:12], "best").is_file()
    assert_equal_results(places, third)
    names = {request.split()[1] for request in server.requests if request.startswith("PUT")}
    assert not [name for name in names if name.endswith((".tmp", ".lock"))]


def test_a_run_that_another_machine_took_over_stops_with_the_reason(
    config: RunConfig, places: Places, server: Server, tmp_path: Path
) -> None:
    one = on_machine(places, server.url("bucket/taken"), tmp_path / "one")
    pinned, *_ = pin(config, places)
    ours = Job.of(pinned, one, Execution(**{**vars(OPTIONS), "local": True}), "cpu")
    lease = one.out / "leases" / ours.run_id
    twin = mirrors.mirror_of(lease)
    assert twin is not None

    def report(step: int, metrics: dict[str, float]) -> Verdict:
        (tmp_path / "token").write_bytes(b"two 0123")
        twin.put(tmp_path / "token", lease)
        return Verdict.GO

    stopped = run_job(ours, report)
    assert (stopped.status, stopped.reason[:17]) == ("stopped", "two took it over,")
    assert len(list(one.checkpoints(ours.run_id).glob("step_*.pt"))) == 1
    assert twin.folders(one.out) == ["checkpoints", "leases", "logs"] and twin.read(lease) == b"two 0123"


def test_a_job_that_another_machine_has_done_is_done_here(
    config: RunConfig, places: Places, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.url("bucket/twice")
    pinned, *_ = pin(config, places)
    done = []
    for name in ("one", "two"):
        there = on_machine(places, url, tmp_path / name)
        execution = Execution(**{**vars(OPTIONS), "local": True})
        done.append(run_job(Job.of(pinned, there, execution, "cpu")))
    assert [result.status for result in done] == ["done", "done"]
    assert done[0].metrics == done[1].metrics
    rows = [request for request in server.requests if request.startswith("PUT /bucket/twice/runs/s")]
    assert len(rows) == 1
    one, two = (path.read_text() for path in sorted(tmp_path.glob("*/logs/*.log")))
    assert two.startswith(one) and "is done" in two[len(one) :]
    (log,) = (tmp_path / "two" / "logs").iterdir()
    twin = mirrors.mirror_of(log)
    assert twin is not None and twin.read(log) == two.encode()
    # Another worker of the run, on a machine of its own, does not write over it.
    monkeypatch.setattr(job, "_shared", lambda: True)
    monkeypatch.setattr(job.torch.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(job, "_run", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        job._run_logged(Job.of(pinned, there, execution, "cpu"), None)
    assert twin.read(log) == two.encode() and b"ZeroDivisionError" in (twin.read(log.with_suffix(".rank1.log")) or b"")


def test_repetitions_go_into_stores_of_their_own_there(
    config: RunConfig, places: Places, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = on_machine(places, server.url("bucket/noisy"), tmp_path / "driver")

    def carry_out(wanted: object, apart: Places, *_: object, **__: object) -> Account:
        """As a worker of Ray, which knows no mirror but that of its job."""
        mirrors._MIRRORS.clear()
        apart.attach()
        write_atomic(apart.out / "runs" / "x.parquet", b"a row")
        return Account()

    monkeypatch.setattr(noise, "carry_out", carry_out)
    wanted = Wanted("recipe", config, ["table.row.column"])
    noise.measure_noise(wanted, 2, there, Execution(), estimate=lambda run: 1.0, say=lambda text: None)
    written = [request.split()[1] for request in server.requests if request.startswith("PUT")]
    assert written == [f"/bucket/noisy/repeats/{repeat}/runs/x.parquet" for repeat in range(2)]


def test_a_store_below_another_is_below_it_there_too(places: Places) -> None:
    plain = places.below("repeats/0")
    assert (plain.out, plain.url) == (places.out / "repeats" / "0", None)
    assert dataclasses.replace(places, url="gs://bucket/x").below("repeats/0").url == "gs://bucket/x/repeats/0"
