"""Checkpoints on disk: atomic, two kept, and a damaged one never in the way."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

from fpl.errors import FplError
from fpl.files import write_atomic

KEEP = 2


class CheckpointFolder:
    """The checkpoints of one run.

    `step_00000040.pt` holds everything that resuming needs; `best.pt` and `last.pt` hold weights for evaluation and
    prediction. The last two step files are kept until the run is done: should one be damaged, the other continues.

    Args:
        folder: Where the files lie; made when the first one is written.
        say: Takes one line for the user.
    """

    def __init__(self, folder: Path, say: Any = print) -> None:
        self.folder = folder
        self.say = say

    def save_step(self, step: int, state: dict[str, Any]) -> Path:
        """Write a resumable checkpoint and drop those that are no longer needed."""
        path = self.folder / f"step_{step:08d}.pt"
        save(path, state)
        for old in self.steps()[:-KEEP]:
            old.unlink(missing_ok=True)
        return path

    def steps(self) -> list[Path]:
        """Step files from oldest to newest."""
        return sorted(self.folder.glob("step_*.pt"))

    def latest(self) -> dict[str, Any] | None:
        """The newest checkpoint that reads back whole; damaged ones are named and passed over."""
        paths = self.steps()
        while paths:
            try:
                return load(paths.pop())
            except FplError as error:
                instead = "continuing from the checkpoint before it" if paths else "starting again from step 0"
                self.say(f"{error.message}\n  -> {instead}")
        return None

    def save_weights(self, name: str, weights: dict[str, Any]) -> Path:
        """Write `best.pt` or `last.pt`."""
        path = self.folder / f"{name}.pt"
        save(path, weights)
        return path

    def sweep(self) -> None:
        """Remove what killed writers left behind; only for the process that holds the run's lock."""
        for path in self.folder.glob(".*.tmp"):
            path.unlink(missing_ok=True)

    def drop_steps(self) -> None:
        """Remove the resumable checkpoints of a finished run: its weights and its row are on disk."""
        for path in self.steps():
            path.unlink(missing_ok=True)


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a state atomically."""
    write_atomic(path, lambda file: torch.save(state, file))


def load(path: Path, *, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read a state that `save` wrote, checking every byte of it first.

    Raises:
        FplError: The file is missing, truncated or damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        if damaged is not None:
            raise FplError(f"checkpoint is damaged: {damaged} fails its checksum", where=str(path))
        state = torch.load(path, map_location=device, weights_only=True)
    except FileNotFoundError:
        raise FplError("no such checkpoint", where=str(path)) from None
    except (zipfile.BadZipFile, pickle.UnpicklingError, RuntimeError, EOFError, OSError) as error:
        raise FplError(f"checkpoint cannot be read: {str(error).splitlines()[0]}", where=str(path)) from None
    if not isinstance(state, dict):
        raise FplError(f"holds a {type(state).__name__}, no checkpoint", where=str(path))
    return state
