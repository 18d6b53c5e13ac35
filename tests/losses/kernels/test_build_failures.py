"""Places that cannot be used and libraries that do not fit are reasons to do without, not the end of training."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from pathlib import Path

import pytest

from fpl.losses.kernels import build, cpu_library
from fpl.losses.kernels.build import BuildError

from .cases import needs_cpu_kernel


def test_a_home_that_may_not_be_read_is_of_no_use(
    source: Path, temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lstat = Path.lstat

    def refuse(path: Path) -> os.stat_result:
        if path.is_relative_to(tmp_path / "cache"):
            raise PermissionError(13, "Permission denied", str(path))
        return lstat(path)

    monkeypatch.setattr(Path, "lstat", refuse)
    # The other way in which Python's own questions about a file end.
    monkeypatch.setattr(Path, "is_symlink", lambda path: Path.lstat(path) is None)
    assert not build._is_private(tmp_path / "cache" / "kernels")
    assert build._writable_folder() == temporary / f"fpl-{os.getuid()}"


@needs_cpu_kernel
@pytest.mark.parametrize(("module", "name"), [("tempfile", "mkstemp"), ("tempfile", "mkdtemp"), ("pathlib", "replace")])
def test_no_place_for_the_library_is_a_reason(
    source: Path, monkeypatch: pytest.MonkeyPatch, module: str, name: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    if name == "mkdtemp":
        monkeypatch.setattr(build, "_is_private", lambda folder: False)
    monkeypatch.setattr(tempfile if module == "tempfile" else Path, name, refuse)
    with pytest.raises(BuildError, match=r"cannot be put in place: .*No space left on device"):
        build.build(source)


def test_an_unfinished_quotation_in_cxx_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "g++ 'one")
    with pytest.raises(BuildError, match=r"CXX is .*: No closing quotation"):
        build.find_compiler()


def test_machines_of_another_kind_have_their_own_library(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [build.source_key(source)]
    monkeypatch.setattr(platform, "machine", lambda: "another")
    keys.append(build.source_key(source))
    monkeypatch.setattr(sys, "platform", "another")
    keys.append(build.source_key(source))
    assert len(set(keys)) == 3


@needs_cpu_kernel
def test_a_library_without_the_functions_is_a_reason(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = build.build(source)
    monkeypatch.setattr(cpu_library, "build", lambda: path)
    with pytest.raises(BuildError, match=r"kernels-.*\.so has no function fpl_summed"):
        cpu_library.library.__wrapped__()
