"""What the Makefile does to a user's files and what it calls."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def make(folder: Path, *arguments: str) -> str:
    command = ["make", "-f", str(ROOT / "Makefile"), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_clean_removes_what_was_made_and_nothing_else(tmp_path: Path) -> None:
    data, other = tmp_path / "my data", tmp_path / "my"
    ours = ["synthetic_city/drawing.json", "synthetic_city/gtFine/a.png", "weights/tiny_w12_d1.pth"]
    ours += ["weights/tiny_w12_d1.pth.sha256"]
    # Without the checksum that `fpl pretrain` writes it is somebody else's.
    theirs = ["synthetic_voc/image.png", "weights/tiny_wide_dog.pth", "weights/resnet50-0ef8ed2d.pth"]
    theirs += ["cityscapes/a.png"]
    for name in [*ours, *theirs]:
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_text("")
    for path in (other / "precious", tmp_path / "runs/mini/index.html", tmp_path / "runs/paper/x"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    make(tmp_path, "clean", f"DATA={data}")
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"my/precious", "runs/paper/x", *(f"my data/{name}" for name in theirs)}
    # And again where there is nothing.
    make(tmp_path, "clean", f"DATA={tmp_path / 'nothing here'}")


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize(("mark", "gone"), [(".installed", True), (".product", True), ("work.txt", False)])
def test_clean_removes_an_environment_that_it_made(tmp_path: Path, mark: str, gone: bool) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / mark).touch()
    make(tmp_path, "clean", f"VENV={tmp_path / 'other'}")
    assert (tmp_path / "other").exists() != gone


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize("name", ['d"; touch called; "', "$(touch called)", "`touch called`", "a'b; touch called"])
def test_clean_calls_nothing_that_is_in_a_name(tmp_path: Path, name: str) -> None:
    make(tmp_path, "clean", f"DATA={name}")
    assert not (tmp_path / "called").exists()


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_reproduce_is_one_call_with_its_rows(tmp_path: Path) -> None:
    lines = [line for line in make(ROOT, "-n", "reproduce", "ROWS=all", "DATA=/a b").splitlines() if "/fpl " in line]
    assert lines == ['.venv/bin/fpl reproduce --scale "mini" --rows "all" --data-root "/a b"']
    assert '--rows "paper"' in make(ROOT, "-n", "reproduce")


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize("broken", ["ruff", "mypy", "pytest", ""])
def test_tests_fail_with_any_part_of_them(tmp_path: Path, broken: str) -> None:
    tools = tmp_path / "venv" / "bin"
    tools.mkdir(parents=True)
    for name in ("ruff", "mypy", "pytest"):
        tool = tools / name
        tool.write_text(f"#!/bin/sh\necho called {name}\nexit {int(name == broken)}\n")
        tool.chmod(0o755)
    # Installed already: newer than what it is installed for.
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "venv" / ".installed").touch()
    command = ["make", "-f", str(ROOT / "Makefile"), "test", f"VENV={tmp_path / 'venv'}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode != 0) == bool(broken)
    assert ("called pytest" in done.stdout) == (broken != "ruff") == ("called mypy" in done.stdout)
