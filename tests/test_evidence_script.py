"""`benchmarks/evidence.sh`: every campaign that it asks for is one that the command takes."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fpl.cli.main import app

ROOT = Path(__file__).parents[1]
PARTS = ["mini", "mini_seeds", "mini_frameworks", "mini_thresholds"]
PARTS += ["camvid", "camvid_tables", "camvid_length", "camvid_frameworks"]
# In the place of Python: writes down how it was called, and makes the folder that would be published.
STAND_IN = """#!/usr/bin/env bash
printf '%q ' "$@" >> "$CALLS"; echo >> "$CALLS"
while [ $# -gt 0 ]; do [ "$1" = --publish ] && mkdir -p "$2"; shift; done
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone in which nothing was made yet."""
    shutil.copytree(ROOT / "benchmarks", tmp_path / "benchmarks", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "experiments", tmp_path / "experiments")
    (tmp_path / "results").mkdir()
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "all"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def commands(here: Path) -> list[list[str]]:
    """The words behind `fpl` of every command of the script, in its order."""
    stand_in = here / "bin" / "python"
    stand_in.parent.mkdir()
    stand_in.write_text(STAND_IN)
    stand_in.chmod(0o755)
    own = {"BIN": str(stand_in.parent), "CALLS": str(here / "calls"), "DATA": str(here / "data")}
    subprocess.run(["bash", "benchmarks/evidence.sh", *PARTS], cwd=here, env={**os.environ, **own}, check=True)
    calls = [shlex.split(line) for line in (here / "calls").read_text().splitlines()]
    return [words[2:] for words in calls if words[:2] == ["-m", "fpl"]]


class ReachedError(Exception):
    """All that is asked before a plan is made was in order."""


def test_every_campaign_of_the_script_is_taken(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    campaigns = []

    def stop(campaign: Any, *rest: object) -> None:
        campaigns.append(campaign)
        raise ReachedError

    monkeypatch.setattr("fpl.sweep.plan.campaign_plan.make_plan", stop)
    asked = [words for words in commands(here) if words[0] == "reproduce"]
    for words in asked:
        result = CliRunner().invoke(app, words)
        assert isinstance(result.exception, ReachedError), (shlex.join(words), result.output)
    assert len(campaigns) == len(asked) > len(PARTS)
    published = {Path(words[words.index("--publish") + 1]).name for words in asked}
    assert published == set(PARTS)


def test_the_script_makes_every_folder_of_runs() -> None:
    made = {
        path.name
        for path in (ROOT / "results").iterdir()
        if (path / "runs").is_dir() and (path / "ENVIRONMENT").exists()
    }
    assert made <= set(PARTS)
