"""Checkpoints survive kills and damage."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path

import pytest
import torch

from fpl.errors import FplError, ShortageError
from fpl.train.checkpoint import CheckpointFolder, PartError, load, save


def test_round_trip_is_exact(tmp_path: Path) -> None:
    state = {"step": 3, "weights": {"w": torch.randn(5)}, "name": "x", "rows": [{"loss": 0.5}]}
    save(tmp_path / "a.pt", state)
    back = load(tmp_path / "a.pt")
    assert torch.equal(back["weights"]["w"], state["weights"]["w"])  # type: ignore[index]
    assert back["rows"] == [{"loss": 0.5}]


def test_two_steps_are_kept(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    for step in (1, 2, 30):
        folder.save_step(step, {"step": step})
    assert [path.name for path in folder.steps()] == ["step_00000002.pt", "step_00000030.pt"]
    latest = folder.latest()
    assert latest is not None and latest["step"] == 30


def test_copies_of_a_user_are_neither_taken_nor_removed(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    for step in (1, 2, 3):
        save(folder.best(step), {"step": step})
        folder.save_step(step, {"step": step})
    copies = [tmp_path / name for name in ("best_copy.pt", "step_old.pt", "best_00000003_copy.pt")]
    for copy in copies:
        copy.write_bytes(b"a copy")
    latest = folder.latest()
    assert latest is not None and latest["step"] == 3 and folder.weights("best") == folder.best(3)
    folder.finish()
    assert load(tmp_path / "best.pt")["step"] == 3 and all(copy.is_file() for copy in copies)


@pytest.mark.parametrize("damage", ["truncated", "empty", "bit", "text"])
def test_damaged_checkpoint_falls_back_with_a_message(tmp_path: Path, damage: str) -> None:
    said: list[str] = []
    folder = CheckpointFolder(tmp_path, said.append)
    folder.save_step(1, {"step": 1, "w": torch.arange(1000.0)})
    path = folder.save_step(2, {"step": 2, "w": torch.arange(1000.0)})
    content = bytearray(path.read_bytes())
    if damage == "bit":
        content[len(content) // 2] ^= 0xFF
    path.write_bytes(
        {"truncated": bytes(content[:-500]), "empty": b"", "bit": bytes(content), "text": b"hello"}[damage]
    )
    latest = folder.latest()
    assert latest is not None and latest["step"] == 1
    assert str(path) in said[0] and "continuing from the checkpoint before it" in said[0]


def test_no_checkpoint_is_none_and_a_missing_file_is_an_error(tmp_path: Path) -> None:
    assert CheckpointFolder(tmp_path / "none").latest() is None
    with pytest.raises(FplError, match="no such checkpoint"):
        load(tmp_path / "none.pt")


def test_when_all_are_damaged_it_says_that_it_starts_again(tmp_path: Path) -> None:
    said: list[str] = []
    folder = CheckpointFolder(tmp_path, said.append)
    folder.save_step(1, {"step": 1}).write_bytes(b"")
    assert folder.latest() is None and "starting again from step 0" in said[0]


@pytest.mark.parametrize("content", ["a module", "a tensor"])
def test_files_of_another_kind_are_refused(tmp_path: Path, content: str) -> None:
    torch.save(torch.nn.Linear(2, 2) if content == "a module" else torch.zeros(2), tmp_path / "x.pt")
    with pytest.raises(FplError, match=r"cannot be read|holds a Tensor"):
        load(tmp_path / "x.pt")


def test_kill_while_writing_leaves_a_readable_checkpoint(tmp_path: Path) -> None:
    program = textwrap.dedent(
        f"""
        import torch
        from pathlib import Path
        from fpl.train.checkpoint import CheckpointFolder
        folder = CheckpointFolder(Path({str(tmp_path)!r}))
        for step in range(1, 100000):
            folder.save_step(step, {{"step": step, "w": torch.full((300_000,), float(step))}})
        """
    )
    writer = subprocess.Popen([sys.executable, "-c", program])
    while len(list(tmp_path.glob("step_*.pt"))) < 2 and writer.poll() is None:
        time.sleep(0.01)
    time.sleep(random.uniform(0, 0.1))  # any moment will do
    writer.kill()
    writer.wait()
    said: list[str] = []
    latest = CheckpointFolder(tmp_path, said.append).latest()
    assert latest is not None and said == []
    assert torch.equal(latest["w"], torch.full((300_000,), float(latest["step"])))


@pytest.mark.parametrize(
    "listed", [3, [], {}, {"w": 3}, {"w": []}, {"w": torch.zeros(2)}, {"w": [torch.zeros(2), torch.zeros(2)]}], ids=str
)
def test_a_list_of_parts_that_is_none(tmp_path: Path, listed: object) -> None:
    torch.save({"w": 1, "parts": listed}, tmp_path / "x.pt")
    with pytest.raises(PartError, match=r"x\.pt: has no list of its parts"):
        load(tmp_path / "x.pt")


def test_lists_inside_lists_without_end(tmp_path: Path) -> None:
    deep: list[object] = []
    for _ in range(2000):
        deep = [deep]
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10 * limit)
    try:
        torch.save({"w": deep, "parts": {"w": [0, ""]}}, tmp_path / "x.pt")
    finally:
        sys.setrecursionlimit(limit)
    with pytest.raises(PartError, match=r"x\.pt: has a part of too many lists"):
        load(tmp_path / "x.pt")


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EACCES, errno.EMFILE, errno.ETIMEDOUT])
@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_the_system_does_not_let_be_read_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, what: str
) -> None:
    said: list[str] = []
    folder = CheckpointFolder(tmp_path, said.append)
    for step in (1, 2):
        folder.save_step(step, {"step": step})

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched, pytest.raises(FplError) as raised:
        patched.setattr("zipfile.ZipFile" if what == "file" else "pathlib.Path.iterdir", refuse)
        folder.latest()
    assert str(tmp_path) in raised.value.message and said == [] and len(folder.steps()) == 2
    assert isinstance(raised.value, ShortageError) or what == "folder"


OF_CONTENT = [
    OSError("not a gzipped file"),
    OSError(errno.EINVAL, "Invalid argument"),
    OSError(errno.ELOOP, "Too many levels of symbolic links"),
]


@pytest.mark.parametrize("error", OF_CONTENT, ids=str)
def test_an_error_of_a_reader_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    folder = CheckpointFolder(tmp_path, lambda text: None)
    folder.save_step(1, {"step": 1})
    newest, whole = folder.save_step(2, {"step": 2}), zipfile.ZipFile

    def read(path: Path) -> zipfile.ZipFile:
        if path == newest:
            raise error
        return whole(path)

    monkeypatch.setattr(zipfile, "ZipFile", read)
    latest = folder.latest()
    assert latest is not None and latest["step"] == 1
