"""What no machine can hold is refused with the limit, not met as an end of memory."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import pytest
import torch
import typer
from pydantic import BaseModel
from typer.testing import CliRunner

from fpl.cli.main import app
from fpl.config.campaign import load_campaign
from fpl.config.compose import load_config
from fpl.config.defaults import MOST_RUNS
from fpl.config.launch import _Launch
from fpl.config.registry import method_names, options_class
from fpl.config.schema import RunConfig
from fpl.config.search import Head, load_search, with_changes
from fpl.config.shipped import experiments_folder
from fpl.errors import FplError
from fpl.sweep.execution import Execution
from fpl.train.runtime import prepare_torch


@pytest.mark.parametrize(
    ("override", "limit"),
    [
        ("data.crop=[100000,100000]", "8192"),
        ("eval.crop=[40,100000]", "8192"),
        ("method.cutmix_boxes=1000000000", "1000"),
        ("data.labeled_batch=100000000", "4096"),
        ("data.unlabeled_batch=100000000", "4096"),
        ("model.head_channels=1000000000", "65536"),
        ("model.tiny_depth=100000", "1000"),
        ("train.steps=1000000000000000", "1000000000"),
        ("data.num_classes=256", "255"),
        ("data.crop=[8192,8192]", "268,435,456"),
        ("seed=2147483648", "2147483647"),
        ("data.split.index=99999999999", "2147483647"),
        ("optim.lr=1e31", "1000000000000"),
        ("method.weight=1e31", "1000000000000"),
    ],
)
def test_keys(run_file: Path, override: str, limit: str) -> None:
    with pytest.raises(FplError) as caught:
        load_config(run_file, overrides=[override])
    assert limit in caught.value.message and override.partition("=")[0] in caught.value.message


@pytest.mark.parametrize("threads", [0, -1, 100_000])
def test_threads(config: RunConfig, threads: int) -> None:
    before = torch.get_num_threads()
    with pytest.raises(FplError, match="threads"):
        prepare_torch(config.train, threads)
    with pytest.raises(FplError, match=rf"x\.toml: \[launch\] threads = {threads} is not"):
        Execution.of_scale({"threads": threads}, "x.toml")
    assert torch.get_num_threads() == before


def test_a_scale_may_say_all_that_an_execution_has() -> None:
    """Two lists of keys; which nodes are left out is for a cluster to say."""
    assert set(_Launch.model_fields) - {"gang"} == set(Execution.__dataclass_fields__) - {"left_out"}


@pytest.mark.parametrize("command", [["train", "x.toml"], ["eval", "x"], ["predict", "x", "y", "z"], ["reproduce"]])
def test_threads_on_the_command_line(command: list[str]) -> None:
    done = CliRunner().invoke(app, [*command, "--threads", "100000"])
    assert done.exit_code == 2 and "1024" in done.output


@pytest.mark.parametrize(
    ("command", "option", "most"),
    [
        (["train", "x.toml"], "--loader-workers", "256"),
        (["reproduce"], "--loader-workers", "256"),
        (["data", "draw", "synthetic_city"], "--train", "100000"),
        (["data", "draw", "synthetic_voc"], "--validation", "100000"),
    ],
)
def test_what_would_take_all_memory_or_disk_is_refused(command: list[str], option: str, most: str) -> None:
    done = CliRunner().invoke(app, [*command, option, "99999999"])
    assert done.exit_code == 2 and most in done.output
    with pytest.raises(FplError, match=r"x\.toml: \[launch\] loader_workers = 257 is not"):
        Execution.of_scale({"loader_workers": 257}, "x.toml")


@dataclass(frozen=True)
class Number:
    """A parameter of a command that takes a number.

    Attributes:
        command: Words that call the command.
        name: As the command's function calls it.
        info: What Typer was told.
        default: What it is where nobody says it.
    """

    command: tuple[str, ...]
    name: str
    info: Any
    default: Any

    @property
    def option(self) -> str:
        # Typer takes a name that comes first for the default, until it has the annotation.
        named = [each for each in (self.info.default, *(self.info.param_decls or ())) if str(each).startswith("--")]
        return next(iter(named), f"--{self.name.replace('_', '-')}")

    def __str__(self) -> str:
        return " ".join((*self.command, self.option))


def numbers_of(commands: typer.Typer, path: tuple[str, ...] = ()) -> Iterator[Number]:
    for group in commands.registered_groups:
        assert group.typer_instance is not None
        yield from numbers_of(group.typer_instance, (*path, str(group.name)))
    for command in commands.registered_commands:
        assert command.callback is not None
        words = (*path, command.name or command.callback.__name__)
        for each in inspect.signature(command.callback, eval_str=True).parameters.values():
            kind, *told = get_args(each.annotation) if get_origin(each.annotation) is Annotated else [each.annotation]
            if {int, float} & {kind, *get_args(kind)}:
                yield Number(words, each.name, *(told or [None]), each.default)


NUMBERS = list(numbers_of(app))


def test_the_walk_meets_the_options() -> None:
    assert {
        *("pretrain --seed", "plan --cores", "data draw --train", "show --seeds", "train --diagnose-every"),
        *("reproduce --checkpoint-every", "search --trial-splits", "splits make --index", "plan --gpus-per-worker"),
    } <= set(map(str, NUMBERS))
    assert len(NUMBERS) > 40


@pytest.mark.parametrize("number", NUMBERS, ids=str)
def test_every_number_on_the_command_line_has_both_ends(number: Number) -> None:
    least, most = number.info.min, number.info.max
    assert -math.inf < least < most < math.inf
    assert number.default is None or least <= number.default <= most
    for value, bound in ((most + 1, most), (least - 1, least), (10**30, most)):
        done = CliRunner().invoke(app, [*number.command, f"{number.option}={value}"])
        assert done.exit_code == 2 and isinstance(done.exception, SystemExit)
        assert number.option in done.output and str(bound).removesuffix(".0") in done.output


@pytest.mark.parametrize("value", ["9" * 5000, "-1e400", "x", "1.5"])
def test_what_is_no_whole_number_is_refused(value: str) -> None:
    done = CliRunner().invoke(app, ["plan", f"--seeds={value}"])
    assert done.exit_code == 2 and "--seeds" in done.output and isinstance(done.exception, SystemExit)


@pytest.mark.parametrize("name", ["gpus_per_worker", "cpus_per_worker"])
def test_a_share_that_is_no_number_is_refused(name: str) -> None:
    with pytest.raises(FplError, match="nan"):
        Execution(**{name: math.nan})
    with pytest.raises(FplError, match="finite"):
        Execution.of_scale({name: math.nan})


def numbers(schema: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every number in a JSON schema, with the keys that lead there."""
    if isinstance(schema, list):
        for each in schema:
            yield from numbers(each, path)
    if not isinstance(schema, dict):
        return
    if schema.get("type") in ("integer", "number") and not {"enum", "const"} & schema.keys():
        yield path, schema
    for key, value in schema.items():
        yield from numbers(value, path if key in ("properties", "anyOf", "prefixItems", "items") else f"{path}.{key}")


MODELS: list[type[BaseModel]] = [RunConfig, _Launch, Head, *map(options_class, method_names())]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_number_of_the_configuration_has_both_ends(model: type[BaseModel]) -> None:
    if model.__module__.startswith("fpl."):
        for path, schema in numbers(model.model_json_schema(), model.__name__):
            assert {"minimum", "exclusiveMinimum"} & schema.keys(), path
            assert {"maximum", "exclusiveMaximum"} & schema.keys(), path


def test_the_walk_meets_the_keys() -> None:
    met = {path.rpartition(".")[2] for model in MODELS for path, _ in numbers(model.model_json_schema(), "")}
    assert {"seed", "lr", "crop", "poly_power", "weight", "queue", "workers", "trials", "paste_excluded"} <= met


def test_options_have_the_limits_of_the_keys_of_their_names() -> None:
    keys = dict(numbers(_Launch.model_json_schema(), ""))
    runs = [each for each in NUMBERS if each.command[0] != "data"]
    shared = [(keys[f".{each.name}"], each.info) for each in runs if f".{each.name}" in keys]
    assert len(shared) > 20
    for key, info in shared:
        assert key["maximum"] == info.max and key["minimum"] <= info.min


def test_more_runs_of_a_cell_or_a_trial_than_anybody_can_plan_are_refused(tmp_path: Path) -> None:
    folder = experiments_folder()
    with pytest.raises(FplError, match=f"--seeds: {MOST_RUNS + 1} seeds per cell"):
        load_campaign(folder, "mini", seeds=MOST_RUNS + 1)
    scale = tmp_path / "wide.toml"
    scale.write_text("[scale]\nseeds = 1000000000\n")
    with pytest.raises(FplError, match=r"wide\.toml: 1000000000 seeds per cell"):
        load_campaign(folder, str(scale))
    with pytest.raises(FplError, match=f"at most {MOST_RUNS} runs make a trial"):
        with_changes(load_search(folder, "joint"), {"seeds": MOST_RUNS, "splits": 2})
