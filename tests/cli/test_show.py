"""`fpl show CELL`: where each setting of a run comes from, by a table whose layers are known."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from fpl.cli.show import show
from fpl.config.campaign import BASE, load_campaign
from fpl.config.cells import Resolver
from fpl.config.layers import flatten
from fpl.config.shipped import experiments_folder
from fpl.errors import FplError
from tests.report.world import World

app = typer.Typer()
app.command()(show)


@pytest.fixture
def world(tmp_path: Path) -> World:
    halved = 'set = { method = { name = "supervised" } }\n'
    edits = {"tables/main.toml": (halved, 'multiply = { "method.weight" = 0.5 }\n')}
    where = '[[where]]\nwhen = { method.name = "cps" }\nmethod = { ramp = 0.25 }\n[scale]\nname = "little"\n'
    return World(tmp_path, "little", {**edits, "scale/little.toml": ('[scale]\nname = "little"\n', where)}, seeds=2)


def call(world: World, *arguments: str) -> str:
    places = ["--experiments", str(world.experiments), "--scale", "little"]
    return CliRunner().invoke(app, [*arguments, *places], catch_exceptions=False).stdout


def origin(said: str, setting: str) -> str:
    """The head of the group in which a setting stands, and what stands after it."""
    head = ""
    for line in said.splitlines():
        if line.startswith("settings: "):
            head = line.removeprefix("settings: ")
        elif line.startswith(f"  {setting}"):
            return f"{head}{line.removeprefix(f'  {setting}')}"
    raise AssertionError(f"{setting} is not said:\n{said}")


def test_every_setting_and_where_it_comes_from(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world.experiments.parent)
    said = call(world, "main.fpl_cps.small_8", "optim.lr=0.2")
    assert origin(said, 'data.split.fraction = "1/8"') == "`set` of column small_8"
    assert origin(said, 'loss.kind = "fpl"') == "`set` of row fpl_cps"
    assert origin(said, "loss.threshold = 0.9") == "`threshold` of row fpl_cps"
    assert origin(said, "optim.lr = 0.2") == "override optim.lr"
    assert origin(said, "train.steps = 200") == "experiments/base/city_cps.toml  (line 19)"
    assert origin(said, "method.ramp = 0.25") == "experiments/scale/little.toml, where method.name = cps"
    assert origin(said, "optim.momentum = 0.9") == "defaults"
    assert "fpl reproduce main.fpl_cps.small_8 optim.lr=0.2 --scale little" in said
    assert "the paper prints 65.50, +0.5 over cps" in said


def test_a_multiple_and_an_override_without_effect(world: World) -> None:
    said = call(world, "main.supervised.small_8", "loss.threshold=0.7")
    assert origin(said, "method.weight = 0.75").endswith(":15, times 0.5 by `multiply` of row supervised")
    # The row has no FPL: its T is the default, whatever is asked for.
    assert origin(said, "loss.threshold = 0.9") == "defaults"


def test_runs_logs_and_failures(world: World) -> None:
    name = world.run("main.cps.small_8", 61.25, seed=0)
    world.fail("main.cps.small_8", "loss is not finite", seed=1)
    log = world.out / "logs" / f"{name}.log"
    log.parent.mkdir()
    log.write_text("step 1")
    said = call(world, "main.cps.small_8", "--results", str(world.out), "--seeds", "2")
    assert f"seed 0: 61.25\n    {name}\n    log: {log}\n" in said
    assert "seed 1: failed: loss is not finite (logs/main.cps.small_8.txt)" in said
    assert said.count("--seeds 2") == 1


def test_as_many_seeds_as_the_store_holds(world: World) -> None:
    names = [world.run("main.cps.small_8", 61.25, seed=seed) for seed in (0, 1)]
    said = call(world, "main.cps.small_8", "--results", str(world.out))
    assert all(name in said for name in names) and "--scale little --seeds 2\n" in said
    assert names[1] not in call(world, "main.cps.small_8", "--results", str(world.out), "--seeds", "1")


def test_a_cell_that_is_not_run_and_names_of_several(world: World) -> None:
    assert "not run: AEL is not there yet" in call(world, "main.fpl_ael.small_16")
    with pytest.raises(FplError, match=r"main.cps is 3 cells(.|\n)*main.cps.small_16, main.cps.small_8"):
        call(world, "main.cps")
    with pytest.raises(FplError, match=r"no table 'mian'(.|\n)*did you mean main"):
        call(world, "mian.cps.small_8")


def test_every_setting_of_every_cell_has_an_origin() -> None:
    """What the layers do not set is a default: of a run with nothing else set, the values are the same."""
    folder = experiments_folder()
    campaign = load_campaign(folder, "mini", ["table1"], rows="all")
    resolver = Resolver(folder / BASE, campaign.scale, campaign.seeds)
    for cell in campaign.all_cells:
        if cell.configs:
            config = cell.configs[0]
            unsaid = flatten(config.model_dump(mode="json")).keys() - resolver.origins(cell).keys()
            defaults = {
                f"{section}.{name}": field.default
                for section in ("optim", "train", "eval")
                for name, field in type(getattr(config, section)).model_fields.items()
            }
            used = flatten(config.model_dump())
            for key in unsaid & defaults.keys():
                assert used[key] == defaults[key] or defaults[key] is None, (cell.name, key)
