"""A checkpoint of which a part is missing, and the two files that must tell one story: the step and its best."""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import Any

import pytest
import torch

import fpl
from fpl.config.schema import RunConfig
from fpl.errors import FplError
from fpl.losses import kernels
from fpl.sweep import job
from fpl.sweep.event_log import event_log
from fpl.sweep.execution import Execution
from fpl.sweep.job import Job, run_job
from fpl.sweep.places import Places
from fpl.train import checkpoint, loop
from fpl.train.checkpoint import CheckpointFolder, load, save
from fpl.train.evaluate import scores
from fpl.train.runtime import State
from fpl.train.trained import evaluate_trained, find_weights, load_trained
from tests.train.runs import Change, assert_equal_results, elsewhere, killed, resumed_at, rewritten, run, weights


def without(*keys: Any) -> Change:
    def change(state: State) -> None:
        *outer, last = keys
        for key in outer:
            state = state[key]
        del state[last]

    return change


def emptied(*keys: Any) -> Change:
    def change(state: State) -> None:
        *outer, last = keys
        for key in outer:
            state = state[key]
        state[last] = type(state[last])()

    return change


def no_second_network(state: State) -> None:
    state["method"] = {name: value for name, value in state["method"].items() if not name.startswith("network_2.")}


CHANGES: dict[str, tuple[Change, str]] = {
    **{f"no {part}": (without(part), part) for part in ("canonical", "method", "optimizers", "ranks", "threads")},
    **{f"empty {part}": (emptied(part), part) for part in ("method", "optimizers", "ranks", "memory")},
    "no memory": (without("memory"), "memory"),
    "one optimizer's state": (emptied("optimizers", "main", "state"), "optimizers"),
    "its groups": (emptied("optimizers", "main", "param_groups"), "optimizers"),
    "momentum of one parameter": (without("optimizers", "main", "state", 0), "optimizers"),
    "random state": (without("ranks", 0, "rng"), "ranks"),
    "step": (without("memory", "step"), "memory"),
    "second network": (no_second_network, "method"),
}


@pytest.mark.parametrize("listed", [False, True], ids=["taken out", "never written"])
@pytest.mark.parametrize("change", list(CHANGES))
def test_a_missing_part_leads_to_the_checkpoint_before(
    config: RunConfig,
    places: Places,
    copied: CheckpointFolder,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
    listed: bool,
) -> None:
    apply, part = CHANGES[change]
    newest = copied.steps()[-1]
    rewritten(newest, apply, listed=listed)
    message, said = resumed_at(config, places, monkeypatch)
    assert "stopped at step 2 of 6" in message
    assert str(newest) in said and "warning" in said and "continuing from the checkpoint before it" in said
    assert part in said
    # What came after step 2 is another future's.
    assert sorted(path.name for path in copied.folder.glob("*.pt")) == ["step_00000002.pt"]


def test_where_no_checkpoint_is_whole_the_part_is_named(
    config: RunConfig, places: Places, copied: CheckpointFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in copied.steps():
        rewritten(path, without("optimizers"), listed=False)
    message, said = resumed_at(config, places, monkeypatch)
    assert "lacks the part 'optimizers'" in message and "step_00000004.pt" in message and "remove" in message
    assert "step_00000004.pt" in said and len(copied.steps()) == 2


@pytest.mark.parametrize("best", ["gone", "damaged", "of another step"])
def test_best_weights_that_a_checkpoint_names_are_a_part_of_it(
    config: RunConfig, places: Places, copied: CheckpointFolder, monkeypatch: pytest.MonkeyPatch, best: str
) -> None:
    path = copied.best(3)
    if best == "gone":
        path.unlink()
    elif best == "damaged":
        path.write_bytes(path.read_bytes()[:-400])
    else:
        rewritten(path, lambda state: state.update(step=1), listed=True)
    message, said = resumed_at(config, places, monkeypatch)
    assert "stopped at step 2 of 6" in message and path.name in said


@pytest.mark.parametrize(
    "error",
    [
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        zlib.error("Error -3 while decompressing data"),
        EOFError(),
        KeyError("storages"),
        RecursionError("too deep"),
        AttributeError("x"),
        OSError("not what it seems"),  # without a number: none of the file system
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_reading_raises_leads_to_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    said: list[str] = []
    folder = CheckpointFolder(tmp_path, said.append)
    folder.save_step(1, {"step": 1})
    newest = folder.save_step(2, {"step": 2})
    original = torch.load

    def read(path: Path, **named: Any) -> Any:
        if path == newest:
            raise error
        return original(path, **named)

    monkeypatch.setattr(checkpoint.torch, "load", read)
    assert folder.latest() == {"step": 1}
    assert str(newest) in said[0] and "continuing from the checkpoint before it" in said[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without("step"), "step"),
        (without("config"), "config"),
        (emptied("method"), "method"),
        (no_second_network, "method"),
        (lambda state: state.update(config="{"), "config"),
    ],
)
@pytest.mark.parametrize("listed", [False, True])
def test_weights_without_a_part_do_not_predict(
    copied: CheckpointFolder, change: Change, words: str, listed: bool
) -> None:
    path = copied.best(3)
    rewritten(path, change, listed=listed)
    with pytest.raises(FplError, match=words) as caught:
        load_trained(path, torch.device("cpu"))
    assert str(path) in caught.value.message and caught.value.exit_code == 2


def test_weights_that_are_no_numbers_do_not_predict(copied: CheckpointFolder) -> None:
    def spoil(state: State) -> None:
        state["method"]["network.classifier.bias"] = state["method"]["network.classifier.bias"] * float("nan")

    rewritten(copied.best(3), spoil, listed=True)
    with pytest.raises(FplError, match=r"not finite, the first is network\.classifier\.bias"):
        load_trained(copied.best(3), torch.device("cpu"))


@pytest.mark.parametrize("step", [4, 6])
def test_best_weights_of_a_lost_future_are_forgotten(config: RunConfig, places: Places, step: int) -> None:
    uninterrupted = elsewhere(places, "uninterrupted")
    run(config, uninterrupted)
    # New best weights of step 3 or 6 are on disk, the checkpoint that knows of them is not.
    folder = killed(config, places, before=step)
    lost = folder.bests()[-1]
    assert int(lost.stem[-8:]) in (3, 6) and folder.steps()[-1].name == f"step_0000000{step - 2}.pt"
    # As another future: of a step that validates nothing, with weights that no run has.
    state = load(lost)
    save(folder.best(5), {**state, "step": 5, "method": {key: value * 2 for key, value in state["method"].items()}})
    path = run(config, places)
    assert_equal_results(places, uninterrupted)
    ours, theirs = weights(places, "best.pt"), weights(uninterrupted, "best.pt")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    row = fpl.load_results(places.out).runs.iloc[0]
    trained = load_trained(find_weights(places.out, path.stem, "best"), torch.device("cpu"))
    assert trained.step == row["best_step"]
    assert scores(evaluate_trained(trained, places.data_root)).miou == row["miou_whole_best"]
    assert {each.name for each in folder.folder.glob("*.pt")} == {"best.pt", "last.pt"}


def test_each_step_file_keeps_the_best_that_it_knows(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    for best, step in ((3, 4), (5, 6), (7, 8), (0, 10)):
        if best:
            save(folder.best(best), {"step": best})
        folder.save_step(step, {"step": step})
        known = [[int(path.stem[-8:]) for path in folder.bests()]]
        assert known == [{4: [3], 6: [3, 5], 8: [5, 7], 10: [7]}[step]]
    save(folder.best(11), {"step": 11})
    assert folder.weights("best") == folder.best(11)
    folder.forget_after(10)
    assert folder.weights("best") == folder.best(7) and folder.weights("last") == tmp_path / "last.pt"
    folder.finish()
    assert [path.name for path in tmp_path.iterdir()] == ["best.pt"] and load(tmp_path / "best.pt")["step"] == 7


def test_a_full_disk_is_no_failure_of_a_run(config: RunConfig, places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    from fpl import files

    todo = Job.pinned(config, places, Execution(checkpoint_every=2))

    def full(self: files._Raw, data: Any) -> int:
        self.failed = OSError(28, "No space left on device")
        raise self.failed

    with monkeypatch.context() as patch:
        patch.setattr(files._Raw, "write", full)
        result = run_job(todo)
    folder = places.checkpoints(todo.run_id)
    assert result.status == "stopped" and "no space is left" in result.reason and str(folder) in result.reason
    assert not list(places.out.glob("failures/*")) and not list(folder.glob("*.pt")) and not list(folder.glob(".*.tmp"))
    assert run_job(todo).status == "done"


@pytest.mark.parametrize("error", [MemoryError(), OSError(28, "No space left"), OSError(30, "Read-only"), ValueError()])
def test_only_failures_of_a_run_are_recorded(
    config: RunConfig, places: Places, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*arguments: Any) -> None:
        raise error

    monkeypatch.setattr(job, "_run", fail)
    result = run_job(Job("a-run", config.model_dump(mode="json"), places, Execution()))
    own = isinstance(error, ValueError)
    assert result.status == ("failed" if own else "stopped") and result.reason
    assert bool(list(places.out.glob("failures/*"))) == own


def test_want_of_memory_names_what_to_change(
    config: RunConfig, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loader(*arguments: Any, **named: Any) -> Any:
        raise MemoryError("Unable to allocate 7.28 TiB")
        yield

    monkeypatch.setattr(loop, "make_loader", loader)
    with pytest.raises(FplError, match="not enough memory") as caught:
        run(config, places)
    assert "data.crop" in caught.value.hint and caught.value.exit_code == 2


def test_which_loss_trained_is_in_the_row_and_a_change_is_said(
    config: RunConfig, places: Places, capfd: pytest.CaptureFixture[str]
) -> None:
    fused = kernels.used("cpu")
    with kernels.use("tensor"):
        killed(config, places, after=4)
    assert "implementation" not in capfd.readouterr().err
    run(config, places)
    row = fpl.load_results(places.out).runs.iloc[0]
    if fused == "tensor":  # no compiler here
        assert row["loss_implementation"] == "tensor"
    else:
        assert row["loss_implementation"] == f"tensor, {fused}"
        said = capfd.readouterr().err
        assert re.search(f"warning: the loss is computed by its {fused} implementation .*before by tensor", said)


def test_a_run_that_is_continued_shows_no_step_twice(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for first, last in ((0, 5), (2, 6)):  # killed at step 5, continued from the checkpoint of step 2
        with event_log(tmp_path, True) as log:
            log(first, {})
            for step in range(first + 1, last + 1):
                log(step, {"loss": float(10 * first + step)})
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    found = [(event.step, event.value) for event in events.Scalars("loss")]
    assert found == [(1, 1.0), (2, 2.0), (3, 23.0), (4, 24.0), (5, 25.0), (6, 26.0)]
