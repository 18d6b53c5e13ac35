"""Who works on a run in a store on object storage: kept off while somebody does, let in when he is gone."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from fpl import mirrors
from fpl.files import write_atomic
from fpl.mirror import Mirror
from fpl.mirrors import attach
from fpl.store import lease as module
from fpl.store.lease import LEASE, TakenError, lease


class Clock:
    """Time passes when somebody sleeps, and whoever waits for an event has then done what was due meanwhile."""

    def __init__(self) -> None:
        self.now = time.time()
        self.changed = threading.Condition()
        self.waiting: dict[Event, float] = {}

    def time(self) -> float:
        return self.now

    monotonic = time

    def at_the_server(self) -> float:
        """Whose clock is an hour late."""
        return self.now - 3600

    def sleep(self, seconds: float) -> None:
        ends = self.now + seconds
        with self.changed:
            while self.waiting and (next_one := min(self.waiting.values())) <= ends:
                self.now = max(self.now, next_one)
                self.changed.notify_all()
                came_back = self.changed.wait_for(lambda: all(due > self.now for due in self.waiting.values()), 300)
                assert came_back, "whoever was woken did not wait again"
            self.now = ends


class Event:
    """`threading.Event` by that clock. Its thread is waited for from the beginning on."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.is_set = clock, False
        clock.waiting[self] = clock.now

    def set(self) -> None:
        with self.clock.changed:
            self.is_set = True
            del self.clock.waiting[self]
            self.clock.changed.notify_all()

    def wait(self, seconds: float) -> bool:
        with self.clock.changed:
            due = self.clock.now + seconds
            if not self.is_set:
                self.clock.waiting[self] = due
                self.clock.changed.notify_all()
            self.clock.changed.wait_for(lambda: self.is_set or self.clock.now >= due)
            return self.is_set


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """That of both machines and of the server."""
    clock = Clock()

    def write(path: Path, content: bytes) -> None:
        write_atomic(path, content)
        date(tmp_path / "there" / "leases" / path.name, clock.at_the_server())

    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(module, "threading", SimpleNamespace(Event=lambda: Event(clock), Thread=threading.Thread))
    monkeypatch.setattr(module, "write_atomic", write)
    return clock


def date(path: Path, seconds: float) -> None:
    os.utime(path, (seconds, seconds))


@pytest.fixture
def machines(tmp_path: Path, clock: Clock) -> Iterator[tuple[Mirror, Mirror]]:
    """The mirrors of two machines of one store."""
    url = f"file://{tmp_path}/there"
    yield attach(url, tmp_path / "one"), attach(url, tmp_path / "two")
    mirrors._MIRRORS.clear()


def test_a_folder_of_this_machine_needs_none(tmp_path: Path) -> None:
    with lease(tmp_path, "run", print), lease(tmp_path, "run", print):
        assert not list(tmp_path.iterdir())


def test_another_machine_is_kept_off_as_long_as_it_is_renewed(
    machines: tuple[Mirror, Mirror], clock: Clock, tmp_path: Path
) -> None:
    one, two = machines
    said: list[str] = []
    with lease(one.folder, "run", print):
        began = clock.now
        with pytest.raises(TakenError, match="is at work on it"), lease(two.folder, "run", said.append):
            pass
        # Longer than a lease lasts by itself: it was renewed meanwhile.
        assert clock.now - began > LEASE
        with lease(two.folder, "another run", print):
            pass
    assert len(said) == 1 and "waiting" in said[0]
    assert not list((tmp_path / "there" / "leases").iterdir())
    with lease(two.folder, "run", said.append):
        assert len(said) == 1


def test_of_a_machine_that_died_it_lapses(machines: tuple[Mirror, Mirror], clock: Clock, tmp_path: Path) -> None:
    _, two = machines
    path = tmp_path / "there" / "leases" / "run"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"dead /somewhere")
    date(path, clock.at_the_server())
    died = clock.now
    said: list[str] = []
    with lease(two.folder, "run", said.append):
        assert path.read_bytes() == (two.folder / "leases" / "run").read_bytes()
        assert LEASE < clock.now - died <= LEASE + module.LOOK + module.SETTLE
    assert "dead is at work on it, or died" in said[0]


def test_what_a_killed_process_of_this_machine_left_is_taken_over_at_once(machines: tuple[Mirror, Mirror]) -> None:
    one, _ = machines
    held = lease(one.folder, "run", print)
    held.__enter__()
    said: list[str] = []
    with lease(one.folder, "run", said.append):
        assert said == []
    held.__exit__(None, None, None)


def test_times_are_those_of_the_server(machines: tuple[Mirror, Mirror], clock: Clock, tmp_path: Path) -> None:
    """A lease that is old by the server's clock is over whatever the time is here."""
    _, two = machines
    path = tmp_path / "there" / "leases" / "run"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"dead /somewhere")
    date(path, clock.at_the_server() - LEASE - 1)
    said: list[str] = []
    with lease(two.folder, "run", said.append):
        assert said == []


def test_another_machine_of_the_same_name_and_folder_is_another(machines: tuple[Mirror, Mirror]) -> None:
    one, _ = machines
    with lease(one.folder, "run", print):
        # What the other one has in its folder of this name.
        (one.folder / "leases" / "run").unlink()
        with pytest.raises(TakenError, match="is at work on it"), lease(one.folder, "run", print):
            pass


def test_who_slept_through_it_is_told_and_leaves_the_new_one_alone(
    machines: tuple[Mirror, Mirror], clock: Clock, tmp_path: Path
) -> None:
    one, _ = machines
    path = tmp_path / "there" / "leases" / "run"
    with lease(one.folder, "run", print) as check:
        check()
        path.write_bytes(b"two 0123")
        clock.sleep(3 * module.RENEWAL)
        with pytest.raises(TakenError, match="two took it over"):
            check()
    assert path.read_bytes() == b"two 0123"


def test_of_two_that_begin_in_the_same_moment_one_waits(
    machines: tuple[Mirror, Mirror], clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = machines
    path, sleep = tmp_path / "there" / "leases" / "run", clock.sleep

    def another_writes(seconds: float) -> None:
        assert seconds == module.SETTLE
        path.write_bytes(b"two 0123")
        date(path, clock.at_the_server())
        monkeypatch.setattr(clock, "sleep", sleep)

    monkeypatch.setattr(clock, "sleep", another_writes)
    said: list[str] = []
    began = clock.now
    with lease(one.folder, "run", said.append) as check:
        check()
        assert clock.now - began > LEASE  # the other one died then
    assert "two is at work on it, or died" in said[0]
