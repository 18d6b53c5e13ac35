"""Who works on something in a store on object storage, which knows no locks.

A lease is an object that names its holder and is written again and again; who finds one of somebody else that was
written lately keeps off. All times are the server's. Two that begin within the same moment may both get through: they
train the same run twice, to the same rows, and nothing else.
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

from fpl.errors import FplError, ShortageError
from fpl.files import remove, write_atomic
from fpl.mirror import Mirror, mirror_of

# Seconds that a lease lasts after it was written, and between two times that it is.
LEASE, RENEWAL = 60.0, 15.0
# Seconds between two looks at somebody else's.
LOOK = 2.0
FOLDER = "leases"


class TakenError(FplError):
    """Somebody else holds the lease, and keeps renewing it."""


@contextlib.contextmanager
def lease(place: Path, name: str, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the lease of a name as long as the block lasts; nothing where the store is a folder of this machine.

    A holder that died is waited for, at most `LEASE` seconds and a little. Processes of one machine keep each other off
    by locks: what one of them left behind is taken over at once.

    Args:
        place: The store, or a folder in it.
        name: What is worked on.
        say: Takes a line for the user when there is something to wait for.

    Raises:
        TakenError: It is held, and renewed.
    """
    mirror = mirror_of(place)
    if mirror is None:
        yield
        return
    path = mirror.folder / FOLDER / name
    # The machine, and the folder in which its processes lock each other out.
    holder = f"{socket.gethostname()} {mirror.folder}".encode()
    _wait_for(mirror, path, holder, say)
    write_atomic(path, holder)
    over = threading.Event()
    thread = threading.Thread(target=_renew, args=(path, holder, over), name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        remove(path)


def _wait_for(mirror: Mirror, path: Path, holder: bytes, say: Callable[[str], None]) -> None:
    """Return when nobody else holds it."""
    ends, told = time.monotonic() + LEASE + 2 * RENEWAL, False
    while (found := mirror.read(path)) is not None and found != holder:
        written = mirror.time_of(path)
        if written is None or _now(mirror) - written > LEASE:
            return
        who = found.decode(errors="replace").split(" ")[0]
        if time.monotonic() > ends:
            raise TakenError(f"{who} is at work on it", where=f"{path.name} in {mirror.url}", hint="wait for it")
        if not told:
            say(f"{path.name}: {who} is at work on it, or died less than {LEASE:.0f} s ago: waiting")
            told = True
        time.sleep(LOOK)


def _now(mirror: Mirror) -> float:
    """The server's time: when it dates what is written now."""
    probe = mirror.folder / FOLDER / f".{os.getpid()}-{secrets.token_hex(4)}.now"
    write_atomic(probe, b"now")
    try:
        written = mirror.time_of(probe)
    finally:
        remove(probe)
    return time.time() if written is None else written


def _renew(path: Path, holder: bytes, over: threading.Event) -> None:
    while not over.wait(RENEWAL):
        # A server that does not answer is noticed by whoever writes what matters: the next checkpoint.
        with contextlib.suppress(ShortageError):
            write_atomic(path, holder)
