"""Who works on a run in a store on object storage: kept off while somebody does, let in when he is gone."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fpl import mirror
from fpl.mirror import Mirror, attach
from fpl.sweep import lease as module
from fpl.sweep.lease import TakenError, lease

QUICK = {"LEASE": 0.4, "RENEWAL": 0.05, "LOOK": 0.02}


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Mirror, Mirror]]:
    """The mirrors of two machines of one store."""
    for name, value in QUICK.items():
        monkeypatch.setattr(module, name, value)
    url = f"file://{tmp_path}/there"
    yield attach(url, tmp_path / "one"), attach(url, tmp_path / "two")
    mirror._MIRRORS.clear()


def test_a_folder_of_this_machine_needs_none(tmp_path: Path) -> None:
    with lease(tmp_path, "run", print), lease(tmp_path, "run", print):
        assert not list(tmp_path.iterdir())


def test_another_machine_is_kept_off_as_long_as_it_is_renewed(machines: tuple[Mirror, Mirror], tmp_path: Path) -> None:
    one, two = machines
    said: list[str] = []
    with lease(one.folder, "run", print):
        began = time.monotonic()
        with pytest.raises(TakenError, match="is at work on it"), lease(two.folder, "run", said.append):
            pass
        # Longer than a lease lasts by itself: it was renewed meanwhile.
        assert time.monotonic() - began > QUICK["LEASE"]
        with lease(two.folder, "another run", print):
            pass
    assert len(said) == 1 and "waiting" in said[0]
    assert not list((tmp_path / "there" / "leases").iterdir())
    with lease(two.folder, "run", said.append):
        assert len(said) == 1


def test_of_a_machine_that_died_it_lapses(machines: tuple[Mirror, Mirror], tmp_path: Path) -> None:
    _, two = machines
    path = tmp_path / "there" / "leases" / "run"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"dead /somewhere")
    said: list[str] = []
    with lease(two.folder, "run", said.append):
        assert b"two" in path.read_bytes()
    assert "dead is at work on it, or died" in said[0]


def test_what_a_killed_process_of_this_machine_left_is_taken_over_at_once(machines: tuple[Mirror, Mirror]) -> None:
    one, _ = machines
    held = lease(one.folder, "run", print)
    held.__enter__()
    said: list[str] = []
    with lease(one.folder, "run", said.append):
        assert said == []
    held.__exit__(None, None, None)


def test_times_are_those_of_the_server(machines: tuple[Mirror, Mirror], tmp_path: Path) -> None:
    """A lease that is old by the server's clock is over whatever the time is here."""
    _, two = machines
    path = tmp_path / "there" / "leases" / "run"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"dead /somewhere")
    os.utime(path, (time.time() - 1, time.time() - 1))
    said: list[str] = []
    with lease(two.folder, "run", said.append):
        assert said == []
