"""What no machine can hold is refused with the limit, not met as an end of memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from fpl.cli.main import app
from fpl.config.compose import load_config
from fpl.config.launch import _Launch
from fpl.config.schema import RunConfig
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
