"""Where the workers of a Ray Train group find each other: a port on their own network, and on no other.

Torch lets rank 0 keep a small store through which the others find it, without a password, and opens it on all networks
of the machine, whatever address the others are told. Here it is opened on that address: the loopback device's where Ray
was started for this machine alone, else the node's.
"""

from __future__ import annotations

import datetime
import importlib
import socket
from typing import Any

from ray.train.torch.config import TorchConfig, _TorchBackend
from torch._C._distributed_c10d import Store, TCPStore

from fpl.train.launched import keep_gloo_local


class OwnAddressConfig(TorchConfig):  # type: ignore[misc]
    """Ray Train's configuration of torch, with a store that listens on rank 0's own address."""

    @property
    def backend_cls(self) -> type[_TorchBackend]:
        """What prepares the workers."""
        return _OwnAddressBackend


class _OwnAddressBackend(_TorchBackend):  # type: ignore[misc]
    def on_start(self, worker_group: Any, backend_config: TorchConfig) -> None:
        worker_group.execute(listen_on_own_address)
        super().on_start(worker_group, backend_config)


def listen_on_own_address() -> None:
    """From now on, process groups of this process are formed by a store that listens on the address it is known by."""
    # By its name in full: as an attribute of torch.distributed there is a function.
    rendezvous: Any = importlib.import_module("torch.distributed.rendezvous")
    rendezvous.TCPStore = _store


def _store(
    host_name: str, port: int, world_size: int, is_master: bool, timeout: datetime.timedelta, **options: Any
) -> Store:
    keep_gloo_local(host_name)
    if is_master:
        # The store takes the socket over and closes it.
        family = socket.getaddrinfo(host_name, port, type=socket.SOCK_STREAM)[0][0]
        options["master_listen_fd"] = socket.create_server(
            (host_name, port), family=family, backlog=world_size
        ).detach()
    return TCPStore(host_name, port, world_size, is_master, timeout, **options)
