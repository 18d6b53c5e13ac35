"""Children that react to signals as those of a terminal do, however the tests were started."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any


def popen(command: Sequence[str | Path], **options: Any) -> subprocess.Popen[str]:
    """`subprocess.Popen` in a session of its own, with the default effect of every signal that tests send.

    What a parent ignores (`nohup`, a job in the background of a script, cron) its children ignore as well, and Python
    then raises no KeyboardInterrupt; `restore_signals` is about other signals.
    """
    return subprocess.Popen(command, text=True, start_new_session=True, preexec_fn=_reset, **options)


def _reset() -> None:
    sent = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    for number in sent:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, sent)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """SIGINT is a KeyboardInterrupt in this process too, however the tests were started."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
