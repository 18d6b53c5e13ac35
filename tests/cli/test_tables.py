"""`fpl tables` as its user meets it, also on a machine without torch and Ray."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from fpl.cli.tables import tables
from fpl.errors import FplError
from tests.report.world import World

app = typer.Typer()
app.command()(tables)

# Importing any of these is an error, as where they are not installed.
WITHOUT = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "torchvision", "ray", "optuna", "timm"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Refuse())
sys.argv = ["fpl", "tables", *sys.argv[1:]]
from fpl.cli.main import main
main()
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path, "little")
    made.run("main.cps.small_8", 25.0)
    made.run("main.fpl_cps.small_8", 25.5)
    return made


def call(world: World, *arguments: str) -> Result:
    places = ["--experiments", str(world.experiments), "--scale", "little"]
    return CliRunner().invoke(app, [*arguments, *places], catch_exceptions=False)


def test_terminal_and_subset(world: World) -> None:
    result = call(world, "main.fpl_cps.small_8", "--results", str(world.out))
    assert result.exit_code == 0
    assert "25.50 ↑0.50 ✓" in result.stdout and "paper 65.50 ↑0.50" in result.stdout
    assert "Mean_Teacher" not in result.stdout and "1 of 1 runs done" in result.stdout
    assert "1 win, 0 losses" in result.stdout


@pytest.mark.parametrize(("form", "sign"), [("md", "## Table 1"), ("tex", r"\toprule"), ("html", "<!doctype html>")])
def test_formats_go_to_standard_output_or_a_file(world: World, tmp_path: Path, form: str, sign: str) -> None:
    printed = call(world, "--results", str(world.out), "--format", form).stdout
    assert sign in printed and "65.50" in printed
    target = tmp_path / "deep" / f"tables.{form}"
    said = call(world, "--results", str(world.out), "--format", form, "--to", str(target)).stdout
    assert target.read_text() == printed
    assert said == f"4 tables in {target}\n"


def test_rows_and_seeds(world: World) -> None:
    def rows(*arguments: str, names: str = "main") -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(call(world, names, "--format", "csv", *arguments).stdout)))

    stored = ("--results", str(world.out))
    assert len(rows(*stored)) == 12 and len(rows(*stored, "--rows", "all")) == 15
    # A name that fits no row of the paper's asks for one of ours.
    assert len(rows(*stored, names="main.superv*")) == 3
    left = call(world, "main", *stored).stdout
    assert (
        "1 row of this suite without results left out: `fpl reproduce --rows all --scale little` trains their 3 runs"
        in (" ".join(left.split()))
    )
    world.run("main.supervised.small_8", 20.0)
    assert len(rows(*stored)) == 15 and len(rows(*stored, "--rows", "paper")) == 12
    assert "row of this suite" not in call(world, "main", *stored).stdout
    assert {row["wanted"] for row in rows("--seeds", "2")} == {"2", "0"}


def test_a_cited_system_without_results_is_cited_alone(tmp_path: Path) -> None:
    cited = 'role = "cited"\n'
    edit = {"tables/main.toml": (cited, cited + 'recipe = "cps"\nset = { method = { weight = 3.0 } }\n')}
    world = World(tmp_path, "little", edit)
    world.run("main.cps.small_16", 23.0)
    arguments = ("main", "--results", str(world.out))
    said = call(world, *arguments).stdout
    assert "2 rows of this suite without results left out" in " ".join(said.split())
    (line,) = (line for line in said.splitlines() if "Mean_Teacher" in line)
    assert line.split()[-5:] == ["cited", "66.14", "cited", "72.03", "-"]
    world.run("main.teacher.small_8", 20.0)
    said = call(world, *arguments).stdout
    (line, *_) = (line for line in said.splitlines() if "Mean_Teacher" in line)
    assert line.split()[-4:] == ["not", "run", "20.00", "-"]


def test_default_results_are_those_of_the_scale(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world.out.parent)
    assert "0 of 6 runs done" in call(world).stdout
    shutil.copytree(world.out, Path("elsewhere") / "little")
    world.out.rename("of-no-scale")
    Path("elsewhere").rename("results")
    assert "2 of 6 runs done" in call(world).stdout


def test_named_results_must_be_there(world: World, tmp_path: Path) -> None:
    with pytest.raises(FplError, match="no such folder"):
        call(world, "--results", str(tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(FplError, match="no results here"):
        call(world, "--results", str(tmp_path / "empty"))


def test_a_store_of_failures_alone_is_shown(world: World, tmp_path: Path) -> None:
    world.out = tmp_path / "failed"
    world.fail("main.cps.small_8", "ValueError: no")
    assert "failed: ValueError: no" in call(world, "--results", str(world.out)).stdout


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [(["main"], 0, "25.50"), (["--format", "html"], 0, "25.50"), (["nothing"], 2, "no table 'nothing'")],
)
def test_a_machine_without_torch_and_ray(world: World, arguments: list[str], code: int, expected: str) -> None:
    places = ["--experiments", str(world.experiments), "--scale", "little", "--results", str(world.out)]
    command = [sys.executable, "-c", WITHOUT, *arguments, *places]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    said, silent = (done.stderr, done.stdout) if code else (done.stdout, done.stderr)
    assert expected in said and "Traceback" not in said
    assert silent == ("" if code else f"results: {world.out}\n")
