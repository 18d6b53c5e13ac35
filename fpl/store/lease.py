"""Who works on something in a store on object storage, which knows no locks.

A lease is an object that names its holder by a token and is written again and again; who finds one of somebody else
that was written lately keeps off. All times are the server's. It is no lock, for nothing is written here on condition
that nobody else just wrote it. Of two that begin within the same moment, each reads back what it wrote, and the one
whose token is not there waits. What remains is one for which more than `SETTLE` passed between looking and writing,
because the server was busy or the machine slept: it takes the lease from who works. Who works asks the server before
it writes what matters, and stops where it finds another's token. So one of the two goes on, and what the other wrote
between its last question and that moment counts: of a run the same rows, of a search perhaps a report of one trial.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock

from fpl.errors import FplError, ShortageError
from fpl.files import locked, remove, write_atomic
from fpl.mirror import Mirror
from fpl.mirrors import mirror_of

# Seconds that a lease lasts after it was written, and between two times that it is.
LEASE, RENEWAL = 60.0, 15.0
# Seconds between two looks at somebody else's; in which one that began in the same moment has written its own.
LOOK, SETTLE = 2.0, 1.0
FOLDER = "leases"


class TakenError(FplError):
    """Somebody else is at work on it."""


@contextlib.contextmanager
def alone(
    lock: Path, name: str, doing: str, say: Callable[[str], None], patience: float = 0.0
) -> Iterator[Callable[[], None]]:
    """Keep other processes of this machine off by a lock, which ends with this one, and other machines by a `lease`.

    Args:
        lock: The lock file, in the store.
        name: What is worked on.
        doing: What another process does that has the lock: "is training this run".
        say: As for `lease`.
        patience: Seconds to wait for the lock.

    Returns:
        As `lease`.

    Raises:
        TakenError: Somebody else is at work on it.
        FplError: The file system does not allow it.
    """
    with contextlib.ExitStack() as held:
        try:
            try:
                held.enter_context(locked(lock))
            except filelock.Timeout:
                if patience:
                    say(f"another process has {name}, or has not quite died yet: waiting {patience:.0f} s")
                held.enter_context(locked(lock, patience))
        except filelock.Timeout:
            hint = "wait for it, or give another --out"
            raise TakenError(f"another process {doing}", where=str(lock.parent), hint=hint) from None
        yield held.enter_context(lease(lock.parent, name, say))


@contextlib.contextmanager
def lease(place: Path, name: str, say: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Hold the lease of a name as long as the block lasts; nothing where the store is a folder of this machine.

    A holder that died is waited for, at most `LEASE` seconds and a little. Processes of one machine keep each other off
    by locks: what one of them left behind is taken over at once.

    Args:
        place: The store, or a folder in it.
        name: What is worked on.
        say: Takes a line for the user when there is something to wait for.

    Returns:
        To be called before something is written: raises a `TakenError` if somebody else has the lease by now.

    Raises:
        TakenError: It is held, and renewed.
    """
    mirror = mirror_of(place)
    if mirror is None:
        yield nobody_else
        return
    path = mirror.folder / FOLDER / name
    token = f"{socket.gethostname()} {secrets.token_hex(8)}".encode()
    _take(mirror, path, token, say)
    over = threading.Event()
    thread = threading.Thread(target=_renew, args=(mirror, path, token, over), name="lease", daemon=True)
    thread.start()
    try:
        yield lambda: _check(mirror, path, token)
    finally:
        over.set()
        # Longer than a busy server is asked: what it still writes then lapses.
        thread.join(LEASE)
        # One that cannot be removed now lapses.
        with contextlib.suppress(ShortageError):
            if mirror.read(path) == token:
                remove(path)


def nobody_else() -> None:
    """What to call before something is written where nobody else can be at work on it."""


def _take(mirror: Mirror, path: Path, token: bytes, say: Callable[[str], None]) -> None:
    while True:
        _wait_for(mirror, path, say)
        write_atomic(path, token)
        time.sleep(SETTLE)
        if mirror.read(path) == token:
            return


def _wait_for(mirror: Mirror, path: Path, say: Callable[[str], None]) -> None:
    """Return when nobody else holds it."""
    ends, told = time.monotonic() + LEASE + 2 * RENEWAL, False
    # It is here, too: a process of this machine wrote it, and whoever comes here has its lock.
    ours = path.read_bytes() if path.is_file() else None
    while (found := mirror.read(path)) is not None and found != ours:
        written = mirror.time_of(path)
        if written is None or _now(mirror) - written > LEASE:
            return
        if time.monotonic() > ends:
            raise _taken(mirror, path, found, "is at work on it", "wait for it")
        if not told:
            say(f"{path.name}: {_who(found)} is at work on it, or died less than {LEASE:.0f} s ago: waiting")
            told = True
        time.sleep(LOOK)


def _check(mirror: Mirror, path: Path, token: bytes) -> None:
    if (found := mirror.read(path)) != token:
        what = "took it over, for this machine was not heard of"
        raise _taken(mirror, path, found, what, "the same command continues when the other one is done")


def _taken(mirror: Mirror, path: Path, found: bytes | None, what: str, hint: str) -> TakenError:
    return TakenError(f"{_who(found or b'somebody')} {what}", where=f"{path.name} in {mirror.url}", hint=hint)


def _who(token: bytes) -> str:
    return token.decode(errors="replace").split(" ")[0]


def _now(mirror: Mirror) -> float:
    """The server's time: when it dates what is written now."""
    probe = mirror.folder / FOLDER / f".{os.getpid()}-{secrets.token_hex(4)}.now"
    write_atomic(probe, b"now")
    try:
        written = mirror.time_of(probe)
    finally:
        remove(probe)
    return time.time() if written is None else written


def _renew(mirror: Mirror, path: Path, token: bytes, over: threading.Event) -> None:
    while not over.wait(RENEWAL):
        # A server that does not answer, or a lease that is another's, is noticed by whoever writes what matters: the
        # next checkpoint.
        with contextlib.suppress(ShortageError):
            if mirror.read(path) == token:
                write_atomic(path, token)
