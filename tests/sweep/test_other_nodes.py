"""A node on which runs cannot be carried out is left out, and its runs go to others: all without starting Ray."""

from __future__ import annotations

import dataclasses
import pickle
import secrets
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, RayTaskError
from ray.tune.search import Searcher

from fpl.config.schema import RunConfig
from fpl.store.read import Results
from fpl.sweep.cluster import Cluster, Node
from fpl.sweep.execution import Execution
from fpl.sweep.job import JobResult, lacking, run_job
from fpl.sweep.launch import trial as launch
from fpl.sweep.launch import trial_events
from fpl.sweep.launch.inline import InlineTrial
from fpl.sweep.launch.job_list import JobList
from fpl.sweep.launch.mailbox import Ended
from fpl.sweep.launch.trial import held_by
from fpl.sweep.launch.trial_events import TrialEvents
from fpl.sweep.nodes import shown
from fpl.sweep.places import Places
from tests.sweep.ray_support import Recorder, job_of


@dataclasses.dataclass
class Left:
    """A driver with runs to be carried out on two nodes, without Ray: what Tune asks for and tells is done by hand."""

    events: Any
    searcher: Any
    watcher: Recorder

    def begin(self) -> Any:
        config = self.searcher.suggest("t")
        begun = SimpleNamespace(trial_id=secrets.token_hex(4), config=config, status="RUNNING")
        self.events.on_trial_start(0, [], begun)
        return begun

    def end(self, begun: Any, result: JobResult) -> None:
        self.events.on_trial_result(0, [], begun, {"done": True, "job": result.plain()})
        self.searcher.on_trial_complete(begun.trial_id)
        self.events.on_trial_complete(0, [], begun)

    def die(self, begun: Any, error: Exception, folder: Path) -> None:
        """Its process, as often as Tune lets it."""
        path = folder / "error.pkl"
        path.write_bytes(pickle.dumps(error))
        begun.pickled_error_file = str(path)
        for _ in range(self.events.execution.max_failures):
            self.events.on_trial_recover(0, [begun], begun)
        begun.status = "ERROR"
        self.events.on_trial_error(0, [begun], begun)
        self.searcher.on_trial_complete(begun.trial_id, error=True)
        self.events.give_up()


@pytest.fixture
def left(config: RunConfig, places: Places, monkeypatch: pytest.MonkeyPatch) -> Left:
    nodes = [Node(f"id{number}", f"10.0.0.{number}", 1, 0) for number in range(2)]
    alive = property(lambda self: [node for node in nodes if node.node_id not in self.left_out])
    monkeypatch.setattr(Cluster, "nodes", alive)
    monkeypatch.setattr(Cluster, "to_come", [])
    watcher = Recorder()
    events = TrialEvents(Execution(), Cluster(shared=True), watcher, places)
    events.searcher = JobList([job_of(config, places, seed=seed) for seed in range(3)])
    return Left(events, events.searcher, watcher)


def test_a_run_that_lacked_something_goes_to_another_node_and_none_of_the_later_ones_to_that_one(left: Left) -> None:
    first, second = left.begin(), left.begin()
    assert "left_out" not in first.config
    lost = first.config["jobs"][0].run_id
    left.end(first, lacking(lost, "no space is left in /local", "id1"))
    assert (left.events.results, left.watcher.ends, left.events.halted) == ({}, [], "")
    assert left.watcher.notes == ["left out: node 10.0.0.1: no space is left in /local"]
    # Another that was there at the same time: told once.
    left.end(second, lacking(second.config["jobs"][0].run_id, "no space is left in /local", "id1"))
    assert len(left.watcher.notes) == 1
    begun = [left.begin() for _ in range(3)]
    assert [each.config["left_out"] for each in begun] == [("id1",)] * 3
    assert [each.config["jobs"][0].run_id for each in begun][1:] == [lost, second.config["jobs"][0].run_id]
    assert held_by({"CPU": 1.0}, begun[0].config) != held_by({"CPU": 1.0}, first.config) == held_by({"CPU": 1.0}, {})


def test_without_a_node_that_is_left_no_run_is_begun_and_none_has_failed(left: Left) -> None:
    first, second = left.begin(), left.begin()
    left.end(first, lacking(first.config["jobs"][0].run_id, "no data", "id0"))
    last = second.config["jobs"][0].run_id
    left.end(second, lacking(last, "no data there either", "id1"))
    assert left.events.halted == "no data there either"
    assert [(result.run_id, result.status) for result in left.watcher.ends] == [(last, "stopped")]
    assert left.searcher.suggest("t") == Searcher.FINISHED
    assert not len(Results(left.events.places.out).failures)


def cannot_begin(monkeypatch: pytest.MonkeyPatch, node: str) -> ActorDiedError:
    """What Ray says of a process on a node without this package."""
    table = SimpleNamespace(actor_table=lambda actor: {"Address": {"NodeID": node}} if actor == "a1" else {})
    monkeypatch.setattr(trial_events, "state", table)
    missing = ModuleNotFoundError("No module named 'fpl'")
    return ActorDiedError(RayTaskError("__init__", f"Traceback ...\n{missing}", missing, actor_id="a1"))


def test_a_node_on_which_no_process_can_begin_is_left_out_and_the_run_goes_to_another(
    left: Left, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = left.begin()
    left.die(begun, cannot_begin(monkeypatch, "id1"), tmp_path)
    told = "left out: node 10.0.0.1: processes of the suite cannot begin there: No module named 'fpl'"
    assert left.watcher.notes[0] == told and left.watcher.notes.count(told) == 1
    assert (left.events.results, left.watcher.ends, left.events.halted) == ({}, [], "")
    again = [left.begin() for _ in range(3)]
    assert begun.config["jobs"] in [each.config["jobs"] for each in again]
    assert [each.config["left_out"] for each in again] == [("id1",)] * 3
    # The last that is left: nothing more is begun, and nothing has failed.
    left.die(again[0], cannot_begin(monkeypatch, "id0"), tmp_path)
    assert "cannot begin there: No module named 'fpl'" in left.events.halted
    (ended,) = left.watcher.ends
    assert (ended.run_id, ended.status, ended.lacked) == (again[0].config["jobs"][0].run_id, "stopped", True)
    assert left.searcher.suggest("t") == Searcher.FINISHED and not len(Results(left.events.places.out).failures)


def test_a_process_whose_node_does_not_see_what_runs_need_begins_none(
    config: RunConfig, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems, begun = [["no data here"], [], ["not asked"]], list[str]()
    sight: Any = SimpleNamespace(problems=lambda: problems.pop(0))
    monkeypatch.setattr(launch, "own_node", lambda: "id7")
    monkeypatch.setattr(InlineTrial, "begin", lambda self, job: begun.append(job.run_id))
    monkeypatch.setattr(InlineTrial, "next_event", lambda self: Ended(JobResult(self.job.run_id, "done").plain()))
    jobs = [job_of(config, places, seed=seed) for seed in range(3)]
    process: Any = launch.with_execution(InlineTrial, Execution(), places.out, sight).__new__(InlineTrial)
    InlineTrial.setup(process, {"jobs": jobs[:1], "left_out": ["id3"]}, Execution(), places.out, sight)
    result = process.step()
    assert JobResult(**result["job"]) == lacking(jobs[0].run_id, "no data here", "id7") and result["done"]
    for job in jobs[1:]:
        process.reset_config({"jobs": [job]})
        assert process.step()["job"]["status"] == "done"
    assert begun == [job.run_id for job in jobs[1:]] and problems == [["not asked"]]
    assert process.execution.left_out == ("id3",)


def test_a_run_whose_inputs_are_others_here_than_where_it_was_planned_has_not_failed(
    config: RunConfig, places: Places, tmp_path: Path
) -> None:
    job = job_of(config, places)
    for data in (tmp_path / "empty", places.data_root):
        data.mkdir(exist_ok=True)
        wrong = dataclasses.replace(job, run_id=job.run_id if data != places.data_root else "planned-otherwise")
        result = run_job(dataclasses.replace(wrong, places=dataclasses.replace(places, data_root=data)))
        assert (result.status, result.lacked) == ("stopped", True) and "all nodes must see the same" in result.reason
    assert not len(Results(places.out).failures)


def test_a_process_that_came_later_sees_what_the_driver_saw_and_names_what_it_does_not(tmp_path: Path) -> None:
    for name in ("out", "data", "splits/synthetic_city"):
        (tmp_path / name).mkdir(parents=True)
    shared = Places(tmp_path / "out", tmp_path / "data", tmp_path / "splits")
    with shown(shared) as sight:
        (shared.data_root / "another_set").mkdir()  # what has come since is no other folder
        assert sight.problems() == []
        (shared.splits_root / "synthetic_city").rmdir()
        shared.splits_root.rmdir()
        assert sight.problems() == [f"the folder of splits {shared.splits_root} does not exist there"]
        shared.splits_root.mkdir()
    assert list(shared.out.iterdir()) == []
    (problem,) = sight.problems()
    assert "is another one there" in problem
