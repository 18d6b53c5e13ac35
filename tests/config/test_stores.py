"""Results are found where commands put them, the newest first."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from fpl.cli.main import main
from fpl.config.stores import own_stores
from fpl.store.read import find_store
from fpl.store.write import write_run
from tests.store.test_store import named_run


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def store(folder: Path, name: str, time: float) -> None:
    write_run(folder, {**named_run(name, '{"seed": 0}'), "miou_whole_last": 40.0}, [], [], [])
    os.utime(folder / "runs", (time, time))


def test_the_newest_comes_first(here: Path) -> None:
    assert own_stores() == [] and find_store() == Path("results/local")
    store(here / "results" / "local", "a", 1000.0)
    store(here / "runs" / "mini", "b", 3000.0)
    store(here / "runs" / "camvid", "c", 2000.0)
    # What is published is nobody's last work.
    store(here / "results" / "mini", "d", 9000.0)
    assert own_stores() == [Path("runs/mini"), Path("runs/camvid"), Path("results/local")]
    assert find_store() == Path("runs/mini")
    # One that has begun and finished nothing has no results to show.
    (here / "runs" / "begun" / "checkpoints").mkdir(parents=True)
    assert own_stores()[0] == Path("runs/begun") and find_store() == Path("runs/mini")


def test_bare_results_show_what_reproduce_made(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store(here / "runs" / "mini", "made-by-reproduce", 3000.0)
    monkeypatch.setattr(sys, "argv", ["fpl", "results"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    printed = capsys.readouterr().out
    assert "made-by-reproduce" in printed and "1 of 1 runs in runs/mini" in printed
