"""What a run in this process finds out before it trains."""

from __future__ import annotations

import errno
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import filelock
import pytest
import torch

from fpl.config.schema import RunConfig
from fpl.errors import FplError
from fpl.losses import kernels
from fpl.losses.kernels import Found
from fpl.store import lease
from fpl.sweep import local
from fpl.sweep.device import check_loss
from fpl.sweep.places import Places
from fpl.train.checkpoint import CheckpointFolder
from fpl.train.runtime import Workers


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


def test_every_worker_is_told_why_a_run_cannot_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 alone takes the lock: without a word the others would wait for it until their patience ends."""
    folder, said = CheckpointFolder(tmp_path / "run"), list[Any]([None, None])
    both = threading.Barrier(2, timeout=60)

    class Peers(Workers):
        def gather(self, value: Any) -> list[Any]:
            said[self.rank] = value
            both.wait()
            return list(said)

    def begin(rank: int) -> str:
        try:
            with local._lock(folder, Peers(rank, 2), 0.0):
                return "begins"
        except local.TakenError as error:
            return error.what
        except OSError as error:
            return str(error.strerror)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(begin, range(2))) == ["begins", "begins"]
        with filelock.FileLock(folder.folder / ".lock"):
            assert list(pool.map(begin, range(2))) == ["another process is training this run"] * 2

        def no_locks(*arguments: Any) -> Any:
            raise OSError(errno.ENOLCK, "no locks available")

        monkeypatch.setattr(lease, "locked", no_locks)
        assert list(pool.map(begin, range(2))) == ["no locks available"] * 2
