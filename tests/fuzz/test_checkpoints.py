"""Damaged, cut and foreign checkpoints: refused by name, and never in the way of the one before."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from hypothesis import given
from hypothesis import strategies as st

from fpl.errors import FplError
from fpl.train.checkpoint import CheckpointFolder, load, save
from tests.fuzz.damage import damaged
from tests.fuzz.outcome import files_in, result_or_error

STATE = {"step": 3, "w": torch.arange(64.0), "rows": [{"loss": 1.0}], "name": "é"}


def content() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder) / "x.pt", STATE)
        return (Path(folder) / "x.pt").read_bytes()


@given(data=st.data())
def test_a_checkpoint_is_whole_or_refused(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.pt"
        path.write_bytes(data.draw(damaged(content())))
        found = result_or_error(lambda: load(path), path)
        assert files_in(Path(folder)) == {path}
    if not isinstance(found, FplError):
        assert torch.equal(found["w"], STATE["w"]) and {**found, "w": 0} == {**STATE, "w": 0}


@given(data=st.data())
def test_the_checkpoint_before_continues(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        said: list[str] = []
        folder = CheckpointFolder(Path(name), said.append)
        folder.save_step(3, STATE)
        damage = data.draw(damaged(content()))
        (Path(name) / "step_00000006.pt").write_bytes(damage)
        found = folder.latest()
        assert found is not None and torch.equal(found["w"], STATE["w"])
        assert all("step_00000006.pt" in line for line in said)
