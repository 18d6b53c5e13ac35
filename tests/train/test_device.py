"""Which devices a name may mean."""

from __future__ import annotations

import pytest
import torch

from fpl.errors import FplError
from fpl.train.runtime import select_device


@pytest.mark.parametrize("name", ["cpu:0", "cpu:5", "cuda:-1", "cuda:01", "cuda:" + "9" * 30, "mps", "meta", "CPU", ""])
def test_other_devices_are_refused_by_name(name: str) -> None:
    with pytest.raises(FplError, match="no device to compute on") as caught:
        select_device(name)
    assert caught.value.exit_code == 2 and "--device" in caught.value.message
    assert "auto, cpu, cuda or cuda:N" in caught.value.hint and repr(name) in caught.value.message


@pytest.mark.parametrize("number", [2, 200, 256, 65536])
def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(FplError, match=f"cuda:{number} asked for, 2 GPUs seen here"):
        select_device(f"cuda:{number}")


def test_a_worker_takes_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert select_device("cuda") == torch.device("cuda:1") and select_device("cuda:0") == torch.device("cuda:0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert select_device("auto") == select_device("cpu") == torch.device("cpu")
