"""Wheel and sdist are built, and what they hold works outside a checkout."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# What is an input of a build or travels in the sdist.
PARTS = ("fpl", "experiments", "tests", "docs", "benchmarks", "deploy")
TOML = {path.relative_to(ROOT).as_posix() for path in (ROOT / "experiments").glob("[!s]*/*.toml")}
# What torch needs to be imported; numpy and everything else that the suite has are not there.
TORCH_ALONE = (
    *("torch", "torchgen", "functorch", "triton", "nvidia", "typing_extensions.py", "filelock", "fsspec"),
    *("jinja2", "markupsafe", "networkx", "sympy", "mpmath", "isympy.py", "setuptools", "cuda", "torch-*"),
)


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FPL_", "PYTHONPATH"))}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=kept | environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel, made of the sdist beside it."""
    folder = tmp_path_factory.mktemp("built")
    tree = folder / "tree"
    for name in PARTS:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, tree)
    backend = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"
    run(sys.executable, "-c", backend, "build_sdist", folder, cwd=tree)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (source,) = (folder / "unpacked").iterdir()
    run(sys.executable, "-c", backend, "build_wheel", folder, cwd=source)
    return folder


def environment(folder: Path, wheel: Path, packages: Callable[[Path], list[Path]]) -> Path:
    """A Python with the wheel and nothing of a checkout.

    Args:
        folder: Where it is made.
        wheel: To unpack there, which is what installing a pure wheel is.
        packages: Of the installed packages' folder, what there is beside it.
    """
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    own = next(folder.glob("lib/python*/site-packages"))
    for path in packages(Path(site.getsitepackages()[0])):
        (own / path.name).symlink_to(path)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(own)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    def dependencies(packages: Path) -> list[Path]:
        return [path for path in packages.iterdir() if not path.name.startswith(("fpl", "fuzzy", "__editable", "easy"))]

    (wheel,) = built.glob("*.whl")
    return environment(tmp_path_factory.mktemp("python") / "whole", wheel, dependencies)


def test_both_hold_the_experiments(built: Path) -> None:
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    assert wheel.name.startswith("fuzzy_positive_learning-")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {f"fpl/{name}" for name in TOML if not name.startswith("experiments/splits")} <= names
    assert "fpl/py.typed" in names and any(name.startswith("fpl/losses/kernels/source/") for name in names)
    assert "fpl/report/templates/page.html" in names and "fpl/report/templates/style.css" in names
    assert not any(name.startswith(("tests", "benchmarks", "docs")) for name in names)
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "LICENSE", "Makefile", "docs/start.md", "tests/test_distribution.py", *TOML} <= packed


def test_a_folder_without_a_checkout_plans_and_shows(installed: Path, tmp_path: Path) -> None:
    plan = run(installed, "-m", "fpl", "plan", "table4", cwd=tmp_path)
    assert "table4" in plan and str(ROOT) not in plan
    assert "69.71" in run(installed, "-m", "fpl", "tables", "table4", cwd=tmp_path)
    where = run(installed, "-c", "from fpl.config.shipped import experiments_folder as f; print(f())", cwd=tmp_path)
    assert where.strip().startswith(str(installed.parents[1]))
    # A local folder wins.
    shutil.copytree(ROOT / "experiments", tmp_path / "experiments", ignore=shutil.ignore_patterns("splits"))
    (tmp_path / "experiments" / "tables" / "table4.toml").unlink()
    assert "table4" not in run(installed, "-m", "fpl", "tables", cwd=tmp_path)


def test_a_folder_without_a_checkout_reproduces(installed: Path, tmp_path: Path) -> None:
    # Training an encoder first would take half of the time, and needs nothing of the package that a run does not.
    command = ("reproduce", "table4.fpl_cps.t050", "train.steps=2", "model.pretrained=none", "--local")
    run(installed, "-m", "fpl", *command, cwd=tmp_path, OMP_NUM_THREADS="1")
    assert len(list((tmp_path / "runs" / "mini" / "runs").glob("*.parquet"))) == 1


def test_the_loss_needs_torch_alone(built: Path, tmp_path: Path) -> None:
    def torch_alone(packages: Path) -> list[Path]:
        return [path for pattern in TORCH_ALONE for path in packages.glob(pattern)]

    (wheel,) = built.glob("*.whl")
    python = environment(tmp_path / "bare", wheel, torch_alone)
    code = """
import importlib.util, torch
from fpl.losses import assign, fuzzy_positive_loss
for name in ("numpy", "pandas", "pyarrow", "pydantic", "ray", "optuna", "typer", "matplotlib", "PIL"):
    assert importlib.util.find_spec(name) is None, name
# Five equal probabilities: the fifth brings the sum above 0.9, and K is one less.
student, teacher = torch.randn(2, 5, 8, 8, requires_grad=True), torch.zeros(2, 5, 8, 8)
fuzzy_positive_loss(student, teacher, threshold=0.9).backward()
print(int(assign(teacher.softmax(1), threshold=0.9).min()))
"""
    assert run(python, "-W", "ignore", "-c", code, cwd=tmp_path, FPL_LOSS="tensor").strip() == "4"
    # The commands say what they lack.
    called = subprocess.run([python, "-m", "fpl", "tables"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert called.returncode == 2 and "is not installed" in called.stderr and "Traceback" not in called.stderr
