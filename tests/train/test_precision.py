"""TF32 as a value of a run: what is set for it, what a device has, and that float32 is what it always was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import fpl
from fpl.config.compose import load_config
from fpl.config.identity import digest
from fpl.config.schema import RunConfig
from fpl.errors import FplError
from fpl.sweep.places import Places
from fpl.train.runtime import check_precision, has_tf32, prepare_torch, uses_tf32
from tests.train.runs import run

GPU = torch.device("cuda:0")


@pytest.fixture(autouse=True)
def flags() -> Iterator[None]:
    """Both switches as they were."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


def of(run_file: Path, precision: str) -> RunConfig:
    return load_config(run_file, overrides=[f"train.precision={precision}"])


@pytest.mark.parametrize("before", [True, False])
def test_each_run_says_it_for_convolutions_and_products(run_file: Path, before: bool) -> None:
    for precision, expected in (("float32", False), ("tf32", True), ("bf16", False), ("tf32", True)):
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = before
        prepare_torch(of(run_file, precision).train, 1)
        assert torch.backends.cudnn.allow_tf32 is torch.backends.cuda.matmul.allow_tf32 is expected


def test_the_record_is_what_is_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = True, False
    assert has_tf32(GPU) and uses_tf32(GPU) and not uses_tf32(torch.device("cpu"))
    torch.backends.cudnn.allow_tf32 = False
    assert not uses_tf32(GPU)
    torch.backends.cuda.matmul.allow_tf32 = True
    assert uses_tf32(GPU)
    # The switch of a device that has none says nothing.
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 0))
    assert not has_tf32(GPU) and not uses_tf32(GPU)


def test_a_gpu_without_it_is_refused(run_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    with pytest.raises(FplError, match=r"this GPU \(Tesla T4\) has no TF32") as caught:
        check_precision(of(run_file, "tf32").train, GPU)
    assert "8.0 or more" in (caught.value.hint or "")
    for precision in ("float32", "bf16"):
        check_precision(of(run_file, precision).train, GPU)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    check_precision(of(run_file, "tf32").train, GPU)


def test_it_is_another_run(run_file: Path) -> None:
    named, plain = of(run_file, "float32"), load_config(run_file)
    assert digest(named) == digest(plain) != digest(of(run_file, "tf32"))


def test_tf32_is_what_the_run_says_and_recorded(run_file: Path, places: Places) -> None:
    """Whatever an earlier run of this process, or PyTorch itself, has left there."""
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    run(load_config(run_file, overrides=["train.steps=1", "train.evaluate_every=1"]), places)
    assert not torch.backends.cudnn.allow_tf32 and not torch.backends.cuda.matmul.allow_tf32
    assert list(fpl.load_results(places.out).runs["tf32"]) == ["off"]


def test_tf32_on_a_device_without_it_is_refused(run_file: Path, places: Places) -> None:
    with pytest.raises(FplError, match="a CPU has no TF32") as caught:
        run(load_config(run_file, overrides=["train.precision=tf32"]), places)
    assert caught.value.where == "train.precision = tf32" and not places.out.exists()
