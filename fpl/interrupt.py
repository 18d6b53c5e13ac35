"""SIGTERM, which Slurm and Kubernetes send ahead of a kill, ends what runs as Ctrl-C does."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import NoReturn


@contextlib.contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt in the main thread, and put back afterwards what it did before."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say what a signal does
        return
    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, _stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def interrupt_main() -> None:
    """Raise KeyboardInterrupt in the main thread wherever it waits; nothing where SIGTERM would not do that."""
    if signal.getsignal(signal.SIGTERM) is _stop:
        # To the thread itself: only there does a signal end a system call that waits.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


def _stop(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt
