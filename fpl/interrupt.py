"""SIGTERM, which Slurm and Kubernetes send ahead of a kill, ends what runs as Ctrl-C does, and both where they can.

Python raises a KeyboardInterrupt between any two steps of the main thread. In the middle of an import that leaves the
lock of all imports closed, for which other threads wait without an end; libraries that are interrupted raise errors of
their own, which look like failures of what was carried out.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

# Seconds until an interruption that was dropped comes again.
SOON = 0.01
_HELD = (signal.SIGINT, signal.SIGTERM)
# A signal has come.
_CAME = threading.Event()


@contextlib.contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt in the main thread, and put back afterwards what it did before.

    Python drops exceptions in destructors and in what it calls around a fork. Meanwhile a KeyboardInterrupt that is
    dropped is raised again, and one in the machinery of an import comes a moment later; that of Ctrl-C too, unless
    somebody else handles it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say what a signal does
        return
    ours = (signal.SIGTERM, *([signal.SIGINT] if signal.getsignal(signal.SIGINT) is signal.default_int_handler else []))
    before, hook = {number: signal.getsignal(number) for number in ours}, sys.unraisablehook
    outermost = before[signal.SIGTERM] is not _stop
    if outermost:
        _CAME.clear()

    def again(dropped: Any) -> None:
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            # By a thread: from here it would be dropped as well.
            threading.Timer(SOON, interrupt_main).start()
        else:
            hook(dropped)

    for number in ours:
        signal.signal(number, _stop)
    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)
        if outermost:
            _CAME.clear()


def check_interrupted(error: BaseException | None = None) -> None:
    """Raise the KeyboardInterrupt that somebody has swallowed, or made another error of.

    Args:
        error: What came instead.

    Raises:
        KeyboardInterrupt: A signal came since `terminated_like_interrupted` began.
    """
    if _CAME.is_set():
        raise KeyboardInterrupt from error


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


def _stop(number: int, frame: FrameType | None) -> None:
    if frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        main = threading.main_thread().ident or 0
        with contextlib.suppress(RuntimeError):  # no thread can be started: better now than never
            threading.Timer(SOON, signal.pthread_kill, (main, number)).start()
            return
    _CAME.set()
    raise KeyboardInterrupt


def _forked() -> None:
    if isinstance(signal.getsignal(signal.SIGTERM), _Noted):
        let_terminate()


os.register_at_fork(after_in_child=_forked)
