"""Workers that do not find one another: each says whom it waits for, and none waits without an end."""

from __future__ import annotations

import datetime
import errno
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from fpl.errors import FplError
from fpl.train import meeting
from fpl.train.meeting import LostWorkerError, worker_group
from tests import warm
from tests.ports import free_ports

# A name that no machine can have: the same answer with a network and without.
NO_NAME = 64 * "x"
REFUSED = os.strerror(errno.ECONNREFUSED)
MINUTE = datetime.timedelta(minutes=1)
Group = dict[str, str]


class SaidError(Exception):
    """What was waited for has been said."""


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Group:
    """Two workers at a free port, of which this process is the first; every change is said at once."""
    (port,) = free_ports(1)
    found = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(meeting, "SILENCE", 0.01)
    # Set, so that what the group sets is undone.
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    return found


def until(words: str, then: Callable[[], object] | None = None) -> Callable[[str], None]:
    """Takes what a worker says; at some words it does something, or ends the wait."""

    def say(line: str) -> None:
        if words in line:
            if then is None:
                raise SaidError
            then()

    return say


def meet(say: Callable[[str], None]) -> None:
    with worker_group(torch.device("cpu"), say):
        raise AssertionError("nobody is there to meet")


def test_a_worker_that_waits_for_others_in_vain_ends(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "PATIENCE", 0.3)
    with pytest.raises(LostWorkerError, match="waited 0 s in vain for ") as caught:
        meet(lambda line: None)
    assert caught.value.where == "rank 0 of 2" and "same WORLD_SIZE, MASTER_ADDR and MASTER_PORT" in caught.value.hint


@pytest.mark.parametrize(
    ("rank", "host", "words"),
    [
        (0, "127.0.0.1", "for rank 1; here: rank 0 on "),
        (1, "127.0.0.1", f"for the first worker, at 127.0.0.1:PORT: {REFUSED}"),
        (1, NO_NAME, f"for the first worker, at {NO_NAME}:PORT: "),
    ],
)
def test_a_worker_says_whom_it_waits_for(
    group: Group, rank: int, host: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("MASTER_ADDR", host)
    with pytest.raises(SaidError):
        meet(until(words.replace("PORT", group["MASTER_PORT"])))


def test_what_listens_there_and_never_answers_is_not_waited_for_without_an_end(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(meeting, "PATIENCE", 0.5)
    monkeypatch.setattr(meeting, "ANSWER", 0.1)
    monkeypatch.setattr(meeting, "OPENING", 0.1)
    with socket.create_server(("127.0.0.1", int(group["MASTER_PORT"]))), pytest.raises(LostWorkerError):
        meet(lambda line: None)
    for thread in threading.enumerate():
        if thread.name == "meeting":
            thread.join()


def test_a_port_in_use_is_refused_at_once(group: Group) -> None:
    with socket.create_server(("", int(group["MASTER_PORT"]))), pytest.raises(FplError) as caught:
        meet(lambda line: None)
    assert caught.value.where == "environment variable MASTER_PORT" and caught.value.exit_code == 2
    assert os.strerror(errno.EADDRINUSE) in caught.value.what


@pytest.mark.parametrize(
    ("place", "everywhere"), [("127.0.0.1", False), ("localhost", False), (socket.gethostname(), True)]
)
def test_workers_of_one_machine_meet_where_no_other_machine_can(
    group: Group, monkeypatch: pytest.MonkeyPatch, place: str, everywhere: bool
) -> None:
    """A name of the machine may be another address to others, also where it is the loopback device's here."""
    monkeypatch.setenv("MASTER_ADDR", place)
    # As another address of this machine, this one is where a socket bound to 127.0.0.1 is not.
    elsewhere = ("127.0.0.2", int(group["MASTER_PORT"]))
    found: list[bool] = []

    def look() -> None:
        with socket.socket() as other:
            found.append(other.connect_ex(elsewhere) == 0)
        raise SaidError

    with pytest.raises(SaidError):
        meet(until("here: rank 0 on ", look))
    assert found == [everywhere]
    assert ("GLOO_SOCKET_IFNAME" in os.environ) is not everywhere


def test_a_first_worker_that_is_elsewhere_is_refused_at_once(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", NO_NAME)
    with pytest.raises(FplError, match="does not lead to this machine") as caught:
        meet(lambda line: None)
    assert caught.value.where == "environment variable MASTER_ADDR" and caught.value.exit_code == 2


def test_who_came_and_is_gone_when_the_last_one_comes_is_named(group: Group) -> None:
    def come_and_go() -> None:
        store = dist.TCPStore("127.0.0.1", int(group["MASTER_PORT"]), is_master=False, timeout=MINUTE)
        dist.PrefixStore("fpl/2/0", store).append("here", "1 another\n")

    came = until("here: rank 0 on ", come_and_go)
    gone = until("for rank 1; ready: rank 0 on ")

    def say(line: str) -> None:
        came(line)
        gone(line)

    with pytest.raises(SaidError):
        meet(say)


def test_a_first_worker_that_dies_meanwhile_ends_the_wait(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    first = warm.Child([Path(__file__).with_name("meeting_worker.py")])
    monkeypatch.setenv("RANK", "1")
    try:
        with pytest.raises(LostWorkerError, match="lost the store of the first worker"):
            meet(until("for rank 2; here: rank ", first.kill))
    finally:
        first.kill()
