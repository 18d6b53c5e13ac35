"""What shows runs while they train is looked at before they do."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from ray import tune

from fpl.cli.option_groups import RunLaunch
from fpl.cli.options import EXPERIMENTS
from fpl.config.campaign import scale_file
from fpl.errors import FplError, ShortageError
from fpl.sweep import event_log
from fpl.sweep.launch.callbacks import heard_out, make_callbacks


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("trackers", "'trackers' names nothing"),
        (":Tracker", "':Tracker' names nothing"),
        ("no_such_trackers:Tracker", "no_such_trackers cannot be imported: No module named 'no_such_trackers'"),
        ("fpl.text:Tracker", "fpl.text has no class or function Tracker"),
        ("fpl.text:REPLACEMENT", "fpl.text has no class or function REPLACEMENT"),
        ("fpl.text:duration", r"duration\(\) fails: duration\(\) missing 1 required positional argument"),
        ("fpl.text:timestamp", r"timestamp\(\) gives a str"),
    ],
)
def test_what_makes_no_callback_is_refused_by_the_command(name: str, what: str) -> None:
    with pytest.raises(FplError, match=what) as caught:
        RunLaunch(callbacks=[name]).over(scale_file(EXPERIMENTS, "mini"))
    assert caught.value.where.startswith("--callback") and caught.value.hint


def test_a_callback_that_ends_the_process_has_not_done_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients of trackers do so where they may not log in, with exit code 0 even."""
    for name, content in {
        "exits_when_imported": "import sys; sys.exit(0)",
        "exits_when_made": "import sys\ndef Tracker(): sys.exit(0)",
    }.items():
        (tmp_path / f"{name}.py").write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    for name, what in {"exits_when_imported": "cannot be imported", "exits_when_made": "fails"}.items():
        with pytest.raises(FplError, match=what):
            make_callbacks([f"{name}:Tracker"])
    with pytest.raises(FplError, match=r"ended the command by sys\.exit\(0\)") as caught, heard_out(["a:Tracker"]):
        sys.exit(0)
    assert caught.value.where == "--callback a:Tracker" and caught.value.exit_code == 2


def test_callbacks_are_made_anew_and_need_ray() -> None:
    names = RunLaunch(callbacks=["ray.tune:Callback"]).over(scale_file(EXPERIMENTS, "mini")).callbacks
    (first,), (second,) = make_callbacks(names), make_callbacks(names)
    assert isinstance(first, tune.Callback) and first is not second
    with pytest.raises(FplError, match="it is Ray Tune that calls callbacks"):
        RunLaunch(callbacks=["ray.tune:Callback"]).over(scale_file(EXPERIMENTS, "mini"), local=True)


def test_without_tensorboard_nothing_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    # A shortage: a machine of a cluster that lacks it leaves the run to be continued.
    with pytest.raises(ShortageError, match="TensorBoard is not installed"):
        RunLaunch(tensorboard=True).over(scale_file(EXPERIMENTS, "mini"))
    assert not RunLaunch().over(scale_file(EXPERIMENTS, "mini")).tensorboard


@contextlib.contextmanager
def written(folder: Path, purge_step: int) -> Iterator[SimpleNamespace]:
    """Stands for TensorBoard's writer."""
    folder.mkdir()
    try:
        yield SimpleNamespace(add_scalar=lambda *_: None)
    finally:
        (folder / "events").write_bytes(b"all of them")


def test_files_of_a_run_that_failed_are_kept_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[bytes] = []
    monkeypatch.setattr(event_log, "summary_writer", lambda: written)
    monkeypatch.setattr(event_log, "keep", lambda path: kept.append(path.read_bytes()))
    with pytest.raises(ValueError, match="diverged"), event_log.event_log(tmp_path / "run", True) as log:
        log(1, {"loss": 1.0})
        raise ValueError("diverged")
    assert kept == [b"all of them"]

    def refuse(path: Path) -> None:
        raise OSError("no way to the storage")

    monkeypatch.setattr(event_log, "keep", refuse)
    with pytest.raises(ValueError, match="diverged"), event_log.event_log(tmp_path / "again", True) as log:
        log(1, {"loss": 1.0})
        raise ValueError("diverged")
    with pytest.raises(OSError, match="no way"), event_log.event_log(tmp_path / "whole", True) as log:
        log(1, {"loss": 1.0})
