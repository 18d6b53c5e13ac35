"""What fits onto a cluster, what its nodes must see, and what a mailbox hands out: all without starting Ray."""

from __future__ import annotations

import dataclasses
import errno
import os
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from fpl import mirrors
from fpl.config.schema import RunConfig
from fpl.errors import FplError
from fpl.store.read import Results
from fpl.sweep.cluster import Cluster, Node, _await, absolute, runs_at_once, to_come
from fpl.sweep.execution import Execution
from fpl.sweep.job import Job
from fpl.sweep.launch import side_by_side as beside
from fpl.sweep.launch.mailbox import Ended, Entered, Mailbox, Report
from fpl.sweep.nodes import NodeView, differences, look_around
from fpl.sweep.places import Places
from fpl.sweep.session import environment, ray_session
from tests.sweep.ray_support import Recorder, job_of


def node(cpus: float, gpus: float = 0) -> Node:
    return Node("id", "10.0.0.1", cpus, gpus)


@pytest.mark.parametrize(
    ("nodes", "execution", "expected"),
    [
        ([node(2)], Execution(), 2),
        ([node(2)], Execution(launcher="gang", workers=2), 1),
        ([node(3), node(3)], Execution(launcher="gang", workers=2), 3),
        ([node(3), node(3)], Execution(launcher="gang", workers=2, cpus_per_worker=2), 1),
        ([node(16, 1), node(64, 4)], Execution(cpus_per_worker=8, gpus_per_worker=1), 5),
        ([node(16, 1)], Execution(cpus_per_worker=1, gpus_per_worker=0.2), 5),
        ([node(1)], Execution(cpus_per_worker=0.1), 10),
        # A part is of one GPU.
        ([node(64, 8)], Execution(gpus_per_worker=0.3), 24),
        ([node(64, 8)], Execution(gpus_per_worker=0.4), 16),
        ([node(64, 8)], Execution(gpus_per_worker=0.6), 8),
        ([node(64, 8)], Execution(gpus_per_worker=0.1), 64),
        ([node(64, 8)], Execution(gpus_per_worker=2), 4),
        ([node(2), node(1)], Execution(launcher="gang", workers=4, cpus_per_worker=0), 2),  # beside others: one a node
    ],
)
def test_as_many_runs_at_once_as_there_is_room_for(nodes: list[Node], execution: Execution, expected: int) -> None:
    assert runs_at_once(nodes, execution) == expected


@pytest.mark.parametrize(
    ("nodes", "execution", "message"),
    [
        (
            [node(1), node(1)],
            Execution(cpus_per_worker=2),
            r"asked for 1 worker with 2 CPUs and 0 GPUs; available: 2 CPUs, 0 GPUs on 2 nodes, room for 0 such workers",
        ),
        (
            [node(8, 3)],
            Execution(launcher="train", workers=4, gpus_per_worker=1),
            r"asked for 4 workers with 1 CPU and 1 GPU each; available: 8 CPUs, 3 GPUs on 1 node, room for 3 such",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_what_there_is(nodes: list[Node], execution: Execution, message: str) -> None:
    with pytest.raises(FplError, match=message):
        runs_at_once(nodes, execution)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"launcher": "inline", "workers": 2}, "2 workers cannot share a run in one process"),
        ({"launcher": "gang", "workers": 0}, "a run needs workers"),
        ({"launcher": "inline", "cpus_per_worker": 0}, "a run needs workers and CPUs"),
        ({"launcher": "gang", "cpus_per_worker": -1}, "a run needs workers and CPUs"),
        ({"gpus_per_worker": 1.5}, r"1.5 GPUs for a worker"),
        ({"launcher": "gang", "workers": 2, "gpus_per_worker": 0.5}, r"0.5 GPUs for each of 2 workers"),
    ],
)
def test_a_senseless_execution_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(FplError, match=message):
        Execution(**arguments)  # type: ignore[arg-type]


@pytest.fixture
def shared(tmp_path: Path) -> Places:
    for name in ("out", "data/synthetic_city", "splits/synthetic_city", "weights"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "weights" / "resnet50_v1c.pth").write_bytes(b"12345")
    (tmp_path / "out" / "marker").write_text("written by the driver")
    return Places(tmp_path / "out", tmp_path / "data", tmp_path / "splits", tmp_path / "weights")


def test_a_node_that_sees_the_same_is_accepted(shared: Places) -> None:
    driver, other = look_around("driver", shared, "marker"), look_around("10.0.0.2", shared, "marker")
    assert differences(driver, other, shared) == []


def test_a_node_that_sees_something_else_is_named_with_the_folder(shared: Places, tmp_path: Path) -> None:
    driver = look_around("driver", shared, "marker")
    # The same paths on a node of its own: an empty folder of results, other data, no splits, another weights file.
    local = tmp_path / "local"
    for name in ("out", "data/synthetic_voc", "weights"):
        (local / name).mkdir(parents=True)
    (local / "weights" / "resnet50_v1c.pth").write_bytes(b"1234")
    there = Places(local / "out", local / "data", local / "splits", local / "weights")
    found = dataclasses.replace(look_around("10.0.0.2", there, "marker"), versions="fpl 0.0.9 (source 0), torch 2.9")
    assert differences(driver, found, shared) == [
        f"node 10.0.0.2: the folder of results {shared.out} is another one there: a file written here is not seen",
        f"node 10.0.0.2: the folder of data {shared.data_root} holds other files there",
        f"node 10.0.0.2: the folder of splits {shared.splits_root} does not exist there",
        f"node 10.0.0.2: the folder of pretrained weights {shared.weights_dir} holds other files there",
        f"node 10.0.0.2: has fpl 0.0.9 (source 0), torch 2.9 instead of {driver.versions}",
    ]


def test_a_node_that_cannot_write_is_named(shared: Places) -> None:
    driver = NodeView("driver", "m", "", "d", "s", "w", "v")
    found = dataclasses.replace(driver, node="10.0.0.3", refused="no space is left in /disk")
    where = f"cannot write to the folder of results {shared.out}: no space is left in /disk"
    assert differences(driver, found, shared) == [f"node 10.0.0.3: {where}"]


@pytest.mark.parametrize("where", ["out", "mirror"])
@pytest.mark.parametrize("problem", ["disk", "file"])
def test_a_file_is_written_where_runs_will_write(
    shared: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, problem: str
) -> None:
    """Also where that is the mirror of a folder on object storage, which every machine has for itself."""
    monkeypatch.setattr(mirrors, "_MIRRORS", {})
    places = shared
    if where == "mirror":
        places = dataclasses.replace(shared, out=tmp_path / "scratch" / "store", url=f"file://{shared.out}")
    there = look_around("driver", places, "marker")
    assert (there.refused, there.marker) == ("", "written by the driver")
    assert [path.name for path in places.out.iterdir() if path.name != "marker"] == []
    if problem == "disk":
        error = OSError(errno.ENOSPC, "No space left on device", str(places.out / "x"))
        monkeypatch.setattr(Path, "write_bytes", mock.Mock(side_effect=error))
    elif where == "mirror":
        (tmp_path / "scratch").rename(tmp_path / "other")
        (tmp_path / "scratch").write_text("")
    else:
        monkeypatch.setattr(Path, "write_bytes", mock.Mock(side_effect=PermissionError(errno.EACCES, "", "x")))
    (told,) = differences(there, look_around("10.0.0.4", places, "marker"), places)
    what = "the folder of results" if where == "out" else "the scratch folder"
    assert told.startswith(f"node 10.0.0.4: cannot write to {what} {places.out}: ")


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([], []),
        ([({"CPU": 2.0}, 3)], [(2.0, 0.0)] * 2),  # one of the three is there
        ([({"CPU": 16.0, "GPU": 8.0, "memory": 1e9}, 1), ({"CPU": 2.0}, 1)], [(16.0, 8.0)]),
        ([({"CPU": 4.0}, -1)], [(4.0, 0.0)] * 1000),
    ],
)
def test_nodes_that_an_autoscaler_may_add_count(
    groups: list[tuple[dict[str, float], int]], expected: list[tuple[float, float]]
) -> None:
    assert [(each.cpus, each.gpus) for each in to_come(groups, [node(2)])] == expected


def test_a_run_that_fits_on_a_node_to_come_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray._private.state import GlobalState
    from ray.core.generated import autoscaler_pb2

    group = autoscaler_pb2.NodeGroupConfig(resources={"CPU": 16, "GPU": 4}, max_count=2, name="gpu")
    config = autoscaler_pb2.ClusterConfig(node_group_configs=[group])
    monkeypatch.setattr(GlobalState, "get_cluster_config", lambda self: config)
    monkeypatch.setattr("ray.is_initialized", lambda: True)
    monkeypatch.setattr(Cluster, "nodes", [node(2)])
    cluster = Cluster(shared=True)
    assert cluster.describe() == "2 CPUs, 0 GPUs on 1 node; more may come, 32 CPUs, 8 GPUs on 2 nodes"
    assert cluster.concurrency(Execution(launcher="train", workers=4, gpus_per_worker=1)) == 2
    with pytest.raises(FplError, match="room for 8 such workers"):
        cluster.concurrency(Execution(launcher="train", workers=9, gpus_per_worker=1))


def nodes_of(cpus: list[float]) -> list[Node]:
    return [Node(f"id{number}", f"10.0.0.{number}", each, 0) for number, each in enumerate(cpus)]


def test_nodes_that_cannot_do_the_work_are_left_out_by_name_where_others_can() -> None:
    cluster, said = Cluster(shared=True), list[str]()
    cluster._leave_out(
        nodes_of([2, 2, 2]), {"id1": ["node 10.0.0.1: no data"]}, Execution(cpus_per_worker=2), said.append
    )
    assert (cluster.left_out, said) == (("id1",), ["left out: node 10.0.0.1: no data"])
    assert Execution(left_out=cluster.left_out).nodes == {"ray.io/node-id": "!in(id1)"} and Execution().nodes == {}


@pytest.mark.parametrize(("cpus", "bad"), [([2, 1], ["id0"]), ([2, 2], ["id0", "id1"])])
def test_without_a_node_that_can_all_problems_are_told(cpus: list[float], bad: list[str]) -> None:
    cluster, problems = Cluster(shared=True), {name: [f"node {name}: no data"] for name in bad}
    with pytest.raises(FplError, match="same package") as refused:
        cluster._leave_out(nodes_of(cpus), problems, Execution(cpus_per_worker=2), print)
    assert refused.value.what.splitlines() == [f"node {name}: no data" for name in bad]
    assert cluster.left_out == ()


class Answers:
    """Stands in for `ray.wait` with a clock of its own: an answer comes at each of these seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, come_at: list[float]) -> None:
        self.come_at, self.now = come_at, 0.0
        monkeypatch.setattr("ray.wait", self.wait)
        monkeypatch.setattr("time.monotonic", lambda: self.now)

    def wait(self, waiting: list[int], timeout: float) -> tuple[list[int], list[int]]:
        due = self.come_at[len(self.come_at) - len(waiting)]
        if due - self.now > timeout:
            self.now += timeout
            return [], waiting
        self.now = max(self.now, due)
        return waiting[:1], waiting[1:]


@pytest.mark.parametrize(
    ("come_at", "ends", "said"),
    [
        ([1.0, 1.5, 2.0], 2.0, []),
        # As a whole longer than the patience for the next one.
        ([50.0, 100.0, 150.0], 150.0, ["1 of 3 nodes have said what they see", "2 of 3 nodes have said what they see"]),
        ([2.0, 7.0, 600.0], 67.0, ["2 of 3 nodes have said what they see"]),
    ],
)
def test_nodes_are_waited_for_as_long_as_they_answer(
    monkeypatch: pytest.MonkeyPatch, come_at: list[float], ends: float, said: list[str]
) -> None:
    clock, lines = Answers(monkeypatch, come_at), list[str]()
    _await(list(range(len(come_at))), lines.append)
    assert (clock.now, lines) == (ends, said)


def test_folders_are_made_absolute_with_the_weights_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FPL_WEIGHTS", "w")
    found = absolute(Places(Path("results/demo"), Path("data"), Path("splits")))
    assert found == Places(tmp_path / "results/demo", tmp_path / "data", tmp_path / "splits", tmp_path / "w")


def test_the_environment_is_put_back_and_the_users_settings_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FPL_TEST_KEPT", "user")
    with environment({"FPL_TEST_KEPT": "ours", "FPL_TEST_ADDED": "ours"}):
        assert (os.environ["FPL_TEST_KEPT"], os.environ["FPL_TEST_ADDED"]) == ("user", "ours")
    assert os.environ["FPL_TEST_KEPT"] == "user"
    assert "FPL_TEST_ADDED" not in os.environ


@pytest.mark.parametrize("address", ["127.0.0.1:9", "ray://127.0.0.1:10001"])
def test_an_address_where_no_cluster_answers_is_refused(address: str) -> None:
    with pytest.raises(FplError, match="no Ray cluster answers"), ray_session(address):
        raise AssertionError


SOON, NOW = 1.0, 0.0


def test_a_job_goes_through_the_mailbox() -> None:
    box = Mailbox(attempts=3)
    box.post("run", b"job")
    group = box.enter("pg")
    assert box.next_event(NOW) == Entered("pg", again=False)
    assert box.fetch(group, NOW) == b"job"
    box.report(group, 2, {"miou": 1.0})
    assert box.verdict(group, NOW) is None
    assert box.next_event(NOW) == Report(2, {"miou": 1.0})
    box.answer("go")
    assert box.verdict(group, NOW) == "go"
    box.end(group, {"run_id": "run", "status": "done"})
    assert box.next_event(NOW) == Ended({"run_id": "run", "status": "done"})
    assert box.fetch(group, NOW) == "wait"
    box.close()
    assert box.fetch(group, SOON) == "leave"


def test_an_unfinished_job_is_handed_to_the_next_group_a_limited_number_of_times() -> None:
    box = Mailbox(attempts=2)
    box.post("run", b"job")
    first = box.enter("one")
    assert box.fetch(first, NOW) == b"job"
    box.report(first, 2, {})
    second = box.enter("two")
    # Whatever is left of the first group is sent away, and what it says no longer counts.
    assert (box.fetch(first, SOON), box.verdict(first, SOON)) == ("leave", "stop")
    box.end(first, {"run_id": "run", "status": "done"})
    assert box.fetch(second, NOW) == b"job"
    box.lost(second, "rank 0 of 2: lost another worker")
    third = box.enter("three")
    assert box.fetch(third, NOW) == "wait"
    events = [box.next_event(NOW) for _ in range(5)]
    assert events == [
        Entered("one"),
        Report(2, {}),
        Entered("two", again=True),
        Entered("three", again=True),
        Ended(
            {
                "run_id": "run",
                "status": "stopped",
                "reason": "its workers died 2 times: rank 0 of 2: lost another worker",
                "lacked": True,
            }
        ),
    ]


def test_workers_that_are_lost_in_the_life_of_a_long_run_are_replaced_as_long_as_it_gets_on() -> None:
    box = Mailbox(attempts=3)
    box.post("run", b"job")
    for step in (20000, 40000, 60000, 60000, 79000):  # once without getting further
        group = box.enter("pg")
        assert box.fetch(group, NOW) == b"job"
        box.report(group, step, {})
    for step in (79000, 50000):  # what is gone through again is no progress
        group = box.enter("pg")
        assert box.fetch(group, NOW) == b"job"
        box.report(group, step, {})
    assert box.fetch(box.enter("pg"), NOW) == "wait"
    *_, end = iter(lambda: box.next_event(NOW), None)
    assert isinstance(end, Ended) and end.result["status"] == "stopped" and end.result["lacked"]


def test_the_answer_to_a_lost_groups_report_is_not_taken_for_the_next() -> None:
    box = Mailbox(attempts=2)
    box.post("run", b"job")
    first = box.enter("one")
    box.fetch(first, NOW)
    box.report(first, 2, {})
    second = box.enter("two")
    box.answer("go")
    box.fetch(second, NOW)
    box.report(second, 4, {})
    assert box.verdict(second, NOW) is None


@pytest.mark.parametrize("when", ["at its report", "between reports", "before it was handed out"])
def test_a_withdrawn_job_stops_and_is_not_handed_out_again(when: str) -> None:
    box = Mailbox(attempts=3)
    box.post("run", b"job")
    group = box.enter("pg")
    if when == "before it was handed out":
        box.withdraw()
    else:
        assert box.fetch(group, NOW) == b"job"
        if when == "at its report":
            box.report(group, 2, {})
            box.withdraw()
        else:
            box.withdraw()
            box.report(group, 2, {})
        assert box.verdict(group, SOON) == "stop"
        group = box.enter("another")  # the group is lost before it says that it stopped
    assert box.fetch(group, NOW) == "wait"
    events = [box.next_event(NOW) for _ in range(5)]
    assert Ended({"run_id": "run", "status": "stopped", "reason": "", "lacked": False}) in events


def trial(job: Job, error: Path | None = None, status: str = "ERROR") -> SimpleNamespace:
    return SimpleNamespace(
        trial_id=f"t-{job.run_id}", status=status, config={"jobs": [job]}, pickled_error_file=error and str(error)
    )


@pytest.mark.parametrize("killed", [True, False])
def test_a_run_whose_process_dies_too_often_ends_and_only_an_error_of_its_own_is_recorded(
    config: RunConfig, places: Places, tmp_path: Path, killed: bool
) -> None:
    from ray.exceptions import ActorDiedError, RayTaskError

    from fpl.sweep.launch.trial_events import TrialEvents

    jobs = [job_of(config, places, seed=seed) for seed in range(2)]
    watcher = Recorder()
    events = TrialEvents(Execution(max_failures=2), Cluster(shared=False), watcher, places)
    error = ActorDiedError() if killed else RayTaskError("train", "RuntimeError: wrong", RuntimeError("wrong"))
    (tmp_path / "error.pkl").write_bytes(pickle.dumps(error))
    doomed, unlucky = trial(jobs[0], tmp_path / "error.pkl"), trial(jobs[1])
    for each in (doomed, unlucky):
        events.on_trial_start(0, [each], each)
    for _ in range(2):
        events.on_trial_recover(0, [doomed], doomed)
    events.on_trial_error(0, [doomed], doomed)
    events.on_trial_error(0, [unlucky], unlucky)
    events.give_up()
    assert set(events.results) == {jobs[0].run_id}
    (ended,) = watcher.ends
    assert ended.reason.startswith("its process died 3 times: ")
    assert (ended.status, ended.lacked) == (("stopped", True) if killed else ("failed", False))
    failures = [(row["run_id"], row["reason"]) for row in Results(places.out).failures.to_dict("records")]
    assert failures == ([] if killed else [(jobs[0].run_id, ended.reason)])


def test_deaths_before_a_run_got_further_do_not_count(config: RunConfig, places: Places) -> None:
    from fpl.sweep.launch.trial_events import TrialEvents

    job = job_of(config, places)
    events = TrialEvents(Execution(max_failures=2), Cluster(shared=False), Recorder(), places)
    long = trial(job)
    events.on_trial_start(0, [long], long)
    for step in (100, 200, 300, 400):
        events.on_trial_result(0, [long], long, {"run_id": job.run_id, "step": step, "metrics": {}})
        events.on_trial_recover(0, [long], long)
    # Tune counts all of them, and gives the trial up: the run is put in line again.
    events.on_trial_error(0, [long], long)
    assert events.searcher.suggest("t")["jobs"] == [job]
    events.give_up()
    assert not events.results
    events.on_trial_error(0, [long], long)
    events.give_up()
    assert events.results[job.run_id].status == "stopped"


@pytest.mark.parametrize("with_settings", [False, True])
def test_a_trial_brings_its_own_job_and_no_other(config: RunConfig, places: Places, with_settings: bool) -> None:
    """What Tune copies and pickles for a trial must not grow with the campaign."""
    from ray import cloudpickle
    from ray.tune.search import Searcher

    from fpl.sweep.launch.job_list import JobList
    from fpl.sweep.launch.trial import with_execution
    from fpl.sweep.launch.tune_driver import TRIALS

    jobs = [job_of(config, places, seed=seed) for seed in range(3)]
    searcher = JobList(jobs, with_settings)
    trials = [searcher.suggest(f"t{number}") for number in range(3)]
    assert [trial["jobs"] for trial in trials] == [[job] for job in jobs]
    assert [trial["name"] for trial in trials] == [job.run_id for job in jobs]
    assert [trial.get("settings") for trial in trials] == [job.config if with_settings else None for job in jobs]
    # One of them may come back.
    assert searcher.suggest("t3") is None
    searcher.left_out = ("bad",)
    searcher.give_back(trials[1])
    searcher.on_trial_complete("t1")
    assert searcher.suggest("t3") == {**trials[1], "left_out": ("bad",)}
    for trial_id in ("t0", "t2", "t3"):
        searcher.on_trial_complete(trial_id)
    assert searcher.suggest("t4") == Searcher.FINISHED
    kind = with_execution(TRIALS["inline"], Execution(), places.out)
    assert kind.__name__ == "InlineTrial" and jobs[0].run_id.encode() not in cloudpickle.dumps(kind)


def test_two_batches_of_one_launcher_have_a_class_of_their_own_each(
    config: RunConfig, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tune looks classes up by name, again for every process: one name would give one batch the other's execution."""
    from fpl.sweep.launch import tune_driver as driver
    from fpl.sweep.launch.trial_events import TrialEvents

    names: list[str] = []

    def register(name: str, trainable: object) -> None:
        # Tune's registry bears one thread at a time.
        assert driver._BEGINNING.locked()
        names.append(name)

    monkeypatch.setattr(driver.tune, "register_trainable", register)
    monkeypatch.setattr(driver.tune, "Tuner", lambda name, **settings: SimpleNamespace(fit=lambda: names.append(name)))
    monkeypatch.setattr(Cluster, "nodes", [node(4)])
    for workers in (2, 4):
        execution = Execution(launcher="gang", workers=workers)
        events = TrialEvents(execution, Cluster(shared=False), Recorder(), places)
        driver._fit(events, places.out, 1, None, driver.JobList([job_of(config, places)]))
    assert names[0] == names[1] != names[2] == names[3] and all(name.startswith("GangTrial-") for name in names)


class Uncounted(list[Any]):
    def __iter__(self) -> Iterator[Any]:
        raise AssertionError


@pytest.mark.parametrize(("status", "patience"), [("PENDING", 120), ("RUNNING", 3600)])
def test_long_silence_is_noted_with_what_is_free(
    config: RunConfig, places: Places, monkeypatch: pytest.MonkeyPatch, status: str, patience: int
) -> None:
    from fpl.sweep.launch import trial_events as driver

    clock = [1000.0]
    monkeypatch.setattr(driver.ray, "available_resources", lambda: {"CPU": 0.5})
    monkeypatch.setattr(driver.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(Cluster, "nodes", [node(2)])
    watcher, job = Recorder(), job_of(config, places)
    events = driver.TrialEvents(Execution(cpus_per_worker=2), Cluster(shared=False), watcher, places)
    known = trial(job, status=status)
    # Not counted where nothing is to be said: Tune asks ten times a second, of thousands of trials.
    events.on_step_end(0, Uncounted())
    for silent in (0.5, 1.01, 1.5, 2.0, 2.03, 4.0):  # told after the patience, and when it has become twice as long
        clock[0] = 1000 + silent * patience
        events.on_step_end(0, [known])
    assert len(watcher.notes) == 2
    assert f"{int(status == 'RUNNING')} of 1 runs are at work; a run needs 1 worker with 2 CPUs" in watcher.notes[0]
    assert "free are 0.5 CPUs and 0 GPUs of 2 CPUs, 0 GPUs on 1 node" in watcher.notes[0]
    events.on_trial_start(0, [known], known)
    events.on_step_end(0, [known])
    assert len(watcher.notes) == 2


class Batches:
    """Stands for `run_on_ray`: batch 0 is the caller's own, batch 1 goes on until it is told that all is over."""

    def __init__(self, ends: BaseException | None, own: BaseException | None) -> None:
        self.ends, self.own = ends, own
        self.told: list[str] = []
        self.begun = threading.Event()

    def __call__(
        self, jobs: list[str], execution: Execution, cluster: None, watcher: Recorder, **more: Any
    ) -> dict[str, str]:
        assert more.pop("scheduler") is None
        for _ in range(50):
            watcher.started(jobs[0])
        if jobs == ["other"]:
            assert self.begun.wait(30)
            if self.own is not None:
                raise self.own
            return {"other": "done"}
        self.begun.set()
        if self.own is not None:
            assert more["over"].wait(30)
            self.told.append(jobs[0])
            raise KeyboardInterrupt
        if self.ends is not None:
            raise self.ends
        return {"gang": "done"}


def side_by_side(monkeypatch: pytest.MonkeyPatch, batches: Batches) -> dict[str, Any]:
    monkeypatch.setattr(beside, "run_on_ray", batches)
    both = [(["other"], Execution()), (["gang"], Execution(launcher="gang", workers=2, cpus_per_worker=0))]
    return beside.run_side_by_side(both, None, Recorder(), scheduler=None)  # type: ignore[arg-type, return-value]


def test_batches_side_by_side_give_the_results_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Any] = side_by_side(monkeypatch, Batches(None, None))
    assert found == {"other": "done", "gang": "done"}


def test_what_ends_a_batch_in_its_thread_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FplError, match="no room"):
        side_by_side(monkeypatch, Batches(FplError("no room"), None))


@pytest.mark.parametrize("own", [KeyboardInterrupt(), FplError("no room")])
def test_what_ends_the_callers_batch_ends_the_others_first(monkeypatch: pytest.MonkeyPatch, own: BaseException) -> None:
    batches = Batches(None, own)
    with pytest.raises(type(own)):
        side_by_side(monkeypatch, batches)
    assert batches.told == ["gang"]
    assert not [thread for thread in threading.enumerate() if thread.name == "batch"]
