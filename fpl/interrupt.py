"""SIGTERM, which Slurm and Kubernetes send ahead of a kill, ends what runs as Ctrl-C does."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any, NoReturn

# Seconds until an interruption that was dropped comes again.
SOON = 0.01
_HELD = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt in the main thread, and put back afterwards what it did before.

    Python drops exceptions in destructors and in what it calls around a fork. Meanwhile a KeyboardInterrupt that is
    dropped is raised again, that of Ctrl-C too.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say what a signal does
        return
    before, hook = signal.getsignal(signal.SIGTERM), sys.unraisablehook

    def again(dropped: Any) -> None:
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            # By a thread: from here it would be dropped as well.
            threading.Timer(SOON, interrupt_main).start()
        else:
            hook(dropped)

    signal.signal(signal.SIGTERM, _stop)
    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = hook
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM have their effect afterwards, where they have one: for what must not stop in the middle.

    That is the start of a process: around a fork libraries close and open locks, and what stays closed is waited for
    without an end. Processes that are started so never see Ctrl-C, which ends their parent, and SIGTERM ends them;
    those that are no fork have to `let_terminate` first.
    """
    noted, main = _Noted(), threading.current_thread() is threading.main_thread()
    with contextlib.ExitStack() as held:
        held.callback(noted.tell)
        # Without a handler SIGTERM ends this process at once, and has to end the new ones too.
        handlers = {number: signal.getsignal(number) for number in _HELD if main}
        numbers = {number for number, handler in handlers.items() if callable(handler)}
        for number in numbers:
            signal.signal(number, noted)
            held.callback(signal.signal, number, handlers[number])
        # New processes inherit it; in this one another thread may take what the main one does not.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, *numbers})
        held.callback(signal.pthread_sigmask, signal.SIG_SETMASK, mask)
        yield


def let_terminate() -> None:
    """In a new process: SIGTERM has its effect, also one that came before."""
    if isinstance(signal.getsignal(signal.SIGTERM), _Noted):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def interrupt_main() -> None:
    """Raise KeyboardInterrupt in the main thread wherever it waits; nothing where SIGTERM would not do that."""
    handler = signal.getsignal(signal.SIGTERM)
    if handler is _stop or isinstance(handler, _Noted):
        # To the thread itself: only there does a signal end a system call that waits.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


class _Noted(list[int]):
    """Signals that came meanwhile."""

    def __call__(self, number: int, frame: object) -> None:
        self.append(number)

    def tell(self) -> None:
        if self:
            signal.raise_signal(self[0])


def _stop(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _forked() -> None:
    if isinstance(signal.getsignal(signal.SIGTERM), _Noted):
        let_terminate()


os.register_at_fork(after_in_child=_forked)
