"""Compiling on first use: what is kept where, and what is said when it cannot be done."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import stat
import subprocess
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
import torch

from fpl.losses.kernels import build
from fpl.losses.kernels.build import BuildError

from .cases import ANSWER, needs_cpu_kernel


def compiler_script(path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


@needs_cpu_kernel
def test_a_library_is_compiled_once(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = build.build(source)
    assert path.parent == tmp_path / "cache" / "kernels"
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert build.load(path).answer() == 42
    commands: list[list[str]] = []
    run = build._run

    def record(command: list[str]) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return run(command)

    monkeypatch.setattr(build, "_run", record)
    assert build.build(source) == path
    assert [command[-1] for command in commands] == ["--version"]
    assert list(path.parent.iterdir()) == [path]
    # Changed sources are another library.
    (source / "answer.cpp").write_text(ANSWER.replace("42", "43"))
    other = build.build(source)
    assert other != path
    assert build.load(other).answer() == 43


@needs_cpu_kernel
def test_the_name_changes_with_everything_that_decides_the_code(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = build.find_compiler()
    names = [build.library_name(compiler, source)]
    for capability in ("DEFAULT", "AVX2", "AVX512"):
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda capability=capability: capability)
        names.append(build.library_name(compiler, source))
    assert len(set(names[1:])) == 3
    names = [build.library_name(compiler, source)]
    (source / "new.hpp").write_text("")
    names.append(build.library_name(compiler, source))
    names.append(build.library_name([*compiler, "-O0"], source))
    version = subprocess.CompletedProcess([], 0, "another compiler 1.0\nmore\n", "")
    monkeypatch.setattr(build, "_run", lambda command: version)
    names.append(build.library_name(compiler, source))
    assert len(set(names)) == 4


def test_flags_follow_torch_and_never_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for capability, flag in (("AVX512", "-mavx512f"), ("AVX2", "-mavx2"), ("DEFAULT", None), ("SVE256", None)):
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda capability=capability: capability)
        flags = build.compile_flags()
        assert flag is None or flag in flags
        assert ("-mavx512f" in flags) == (capability == "AVX512")
        assert not [flag for flag in flags if "native" in flag or "fast-math" in flag]


def test_no_compiler_is_a_reason(source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match=r"no C\+\+ compiler: none of c\+\+, g\+\+, clang\+\+ is found"):
        build.build(source)
    monkeypatch.setenv("CXX", "no-such-compiler -O1")
    with pytest.raises(BuildError, match="CXX is 'no-such-compiler', which is not found"):
        build.build(source)


@needs_cpu_kernel
def test_a_machine_without_a_compiler_takes_what_another_left(
    source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = build.build(source)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build.build(source) == path
    (source / "answer.cpp").write_text(ANSWER.replace("42", "43"))
    with pytest.raises(BuildError, match="no C"):
        build.build(source)


def test_cxx_is_taken_with_its_arguments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = compiler_script(tmp_path / "mine", "exit 0")
    monkeypatch.setenv("CXX", f"{script} --one 'two three'")
    assert build.find_compiler() == [script, "--one", "two three"]


@needs_cpu_kernel
def test_a_compile_error_shows_the_compilers_line(source: Path) -> None:
    (source / "broken.cpp").write_text("int f() { return nonsense; }\n")
    with pytest.raises(BuildError, match=r"broken\.cpp:1:\d+: error: .*nonsense") as raised:
        build.build(source)
    assert "\n" not in str(raised.value)
    assert not list((source.parent / "cache" / "kernels").iterdir())


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("echo licence expired >&2; exit 3", "--version failed: licence expired"),
        ("exit 3", "--version failed: no message"),
        ("[ $1 = --version ] && exit 0; echo >&2; echo internal mishap >&2; exit 1", "failed: internal mishap"),
    ],
)
def test_a_failing_compiler_is_a_reason(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, reason: str
) -> None:
    monkeypatch.setenv("CXX", compiler_script(tmp_path / "mine", body))
    with pytest.raises(BuildError, match=reason):
        build.build(source)


def test_what_is_no_program_is_a_reason(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").write_bytes(b"\x00\x01")
    (tmp_path / "mine").chmod(0o755)
    monkeypatch.setenv("CXX", str(tmp_path / "mine"))
    with pytest.raises(BuildError, match="mine does not start: Exec format error"):
        build.build(source)


def test_what_is_no_library_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / "library.so").write_text("text")
    with pytest.raises(BuildError, match=r"cannot load .*library\.so"):
        build.load(tmp_path / "library.so")


def build_and_ask(source: Path, start: Barrier, answers: Queue[tuple[str, int]]) -> None:
    start.wait()
    path = build.build(source)
    answers.put((str(path), build.load(path).answer()))


@needs_cpu_kernel
def test_processes_that_start_at_once(source: Path) -> None:
    context = multiprocessing.get_context("fork")
    start, answers = context.Barrier(3), context.Queue()
    processes = [context.Process(target=build_and_ask, args=(source, start, answers)) for _ in range(3)]
    for process in processes:
        process.start()
    given = {answers.get(timeout=50) for _ in processes}
    for process in processes:
        process.join()
    assert len(given) == 1
    path, answer = given.pop()
    assert answer == 42
    assert list(Path(path).parent.iterdir()) == [Path(path)]


@needs_cpu_kernel
@pytest.mark.parametrize("obstacle", ["a file", "read-only", "written by others", "a link"])
def test_a_folder_that_cannot_be_used(
    source: Path, temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obstacle: str
) -> None:
    cache = tmp_path / "cache"
    if obstacle == "a file":
        cache.write_text("")
    elif obstacle == "read-only":
        # Permissions do not hold root back, so the system's answer is given in its place.
        (cache / "kernels").mkdir(parents=True, mode=0o500)
        access = os.access
        monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != cache / "kernels" and access(path, mode))
    elif obstacle == "written by others":
        (cache / "kernels").mkdir(parents=True)
        (cache / "kernels").chmod(0o777)
    else:
        cache.mkdir()
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        (cache / "kernels").symlink_to(tmp_path / "elsewhere")
    path = build.build(source)
    assert path.parent == temporary / f"fpl-{os.getuid()}"
    assert build.load(path).answer() == 42
    assert build.build(source) == path


@needs_cpu_kernel
def test_a_library_that_others_could_have_planted_is_not_run(source: Path, temporary: Path, tmp_path: Path) -> None:
    folder, digest = tmp_path / "cache" / "kernels", hashlib.sha256(b"harm").hexdigest()[:16]
    planted = folder / f"{build.library_name(build.find_compiler(), source)}-{digest}.so"
    planted.parent.mkdir(parents=True)
    planted.parent.chmod(0o777)
    planted.write_text("harm")
    path = build.build(source)
    assert path != planted
    assert build.load(path).answer() == 42


@needs_cpu_kernel
def test_a_library_in_a_read_only_folder_is_found(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = build.build(source)
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK and access(path, mode))
    assert build.build(source) == path


def test_where_libraries_are_kept(monkeypatch: pytest.MonkeyPatch, temporary: Path) -> None:
    monkeypatch.delenv("FPL_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/somebody")
    own = temporary / f"fpl-{os.getuid()}"
    assert list(build.cache_folders()) == [Path("/home/somebody/.cache/fpl/kernels"), own]
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert list(build.cache_folders()) == [Path("/cache/fpl/kernels"), own]
    monkeypatch.setenv("FPL_CACHE", "/chosen")
    assert list(build.cache_folders()) == [Path("/chosen/kernels"), own]


def test_the_sources_come_with_the_package() -> None:
    # That a wheel has them is tested in tests/test_distribution.py.
    assert {"full.cpp", "tile.hpp", "pixel.hpp", "vector.hpp", "logits.hpp"} <= {
        path.name for path in build.SOURCE.iterdir()
    }


@needs_cpu_kernel
@pytest.mark.parametrize("planted", ["file of others", "link", "folder above", "way to it"])
def test_what_others_could_have_written_is_never_loaded(
    source: Path, temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str
) -> None:
    path = build.build(source)
    if planted == "file of others":
        path.chmod(0o722)
    elif planted == "link":
        path.rename(path.with_suffix(".moved"))
        path.symlink_to(path.with_suffix(".moved"))
    elif planted == "folder above":
        path.parents[1].chmod(0o777)
    else:
        (tmp_path / "open").mkdir()
        (tmp_path / "open").chmod(0o777)
        (tmp_path / "open" / "cache").symlink_to(path.parents[1])
        monkeypatch.setenv("FPL_CACHE", str(tmp_path / "open" / "cache"))
    assert build._built_before(path.name) is None
    again = build.build(source)
    assert build.load(again).answer() == 42
    # In the place of a file a new one is put; a folder is left for another.
    assert (again == path) == (planted in ("file of others", "link"))
    assert not again.is_symlink() and not again.stat().st_mode & 0o022


@needs_cpu_kernel
@pytest.mark.parametrize("damage", ["a bit", "cut", "empty", "text"])
def test_a_damaged_library_is_compiled_anew(source: Path, damage: str) -> None:
    """Of 838 single bits of the real one 14 gave another loss or gradient without a word, and 15 ended the process."""
    path = build.build(source)
    content = path.read_bytes()
    middle = len(content) // 2
    damaged = {
        "a bit": content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :],
        "cut": content[:middle],
        "empty": b"",
        "text": b"text",
    }
    path.write_bytes(damaged[damage])
    assert build._built_before(path.name) is None
    again = build.build(source)
    assert again.read_bytes() == content and build.load(again).answer() == 42


@needs_cpu_kernel
def test_sticky_folders_above_are_in_order(source: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o1777)
    path = build.build(source)
    assert path.parent == tmp_path / "cache" / "kernels" and build._built_before(path.name) == path


@needs_cpu_kernel
def test_a_compiler_that_is_killed_leaves_nothing_that_is_loaded(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = build._run

    def killed(command: list[str]) -> subprocess.CompletedProcess[str]:
        if "--version" in command:
            return run(command)
        Path(command[command.index("-o") + 1]).write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(build, "_run", killed)
        patch.setattr(build.Path, "unlink", lambda self, missing_ok=False: None)  # as if killed there and then
        with pytest.raises(KeyboardInterrupt):
            build.build(source)
    folder = tmp_path / "cache" / "kernels"
    (half,) = folder.iterdir()
    assert build.load(build.build(source)).answer() == 42
    assert half.exists()  # may be another process's that compiles now
    os.utime(half, (0, 0))
    (source / "answer.cpp").write_text(ANSWER.replace("42", "43"))
    assert build.load(build.build(source)).answer() == 43
    assert not half.exists()
