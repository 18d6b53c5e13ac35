"""A run that was killed, for tests of what becomes of its checkpoints."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from fpl.config.compose import load_config
from fpl.sweep.places import Places
from fpl.train.checkpoint import CheckpointFolder
from tests.train.runs import killed


@pytest.fixture(scope="module")
def begun(run_file: Path, data_places: Places, tmp_path_factory: pytest.TempPathFactory) -> Places:
    """A run of six steps that was killed at step 4, with checkpoints of 2 and 4 and the best weights of 3."""
    places = dataclasses.replace(data_places, out=tmp_path_factory.mktemp("begun") / "out")
    folder = killed(load_config(run_file), places, after=4)
    assert sorted(path.name for path in folder.folder.glob("*.pt")) == [
        "best_00000003.pt",
        "step_00000002.pt",
        "step_00000004.pt",
    ]
    return places


@pytest.fixture
def copied(begun: Places, places: Places) -> CheckpointFolder:
    shutil.copytree(begun.out, places.out)
    (folder,) = (places.out / "checkpoints").iterdir()
    return CheckpointFolder(folder)
