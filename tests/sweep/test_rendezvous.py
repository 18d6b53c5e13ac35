"""The store through which workers find each other listens where they look for it, and nowhere else."""

from __future__ import annotations

import datetime
import importlib
import os
import socket
from collections.abc import Callable
from typing import Any

import pytest
import torch.distributed as dist

from fpl.sweep.launch import rendezvous
from tests.ports import free_ports

TORCHS = importlib.import_module("torch.distributed.rendezvous")
MINUTE = datetime.timedelta(minutes=1)


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    """A free port, that a group of this one process is to meet at."""
    (number,) = free_ports(1)
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(number), "WORLD_SIZE": "1", "RANK": "0"}
    for name, value in group.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(TORCHS, "TCPStore", TORCHS.TCPStore)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    return number


def answers(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=60).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.parametrize("ours", [True, False])
def test_it_listens_on_the_address_that_workers_are_told(port: int, ours: bool) -> None:
    """Torch's own listens on every address: once it does not, the module can go."""
    if ours:
        rendezvous.listen_on_own_address()
    dist.init_process_group("gloo")
    try:
        other = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=MINUTE)
        other.set("said by", "another")
        assert other.get("said by") == b"another"
        # Another address of this machine, which a socket that is bound to one of them does not have.
        assert answers("127.0.0.1", port) and answers("127.0.0.2", port) is not ours
        # Gloo's own sockets are where the name of this machine leads, unless it is told otherwise.
        assert os.environ.get("GLOO_SOCKET_IFNAME", "").startswith("lo") is ours
    finally:
        dist.destroy_process_group()


def test_workers_are_prepared_before_they_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []

    class Workers:
        def execute(self, function: Callable[[], None]) -> None:
            done.append(function)

    config = rendezvous.OwnAddressConfig(backend="gloo")
    monkeypatch.setattr(
        rendezvous._TorchBackend, "on_start", lambda self, workers, given: done.append((workers, given))
    )
    workers = Workers()
    config.backend_cls().on_start(workers, config)
    assert done == [rendezvous.listen_on_own_address, (workers, config)]
