"""Where the workers of a run meet that `torchrun`, Slurm or the user started, and what is said of those that lack."""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from fpl.errors import FplError
from fpl.text import enumerate_briefly, first_line
from fpl.train.launched import check_launch, check_meeting, keep_gloo_local, launch_value, loopback_address
from fpl.train.runtime import TrainingError, Workers

# Seconds that a worker waits for the others, as torchrun does: nodes of a cluster start minutes apart.
PATIENCE = 600.0
# Seconds of silence before it says whom it waits for; and again when that changes.
SILENCE = 10.0
# Seconds between two looks; that a connection may take; and that torch may take over a store that can be reached.
LOOK, ANSWER, OPENING = 0.05, 5.0, 60.0
# Whose types do not name its stores.
_DIST: Any = dist
_TOGETHER = (
    "start all workers, each with its own RANK and with the same WORLD_SIZE, MASTER_ADDR and MASTER_PORT; one that "
    "failed before says why. For a run of one process unset WORLD_SIZE"
)


class LostWorkerError(TrainingError):
    """Another worker of the run is gone, or never came; why is for that one to say."""


@contextlib.contextmanager
def worker_group(device: torch.device, say: Callable[[str], None]) -> Iterator[Workers]:
    """Join the process group that `torchrun` or Ray Train describes in the environment, if there is one.

    Args:
        device: Where this worker computes.
        say: Takes a line, of every worker, about others that do not come.

    Raises:
        FplError: What the environment says about the workers is no such description, or leads nowhere.
        LostWorkerError: Another worker does not come within `PATIENCE` seconds, or is lost later.
    """
    with contextlib.ExitStack() as held:
        if not dist.is_initialized():
            check_launch()
            if (size := launch_value("WORLD_SIZE")) > 1:
                check_meeting()
                rank = launch_value("RANK")
                keep_gloo_local(os.environ["MASTER_ADDR"])
                store = _Meeting(rank, size).store(say)
                with _peers(rank, size):
                    dist.init_process_group(
                        "nccl" if device.type == "cuda" else "gloo", store=store, rank=rank, world_size=size
                    )
                held.callback(dist.destroy_process_group)
        workers = Workers(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else Workers()
        with _peers(workers.rank, workers.world_size):
            yield workers


@contextlib.contextmanager
def _peers(rank: int, size: int) -> Iterator[None]:
    """A worker that loses its peers says so in one line: the peer's own message tells why."""
    try:
        yield
    except RuntimeError as error:
        lost = isinstance(error, dist.DistError) or "gloo" in str(error).lower()
        if size == 1 or not lost:
            raise
        raise LostWorkerError(
            f"lost another worker: {first_line(error)}",
            where=f"rank {rank} of {size}",
            hint="the worker that failed first says why; the same command continues from the last checkpoint",
        ) from None


class _Meeting:
    """The workers of a run write their names into a store that the first one keeps, and wait until all have.

    All of it is done in a thread: torch waits without an end for a store that does not answer, and keeps Ctrl-C off.

    Args:
        rank: Of this worker.
        size: Number of workers.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.host, self.port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        self.place = f"{self.host}:{self.port}"
        self.where = f"rank {rank} of {size}"
        self._waits_for = f"the first worker, at {self.place}"
        self._found: Any = None
        self._error: BaseException | None = None
        self._over = threading.Event()

    def store(self, say: Callable[[str], None]) -> Any:
        """The store, once all workers are there.

        Raises:
            FplError: There is no such place.
            LostWorkerError: One does not come.
        """
        thread = threading.Thread(target=self._hold, name="meeting", daemon=True)
        thread.start()
        until, said = time.monotonic() + PATIENCE, ""
        try:
            while thread.is_alive() and (left := until - time.monotonic()) > 0:
                thread.join(min(left, SILENCE))
                if thread.is_alive() and self._waits_for != said:
                    said = self._waits_for
                    say(f"{self.where}: waiting at most {PATIENCE:.0f} s for {said}")
        finally:
            self._over.set()
            # A thread that comes back from torch while Python ends would end it with a signal.
            thread.join(ANSWER)
        if self._error is not None:
            raise self._error
        if self._found is None:
            what = f"waited {PATIENCE:.0f} s in vain for {self._waits_for}"
            raise LostWorkerError(what, where=self.where, hint=_TOGETHER)
        return self._found

    def _hold(self) -> None:
        try:
            listening = self._look_for_the_place()
            if not self._over.is_set():
                store = self._open(listening)
                # Who came first may be gone when the last one comes: torch waits only for those who are still there.
                if all(self._waited_for_all(store, word) for word in ("here", "ready")):
                    self._found = store
        except dist.DistError as error:
            what = f"lost the store of the first worker at {self.place}: {first_line(error)}"
            self._error = LostWorkerError(what, where=self.where, hint=_TOGETHER)
        except BaseException as error:
            self._error = error

    def _look_for_the_place(self) -> socket.socket | None:
        """Return when the store can be reached, with the socket of a store that this worker is to keep."""
        # Where torchrun keeps the store, the first worker finds it like all others.
        keeps = self.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        listening = self._listen() if keeps else None
        while (problem := self._unanswered()) and not self._over.wait(LOOK):
            if listening is not None:
                raise FplError(
                    f"is {self.host!r}, which does not lead to this machine: {problem}",
                    where="environment variable MASTER_ADDR",
                    hint="it names the machine of the first worker (RANK=0), which is this one",
                )
            self._waits_for = f"the first worker, at {self.place}: {problem}"
        return listening

    def _open(self, listening: socket.socket | None) -> Any:
        self._waits_for = f"an answer of {self.place}, where something else than the first worker may listen"
        store = _DIST.TCPStore(
            self.host,
            self.port,
            is_master=listening is not None,
            timeout=datetime.timedelta(seconds=OPENING),
            wait_for_workers=False,
            multi_tenant=True,
            master_listen_fd=None if listening is None else listening.detach(),
        )
        store.set_timeout(dist.default_pg_timeout)
        # A launcher's second attempt may find the store of the first. Workers of another number are other workers.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        return _DIST.PrefixStore(f"fpl/{self.size}/{attempt}", store)

    def _listen(self) -> socket.socket:
        """On all addresses, as torch does: the name that others know this machine by may be none that it knows.

        Where it is the loopback device's, all workers are on this machine: then on that alone.
        """
        own = loopback_address(self.host)
        both = not own and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both or ":" in own else socket.AF_INET
        try:
            return socket.create_server((own, self.port), family=family, backlog=self.size, dualstack_ipv6=both)
        except OSError as error:
            raise FplError(
                f"is {self.port}, on which the first worker cannot listen: {os.strerror(error.errno or 0)}",
                where="environment variable MASTER_PORT",
                hint="name another port, the same for all workers; is another first worker (RANK=0) running here?",
            ) from error

    def _unanswered(self) -> str:
        """Why nothing can be reached where the store is; empty if something can."""
        try:
            socket.create_connection((self.host, self.port), timeout=ANSWER).close()
        except (OSError, UnicodeError) as error:
            return getattr(error, "strerror", None) or str(error)
        return ""

    def _waited_for_all(self, store: Any, word: str) -> bool:
        store.append(word, f"{self.rank} {platform.node()}\n")
        while not self._over.wait(LOOK):
            here = dict(line.split(" ", 1) for line in store.get(word).decode().splitlines())
            missing = [rank for rank in range(self.size) if str(rank) not in here]
            if not missing:
                return True
            names = [f"{rank} on {node}" for rank, node in here.items()]
            self._waits_for = f"rank {enumerate_briefly(missing)}; {word}: rank {enumerate_briefly(names)}"
        return False
