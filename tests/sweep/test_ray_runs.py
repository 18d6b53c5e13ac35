"""Runs on a real Ray of two CPUs on this machine, undisturbed, stopped, diverging and killed."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import ray
from ray.cluster_utils import Cluster as RayNodes
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

import fpl
from fpl.config.compose import load_config
from fpl.errors import FplError
from fpl.sweep.cluster import Cluster
from fpl.sweep.execution import Execution
from fpl.sweep.job import Job, JobResult, run_job
from fpl.sweep.job import finished as finished_job
from fpl.sweep.launch.tune_driver import run_on_ray, run_side_by_side, search_on_ray
from fpl.sweep.places import Places
from fpl.sweep.session import authentication, environment, ray_session
from tests.sweep.ray_support import Recorder, assert_same_weights, at, descendants, job_of, kill, wait_until
from tests.train.runs import assert_equal_results
from tests.train.test_workers import start_workers

pytestmark = [pytest.mark.ray, pytest.mark.timeout(1500)]


@dataclass
class Machines:
    """The connected cluster, and the means to add a node and to kill it."""

    cluster: Cluster
    nodes: RayNodes

    def raylet(self, node: Any) -> int:
        pid: int = node.all_processes["raylet"][0].process.pid
        return pid

    def processes(self, name: str) -> list[int]:
        """Processes of Ray on the head node whose title begins so."""
        found = descendants(self.raylet(self.nodes.head_node))
        return [pid for pid, title in found.items() if title.startswith(name)]


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    with environment(authentication() | {"RAY_USAGE_STATS_ENABLED": "0"}):
        ray._raylet.Config.initialize("")
        nodes = RayNodes(
            initialize_head=True,
            head_node_args={"num_cpus": 2, "include_dashboard": False, "object_store_memory": 100 * 2**20},
        )
        try:
            with ray_session(nodes.address) as cluster:
                yield Machines(cluster, nodes)
        finally:
            nodes.shutdown()


def all_cpus_free() -> bool:
    return wait_until(lambda: ray.available_resources().get("CPU") == ray.cluster_resources()["CPU"], 120)


class StopAtFirstReport(FIFOScheduler):  # type: ignore[misc]
    """Stops one job at its first report."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index

    def on_trial_result(self, controller: Any, trial: Any, result: dict[str, Any]) -> str:
        stop = trial.config["index"] == self.index and "step" in result
        return TrialScheduler.STOP if stop else TrialScheduler.CONTINUE


class AfterTheGang(StopAtFirstReport):
    """Lets the runs of the main thread wait at a report until a gang beside them has reported too."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.at_work = threading.Event()

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune pickles it into a file that nobody reads

    def on_trial_result(self, controller: Any, trial: Any, result: dict[str, Any]) -> str:
        if threading.current_thread() is not threading.main_thread():
            if "step" in result:
                self.at_work.set()
            return TrialScheduler.CONTINUE  # type: ignore[no-any-return]
        if not self.at_work.wait(200):
            raise KeyboardInterrupt
        return super().on_trial_result(controller, trial, result)


@dataclass
class Finished:
    """What became of jobs that one process or one gang was given, one after the other, and of one beside them."""

    plain: Job
    diverging: Job
    stopped: Job
    killed: Job | None
    beside: Job | None
    results: dict[str, JobResult]
    watcher: Recorder
    free: bool


def places_in(data_places: Places, folder: Path) -> Places:
    return Places(folder, data_places.data_root, data_places.splits_root)


@pytest.fixture(scope="module")
def inline(
    machines: Machines, data_places: Places, run_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Finished:
    make = functools.partial(job_of, load_config(run_file), places_in(data_places, tmp_path_factory.mktemp("inline")))
    jobs, beside = [make(seed=1, lr=1e6), make(seed=0), make(seed=3)], make(seed=2)
    # Each of the jobs holds all CPUs.
    batches = [
        (jobs, Execution(cpus_per_worker=2, concurrency=1)),
        ([beside], Execution(launcher="gang", workers=2, cpus_per_worker=0, concurrency=1)),
    ]
    watcher, scheduler = Recorder(), AfterTheGang(index=2)
    # Ray ends a driver that owns objects, without a word, when the raylet dies.
    with mock.patch.object(ray, "put", side_effect=AssertionError("the driver owns an object")):
        results = run_side_by_side(batches, machines.cluster, watcher, scheduler=scheduler)
    return Finished(jobs[1], jobs[0], jobs[2], None, beside, results, watcher, all_cpus_free())


@pytest.fixture(scope="module")
def gang(machines: Machines, data_places: Places, run_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """As the jobs above, and one of its two workers is killed in the middle of a run."""
    make = functools.partial(job_of, load_config(run_file), places_in(data_places, tmp_path_factory.mktemp("gang")))
    jobs = [make(seed=2, steps=12), make(seed=1, lr=1e6), make(seed=0), make(seed=3)]
    killed = jobs[0].run_id

    def strike(run_id: str, step: int) -> None:
        if run_id == killed and step == 6 and watcher.starts.count(run_id) == 1:
            pids = machines.processes("ray::RayTrainWorker")
            assert len(pids) == 2
            threading.Timer(0.2, kill, [pids[:1]]).start()

    watcher, scheduler = Recorder(strike), StopAtFirstReport(index=3)
    results = run_on_ray(jobs, Execution(launcher="gang", workers=2), machines.cluster, watcher, scheduler=scheduler)
    return Finished(jobs[2], jobs[1], jobs[3], jobs[0], None, results, watcher, all_cpus_free())


@pytest.fixture(params=["inline", "gang"])
def finished(request: pytest.FixtureRequest) -> Finished:
    found: Finished = request.getfixturevalue(request.param)
    return found


def test_a_diverging_run_is_recorded_and_the_others_go_on(finished: Finished) -> None:
    result = finished.results[finished.diverging.run_id]
    assert result.status == "failed"
    assert "diverged" in result.reason
    (failure,) = fpl.load_results(finished.plain.places.out).failures.to_dict("records")
    assert (failure["run_id"], failure["reason"]) == (result.run_id, result.reason)
    assert "Traceback" in Path(failure["log"]).read_text()
    assert finished.results[finished.plain.run_id].status == "done"
    assert finished.watcher.starts.count(finished.plain.run_id) == 1
    # Not tried again: it would only diverge again.
    assert finished.watcher.starts.count(finished.diverging.run_id) == 1


def test_a_stop_ends_the_run_at_its_report_and_frees_its_lock(finished: Finished) -> None:
    assert finished.results[finished.stopped.run_id].status == "stopped"
    assert [step for run_id, step, _ in finished.watcher.reports if run_id == finished.stopped.run_id] == [2]
    assert run_job(finished.stopped).status == "done"
    log = finished.stopped.log.read_text()
    assert "continuing at step 2 of 6" in log


def test_nothing_stays_reserved(finished: Finished) -> None:
    # Without Ray's dashboard, as here, Ray Train does not free what a run held that Tune ended from outside.
    assert finished.free
    assert {result.run_id for result in finished.watcher.ends} == set(finished.results)


def test_inline_gives_what_the_same_run_without_ray_gives(inline: Finished, tmp_path: Path) -> None:
    alone = at(inline.plain, tmp_path / "alone")
    assert run_job(alone).status == "done"
    assert_same_weights(inline.plain, alone)
    assert inline.results[alone.run_id].metrics == run_metrics(alone, inline.results[alone.run_id])


def test_a_gang_with_a_killed_worker_gives_what_two_undisturbed_processes_give(
    gang: Finished, run_file: Path, tmp_path: Path
) -> None:
    assert gang.killed is not None
    assert gang.watcher.starts.count(gang.killed.run_id) == 2
    assert "continuing at step" in gang.killed.log.read_text()
    pair = at(gang.killed, tmp_path / "pair")
    for code, errors in start_workers(run_file, pair.places, "seed=2", "train.steps=12"):
        assert code == 0, errors
    assert_same_weights(gang.killed, pair)
    assert gang.results[gang.killed.run_id].metrics == run_metrics(pair, gang.results[gang.killed.run_id])


def run_metrics(job: Job, like: JobResult) -> dict[str, float]:
    """Metrics of a finished job, but for its seconds."""
    found = finished_job(job).metrics
    assert found is not None and like.metrics is not None
    return {**found, "train_seconds": like.metrics["train_seconds"]}


class OneTrial(Searcher):  # type: ignore[misc]
    """A search of one trial, over when it is."""

    def __init__(self, job: Job) -> None:
        super().__init__(metric="miou", mode="max")
        self.left = [{"jobs": [job], "name": "the trial"}]

    def suggest(self, trial_id: str) -> Any:
        return self.left.pop() if self.left else Searcher.FINISHED

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Nothing is learned."""

    def save(self, checkpoint_path: str) -> None:
        Path(checkpoint_path).touch()


def test_fresh_workers_for_a_search_give_the_same_and_free_everything(
    machines: Machines, data_places: Places, run_file: Path, tmp_path: Path
) -> None:
    job, watcher = job_of(load_config(run_file), places_in(data_places, tmp_path / "train")), Recorder()
    search_on_ray(
        OneTrial(job),
        FIFOScheduler(),
        Execution(launcher="train"),
        machines.cluster,
        job.places,
        watcher,
        take_up=lambda: False,
    )
    assert [(result.run_id, result.status) for result in watcher.ends] == [(job.run_id, "done")]
    assert all_cpus_free()
    alone = at(job, tmp_path / "alone")
    run_job(alone)
    assert_equal_results(job.places, alone.places)


def test_a_gang_without_cpus_is_at_work_beside_runs_that_hold_them_all(
    inline: Finished, run_file: Path, tmp_path: Path
) -> None:
    assert inline.beside is not None
    assert {run_id: result.status for run_id, result in inline.results.items()} == {
        inline.plain.run_id: "done",
        inline.beside.run_id: "done",
        inline.diverging.run_id: "failed",
        inline.stopped.run_id: "stopped",
    }
    assert set(inline.watcher.starts) == {result.run_id for result in inline.watcher.ends} == set(inline.results)
    assert inline.free
    pair = at(inline.beside, tmp_path / "pair")
    for code, errors in start_workers(run_file, pair.places, "seed=2"):
        assert code == 0, errors
    assert_same_weights(inline.beside, pair)


def test_more_than_there_is_is_refused_at_once(machines: Machines, data_places: Places, run_file: Path) -> None:
    job = job_of(load_config(run_file), data_places)
    asked = Execution(launcher="gang", workers=3, cpus_per_worker=2, gpus_per_worker=1)
    recorder = Recorder()
    with pytest.raises(FplError) as refused:
        run_on_ray([job], asked, machines.cluster, recorder)
    assert recorder.starts == recorder.ends == []
    assert "3 workers with 2 CPUs and 1 GPU each" in refused.value.what
    assert "available: 2 CPUs, 0 GPUs on 1 node, room for 0 such workers" in refused.value.what


def test_the_runs_of_a_lost_node_end_on_another(
    machines: Machines, data_places: Places, run_file: Path, tmp_path: Path
) -> None:
    make = functools.partial(job_of, load_config(run_file), places_in(data_places, tmp_path / "two"), steps=24)
    jobs = [make(seed=0), make(seed=1)]
    second = machines.nodes.add_node(num_cpus=2, object_store_memory=100 * 2**20)
    assert wait_until(lambda: len(machines.cluster.nodes) == 2, 120)

    def strike(run_id: str, step: int) -> None:
        if len({name for name, *_ in watcher.reports}) == 2 and struck.acquire(blocking=False):
            raylet = machines.raylet(second)
            kill([raylet, *descendants(raylet)])

    struck, watcher = threading.Lock(), Recorder(strike)
    # One run a node: each has two CPUs.
    results = run_on_ray(jobs, Execution(cpus_per_worker=2), machines.cluster, watcher)
    assert [results[job.run_id].status for job in jobs] == ["done", "done"]
    assert len(watcher.starts) == 3
    (note,) = watcher.notes
    assert "its process died (killed, " in note or "its process died (its node is gone)" in note
    for job in jobs:
        alone = at(job, tmp_path / job.run_id)
        run_job(alone)
        assert_same_weights(job, alone)


def test_nothing_is_placed_on_a_node_that_is_left_out(
    machines: Machines, data_places: Places, run_file: Path, tmp_path: Path
) -> None:
    job = job_of(load_config(run_file), places_in(data_places, tmp_path / "out"))
    second = machines.nodes.add_node(num_cpus=1, object_store_memory=100 * 2**20)
    try:
        without_head = Cluster(shared=False, left_out=(machines.nodes.head_node.node_id,))
        assert wait_until(lambda: [node.cpus for node in without_head.nodes] == [1.0], 120)
        at_work: list[str] = []
        watcher = Recorder(lambda run_id, step: at_work.extend(descendants(machines.raylet(second)).values()))
        results = run_on_ray([job], Execution(), without_head, watcher)
        assert results[job.run_id].status == "done"
        assert "ray::InlineTrial" in {title.partition(".")[0] for title in at_work}
        with pytest.raises(FplError, match="room for 0 such workers"):
            run_on_ray([job], Execution(cpus_per_worker=2), without_head, watcher)
    finally:
        machines.nodes.remove_node(second)
