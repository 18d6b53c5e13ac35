"""`fpl figures` as a program."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fpl.cli.main import app
from fpl.errors import FplError
from tests.report.world_figures import figure_world, log


def call(*arguments: str | Path) -> tuple[int, str, BaseException | None]:
    result = CliRunner().invoke(app, ["figures", *map(str, arguments)])
    return result.exit_code, result.output, result.exception


def test_one_line_per_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = figure_world(tmp_path, "little")
    world.run("main.cps.small_8", 60.0)
    world.run("main.fpl_cps.small_8", 61.0)
    monkeypatch.chdir(tmp_path)
    code, output, _ = call("--scale", "little", "--results", world.out, "--experiments", world.experiments)
    assert code == 0
    lines = output.splitlines()
    target = world.out / "figures"
    assert lines[0] == "course: not run: fpl reproduce 'main.fpl_cps.small_*' --scale little"
    assert lines[1] == f"{target / 'bars.png'} (2 runs)"
    assert lines[3] == f"{target / 'weights.png'} (no run needed)"
    assert "runs made so are in runs/little: --results names that folder" in lines
    assert lines[-1] == f"3 of 6 figures, with PDF, CSV, captions and claims, in {target}"
    assert {path.name for path in target.glob("*.png")} == {"bars.png", "curve.png", "weights.png"}
    assert (target / "claims.md").is_file()


def test_named_figures_alone_are_drawn(tmp_path: Path) -> None:
    world = figure_world(tmp_path, "little")
    run = world.run("main.fpl_cps.small_8", 61.0)
    log(world, run, [{"step": step, "mean_k": 2.0} for step in (100, 200)])
    out = tmp_path / "elsewhere"
    options = ("--scale", "little", "--results", world.out, "--out", out, "--experiments", world.experiments)
    code, output, _ = call("weights", "course", *options)
    assert code == 0
    assert [path.name for path in sorted(out.glob("*.png"))] == ["course.png", "weights.png"]
    assert output.splitlines()[0].startswith(f"{out / 'course.png'} (1 run; not run: fpl reproduce ")


def test_an_unknown_name_lists_the_figures(tmp_path: Path) -> None:
    world = figure_world(tmp_path, "little")
    world.run("main.cps.small_8", 60.0)
    code, _, error = call("coarse", "--results", world.out, "--experiments", world.experiments, "--scale", "little")
    assert code != 0
    assert isinstance(error, FplError)
    assert error.what == "no figure 'coarse'"
    assert error.hint == "did you mean course? there are: course, bars, curve, weights, batches, areas"


def test_a_folder_without_results_or_figures_is_refused(tmp_path: Path) -> None:
    world = figure_world(tmp_path, "little")
    _, _, error = call("--results", tmp_path / "none", "--experiments", world.experiments, "--scale", "little")
    assert isinstance(error, FplError) and error.what == "no such folder"
    for path in (world.experiments / "figures").iterdir():
        path.unlink()
    _, _, error = call("--results", world.out, "--experiments", world.experiments, "--scale", "little")
    assert isinstance(error, FplError) and error.what == "no figure files here"
