"""The same work on many files, on all cores."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from multiprocessing.synchronize import Event
from typing import TypeVar

from fpl.errors import FplError

Item = TypeVar("Item")
Result = TypeVar("Result")
Report = Callable[[int, int], None]
"""Called with the number of items done and of all items."""

# Seconds after which Ctrl-C is noticed at the latest.
POLL = 0.2


def core_count() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_parallel(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    workers: int | None = None,
    chunk: int = 4,
    progress: Report | None = None,
) -> list[Result]:
    """`[function(item) for item in items]`, in that order whatever the number of workers.

    Args:
        function: Picklable: a function of a module, or a `functools.partial` of one.
        items: Picklable.
        workers: Processes; None takes one per core, 1 stays in this process.
        chunk: Items a worker takes at a time.
        progress: Called after each chunk.

    Raises:
        FplError: A worker was killed from outside (out of memory).
        Exception: The first that `function` raised.
    """
    chunks = [items[start : start + chunk] for start in range(0, len(items), chunk)]
    count = min(workers or core_count(), len(chunks))
    results: list[list[Result]] = [[] for _ in chunks]
    done = 0
    with closing(_in_process(function, chunks) if count <= 1 else _in_pool(function, chunks, count)) as finished:
        for index, found in finished:
            results[index] = found
            done += len(found)
            if progress is not None:
                progress(done, len(items))
    return [result for found in results for result in found]


def _in_process(
    function: Callable[[Item], Result], chunks: Sequence[Sequence[Item]]
) -> Generator[tuple[int, list[Result]], None, None]:
    for index, items in enumerate(chunks):
        yield index, _call(function, items)


def _in_pool(
    function: Callable[[Item], Result], chunks: Sequence[Sequence[Item]], workers: int
) -> Generator[tuple[int, list[Result]], None, None]:
    # Never fork: the parent may have the threads of torch or Arrow, whose locks a forked child would inherit.
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    executor = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(stop,))
    # Not `as_completed`: it cannot be left for a moment to look for an interrupt.
    finished: queue.SimpleQueue[Future[list[Result]]] = queue.SimpleQueue()
    try:
        with _interrupts_when_asked() as check:
            with _interrupts_held_back():
                futures: dict[Future[list[Result]], int] = {
                    executor.submit(_call, function, items): index for index, items in enumerate(chunks)
                }
            for future in futures:
                future.add_done_callback(finished.put)
            while futures:
                check()
                try:
                    future = finished.get(timeout=POLL)
                except queue.Empty:
                    continue
                yield futures.pop(future), future.result()
            check()
    except BrokenProcessPool as error:
        raise FplError(
            f"one of {workers} worker processes was killed", hint="was memory short? fewer --workers need less of it"
        ) from error
    finally:
        # Set at a normal end as well, when nobody is left to read it.
        stop.set()
        executor.shutdown(wait=True, cancel_futures=True)


def _call(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    results = []
    for item in items:
        # What a stopped worker returns is thrown away.
        if _stop is not None and _stop.is_set():
            break
        results.append(function(item))
    return results


# In a worker process: whether its parent wants no more results.
_stop: Event | None = None


def _begin(stop: Event) -> None:
    global _stop
    _stop = stop


@contextmanager
def _interrupts_when_asked() -> Iterator[Callable[[], None]]:
    """Ctrl-C has its effect where the given function is called, and nowhere else.

    Anywhere else it could leave a lock locked that the pool's own thread waits for, and the pool would never end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None  # Python never interrupts other threads
        return
    held: list[int] = []
    before = signal.getsignal(signal.SIGINT)

    def check() -> None:
        if held and callable(before):
            before(held.pop(), None)

    # What ignores it goes on ignoring it.
    if callable(before):
        signal.signal(signal.SIGINT, lambda number, frame: held.append(number))
    try:
        yield check
    finally:
        if callable(before):
            signal.signal(signal.SIGINT, before)


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Processes started inside never see Ctrl-C, which goes to all processes of a terminal: the parent ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
