"""Runs on a real Ray of two CPUs on this machine, undisturbed, stopped, diverging and killed."""

from __future__ import annotations

import functools
import pickle
import sys
import threading
import types
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
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import fpl
from fpl.config.compose import load_config
from fpl.errors import FplError
from fpl.sweep.cluster import Cluster
from fpl.sweep.execution import Execution
from fpl.sweep.job import Job, JobResult, run_job
from fpl.sweep.job import finished as finished_job
from fpl.sweep.launch.side_by_side import run_side_by_side
from fpl.sweep.launch.trial_events import where_it_could_not_begin
from fpl.sweep.launch.tune_driver import run_on_ray, search_on_ray
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


class Stop(FIFOScheduler):  # type: ignore[misc]
    """Stops runs at their first report; those of the main thread wait there until a gang beside them has reported."""

    def __init__(self, *runs: str) -> None:
        super().__init__()
        self.runs = runs
        self.at_work = threading.Event()

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune pickles it into a file that nobody reads

    def on_trial_result(self, controller: Any, trial: Any, result: dict[str, Any]) -> str:
        if "step" not in result:
            return TrialScheduler.CONTINUE  # type: ignore[no-any-return]
        if threading.current_thread() is not threading.main_thread():
            self.at_work.set()
        elif not self.at_work.wait(200):
            raise KeyboardInterrupt
        return TrialScheduler.STOP if result.get("run_id") in self.runs else TrialScheduler.CONTINUE  # type: ignore[no-any-return]


@dataclass
class Finished:
    """What became of jobs that one process or one gang was given, one after the other."""

    plain: Job
    diverging: Job
    stopped: Job
    results: dict[str, JobResult]
    watcher: Recorder


@dataclass
class SideBySide:
    """One process and one gang at the same time; a worker of the gang was killed in the middle of the run `killed`."""

    inline: Finished
    gang: Finished
    killed: Job
    results: dict[str, JobResult]
    free: bool


def places_in(data_places: Places, folder: Path) -> Places:
    return Places(folder, data_places.data_root, data_places.splits_root)


@pytest.fixture(scope="module")
def both(
    machines: Machines, data_places: Places, run_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> SideBySide:
    make = functools.partial(job_of, load_config(run_file), places_in(data_places, tmp_path_factory.mktemp("inline")))
    inline = [make(seed=1, lr=1e6), make(seed=0), make(seed=3)]
    make = functools.partial(job_of, load_config(run_file), places_in(data_places, tmp_path_factory.mktemp("gang")))
    gang = [make(seed=12, steps=12), make(seed=11, lr=1e6), make(seed=10), make(seed=13)]
    killed = gang[0].run_id

    def strike(run_id: str, step: int) -> None:
        if run_id == killed and step == 6 and watcher.starts.count(run_id) == 1:
            pids = machines.processes("ray::RayTrainWorker")
            assert len(pids) == 2
            kill(pids[:1])

    watcher = Recorder(strike)
    batches = [
        # Each of them holds all CPUs.
        (inline, Execution(cpus_per_worker=2, concurrency=1)),
        (gang, Execution(launcher="gang", workers=2, cpus_per_worker=0, concurrency=1)),
    ]
    # Ray ends a driver that owns objects, without a word, when the raylet dies.
    with mock.patch.object(ray, "put", side_effect=AssertionError("the driver owns an object")):
        scheduler = Stop(inline[2].run_id, gang[3].run_id)
        results = run_side_by_side(batches, machines.cluster, watcher, scheduler=scheduler)
    one, other = (Finished(jobs[-2], jobs[-3], jobs[-1], results, watcher) for jobs in (inline, gang))
    return SideBySide(one, other, gang[0], results, all_cpus_free())


@pytest.fixture(params=["inline", "gang"])
def finished(request: pytest.FixtureRequest, both: SideBySide) -> Finished:
    return both.inline if request.param == "inline" else both.gang


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


def test_nothing_stays_reserved(both: SideBySide) -> None:
    # Without Ray's dashboard, as here, Ray Train does not free what a run held that Tune ended from outside.
    assert both.free


def test_every_end_of_a_run_is_told(both: SideBySide) -> None:
    ends = {result.run_id for result in both.inline.watcher.ends}
    assert ends == set(both.results) == set(both.inline.watcher.starts)


def test_inline_gives_what_the_same_run_without_ray_gives(both: SideBySide, tmp_path: Path) -> None:
    alone = at(both.inline.plain, tmp_path / "alone")
    assert run_job(alone).status == "done"
    assert_same_weights(both.inline.plain, alone)
    assert both.results[alone.run_id].metrics == run_metrics(alone, both.results[alone.run_id])


def test_a_gang_without_cpus_beside_runs_that_hold_them_all_and_with_a_killed_worker_gives_what_two_processes_give(
    both: SideBySide, run_file: Path, tmp_path: Path
) -> None:
    killed = both.killed
    assert both.gang.watcher.starts.count(killed.run_id) == 2
    assert "continuing at step" in killed.log.read_text()
    pair = at(killed, tmp_path / "pair")
    for code, errors in start_workers(run_file, pair.places, "seed=12", "train.steps=12"):
        assert code == 0, errors
    assert_same_weights(killed, pair)
    assert both.results[killed.run_id].metrics == run_metrics(pair, both.results[killed.run_id])


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


def test_a_node_is_known_on_which_a_process_cannot_begin(machines: Machines) -> None:
    here = types.ModuleType("not_on_the_other_nodes")
    exec("class Process:\n    def work(self):\n        return 1\n", here.__dict__)
    # Not on the one that another test has killed, of which Ray may not know yet.
    head = NodeAffinitySchedulingStrategy(machines.nodes.head_node.node_id, soft=False)
    with mock.patch.dict(sys.modules, {here.__name__: here}):
        process = ray.remote(num_cpus=0, scheduling_strategy=head)(here.Process).remote()
        with pytest.raises(ray.exceptions.ActorDiedError, match="No module named 'not_on_the_other_nodes'") as died:
            ray.get(process.work.remote(), timeout=120)
    # Tune keeps it in a file.
    assert where_it_could_not_begin(pickle.loads(pickle.dumps(died.value))) == machines.nodes.head_node.node_id
    assert where_it_could_not_begin(ray.exceptions.ActorDiedError()) == where_it_could_not_begin(None) == ""


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
