"""What a run in this process finds out before it trains."""

from __future__ import annotations

import pytest
import torch

from fpl.config.schema import RunConfig
from fpl.errors import FplError
from fpl.losses import kernels
from fpl.losses.kernels import Found
from fpl.sweep import local
from fpl.sweep.device import check_loss
from fpl.sweep.places import Places


@pytest.mark.parametrize(
    ("chosen", "device", "message"),
    [
        ("foo", "cpu", "FPL_LOSS is 'foo'; allowed"),
        ("cpu", "cpu", "the cpu implementation of the loss is not available: no C\\+\\+ compiler"),
        ("cpu", "cuda", "it is for logits on cpu, and these are on cuda"),
    ],
)
def test_a_loss_that_cannot_be_had_is_bad_input(
    monkeypatch: pytest.MonkeyPatch, chosen: str, device: str, message: str
) -> None:
    monkeypatch.setenv("FPL_LOSS", chosen)
    monkeypatch.setattr(kernels, "find_cpu", lambda: Found(None, "no C++ compiler"))
    # A run without data: the check has to come before anything slow.
    with pytest.raises(FplError, match=message) as raised:
        check_loss(torch.device(device))
    assert raised.value.exit_code == 2
    assert "FPL_LOSS" in raised.value.message


def test_a_missing_kernel_that_nobody_asked_for_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "find_cpu", lambda: Found(None, "no C++ compiler"))
    for chosen in ("auto", "tensor"):
        monkeypatch.setenv("FPL_LOSS", chosen)
        check_loss(torch.device("cpu"))


def test_a_run_finds_it_out_before_it_trains(
    config: RunConfig, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FPL_LOSS", "foo")
    with pytest.raises(FplError, match="FPL_LOSS is 'foo'"):
        local.run_local(config, places, device="cpu")
    assert not places.out.exists()
