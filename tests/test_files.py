"""Every writer, every error of the file system: words, a remedy, and nothing half-written."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import pytest
import torch
from PIL import Image

from fpl import files
from fpl.config.layers import read_tables
from fpl.data.archives import open_archives
from fpl.data.lists import read_ids
from fpl.data.read import read_header, read_image, read_label
from fpl.data.spec import get_spec
from fpl.errors import FplError, ShortageError, shortage
from fpl.files import check_output, locked, sync_folder, write_atomic
from fpl.models.weights_file import read_state_dict
from fpl.store.schema import FAILURES
from fpl.store.write import write_table
from fpl.train import predict
from fpl.train.checkpoint import load, save

ERRNOS = [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES, errno.EFBIG]
WRITERS: dict[str, Callable[[Path], object]] = {
    "bytes": lambda path: write_atomic(path, b"new"),
    "checkpoint": lambda path: save(path, {"w": torch.zeros(50_000)}),
    "parquet": lambda path: write_table(path, FAILURES, [{"run_id": "a", "seed": 1}]),
    "picture": lambda path: predict._save(path, Image.fromarray(np.zeros((300, 300), np.uint8))),
}


def fail_at(monkeypatch: pytest.MonkeyPatch, place: str, number: int) -> None:
    error = OSError(number, os.strerror(number))
    if place == "write":

        def write(self: files._Raw, data: Any) -> int:
            self.failed = error
            raise error

        monkeypatch.setattr(files._Raw, "write", write)
        return
    original = getattr(os, place)

    def fail(first: Any, *more: Any, **named: Any) -> Any:
        hidden = isinstance(first, str | Path) and Path(first).name.endswith(".tmp")
        of_file = isinstance(first, int) and stat.S_ISREG(os.fstat(first).st_mode)
        if hidden or of_file:
            raise error
        return original(first, *more, **named)

    monkeypatch.setattr(os, place, fail)


def test_the_disk_is_waited_for_unless_told_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    write_atomic(tmp_path / "a", b"new", sync=False)
    assert synced == [] and (tmp_path / "a").read_bytes() == b"new"
    write_atomic(tmp_path / "a", b"newer")
    # The file and its folder.
    assert len(synced) == 2 and [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("writer", sorted(WRITERS))
@pytest.mark.parametrize("place", ["open", "write", "fsync", "replace"])
@pytest.mark.parametrize("number", ERRNOS, ids=[errno.errorcode[number] for number in ERRNOS])
def test_each_writer_each_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: str, place: str, number: int
) -> None:
    path = tmp_path / "a.file"
    path.write_bytes(b"old")
    fail_at(monkeypatch, place, number)
    with pytest.raises(ShortageError) as caught:
        WRITERS[writer](path)
    assert caught.value.exit_code == 2
    assert str(path) in caught.value.message and str(tmp_path) in caught.value.what and caught.value.hint
    assert path.read_bytes() == b"old" and [each.name for each in tmp_path.iterdir()] == ["a.file"]


def test_an_unusual_error_is_named_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(FplError, match="folder: Is a directory"):
        write_atomic(tmp_path / "folder", b"")
    assert [each.name for each in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP])
def test_a_folder_that_cannot_be_synced_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    original = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        original(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    write_atomic(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"
    fail_at(monkeypatch, "fsync", number)
    with pytest.raises(FplError):  # of a file it is one
        write_atomic(tmp_path / "a", b"newer")


def test_any_other_error_of_a_folder_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(descriptor: int) -> None:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="input/output"):
        sync_folder(tmp_path)


def test_nothing_is_written_through_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.secrets, "token_hex", lambda size: "guessed")
    (tmp_path / "target").write_bytes(b"mine")
    (tmp_path / ".guessed.tmp").symlink_to(tmp_path / "target")
    with pytest.raises(FplError, match="exists"):
        write_atomic(tmp_path / "a", b"new")
    assert (tmp_path / "target").read_bytes() == b"mine"


def test_temporary_names_differ_and_modes_follow_the_umask(tmp_path: Path) -> None:
    names: list[str] = []
    for _ in range(2):
        write_atomic(tmp_path / "a", lambda file: names.extend(path.name for path in tmp_path.glob(".*")))
    assert len(set(names)) == 2 and all(name.startswith(".") and len(name) > 12 for name in names)
    mask = os.umask(0o027)
    try:
        write_atomic(tmp_path / "b", b"")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o640


def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def acquire(self: filelock.FileLock, timeout: float) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(filelock.FileLock, "acquire", acquire)
    with pytest.raises(ShortageError) as caught, locked(tmp_path / "x" / ".lock"):
        pass
    assert "gives no locks" in caught.value.what and str(tmp_path / "x") in caught.value.what
    assert "local disk" in caught.value.hint


def test_a_lock_that_is_held_is_no_want_of_locks(tmp_path: Path) -> None:
    with locked(tmp_path / ".lock"), pytest.raises(filelock.Timeout), locked(tmp_path / ".lock"):
        pass


def test_a_thread_that_cannot_start_is_want_of_something() -> None:
    library = shortage(ImportError("libtorch_cuda.so: failed to map segment from shared object"))
    assert library is not None and "ulimit -v" in library.hint and shortage(ImportError("No module named x")) is None
    lack = shortage(RuntimeError("can't start new thread"))
    assert lack is not None and lack.what == "no thread could be started" and "ulimit -u" in lack.hint


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        np.linalg.LinAlgError("x"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        ValueError("no room"),
    ],
)
def test_what_is_want_of_memory(error: Exception) -> None:
    lack = shortage(error)
    wanted = isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error)
    assert (lack is not None) == wanted
    if lack is not None:
        assert "memory" in lack.what and "data.crop" in lack.hint


READERS: dict[str, Callable[[Path], object]] = {
    "image": read_image,
    "header": read_header,
    "label": lambda path: read_label(path, get_spec("camvid")),
    "list": lambda path: read_ids(path, str),
    "toml": read_tables,
    "checkpoint": load,
    "weights": read_state_dict,
    "safetensors": lambda path: read_state_dict(path.rename(path.with_suffix(".safetensors"))),
    "archive": lambda path: open_archives([path], lambda read, size: None).__enter__(),
    "checksum": files.file_sha256,
}


@pytest.mark.parametrize("name", READERS)
def test_what_is_no_regular_file_is_not_opened(name: str, tmp_path: Path) -> None:
    (tmp_path / "b.png").symlink_to("/dev/null")
    with pytest.raises(FplError, match="is a device, no regular file"):
        READERS[name](tmp_path / "b.png")


def test_a_pipe_is_no_regular_file_but_nothing_and_a_folder_are_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FplError, match="is a pipe, no regular file"):
        files.check_regular(tmp_path / "pipe")
    files.check_regular(tmp_path)
    files.check_regular(tmp_path / "absent")


@pytest.mark.parametrize("name", [".", "/"])
def test_a_file_without_a_name_is_not_written(name: str) -> None:
    with pytest.raises(FplError, match="is a folder, and a file is to be written"):
        write_atomic(Path(name), b"new")


def test_a_device_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    device = tmp_path / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except OSError:
        pytest.skip("only root may make a device")
    with pytest.raises(FplError, match="is a device, no regular file"):
        write_atomic(device, b"new")
    assert stat.S_ISCHR(device.stat().st_mode)


def test_a_file_where_a_folder_is_needed_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file" / "a", tmp_path / "file" / "b" / "a"):
        with pytest.raises(FplError, match=r"file: is a file, and a folder is needed\n  -> name a folder"):
            write_atomic(path, b"new")


@pytest.mark.parametrize("path", ["/dev/stdout", "/dev/null", "/proc/self/fd/1"])
def test_names_of_what_is_anothers_are_no_output(path: str) -> None:
    with pytest.raises(FplError):
        check_output(Path(path))
