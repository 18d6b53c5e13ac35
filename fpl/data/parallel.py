"""The same work on many files, on all cores."""

from __future__ import annotations

import multiprocessing
import os
import queue
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from typing import TypeVar

from fpl.errors import FplError
from fpl.interrupt import held_back, let_terminate

Item = TypeVar("Item")
Result = TypeVar("Result")
Report = Callable[[int, int], None]
"""Called with the number of items done and of all items."""

_LESS_MEMORY = "fewer --workers need less memory"


def core_count() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_parallel(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    workers: int | None = None,
    progress: Report | None = None,
) -> list[Result]:
    """`[function(item) for item in items]`, in that order whatever the number of workers.

    Args:
        function: Picklable: a function of a module, or a `functools.partial` of one.
        items: Picklable.
        workers: Processes; None takes one per core, 1 stays in this process.
        progress: Called for each item that is done, a few together.

    Raises:
        FplError: Workers could not be started, one was killed from outside, or memory ran out.
        Exception: The first that `function` raised.
    """
    count = min(workers or core_count(), len(items))
    results: dict[int, Result] = {}
    with closing(_in_process(function, items) if count <= 1 else _in_pool(function, items, count)) as finished:
        try:
            for number, result in finished:
                results[number] = result
                if progress is not None:
                    progress(len(results), len(items))
        except MemoryError as error:
            raise FplError(f"memory ran out with {count} workers", hint=_LESS_MEMORY) from error
    return [results[number] for number in range(len(items))]


def _in_process(function: Callable[[Item], Result], items: Sequence[Item]) -> Generator[tuple[int, Result], None, None]:
    for number, item in enumerate(items):
        yield number, function(item)


def _in_pool(
    function: Callable[[Item], Result], items: Sequence[Item], workers: int
) -> Generator[tuple[int, Result], None, None]:
    # Not `as_completed`: Ctrl-C in its Python code could leave a lock locked that the pool's own thread waits for, and
    # the pool would never end. This queue's `get` is C, and the only place where results are waited for.
    finished: queue.SimpleQueue[Future[list[Result]]] = queue.SimpleQueue()
    # Never fork: the parent may have threads of torch or Arrow, whose locks a forked child would inherit.
    context = multiprocessing.get_context("spawn")
    with _starting(workers):
        # Before interrupts are held back: it starts the tracker of semaphores, which lets signals through again.
        executor = ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_the_parent)
    try:
        with _starting(workers), held_back():
            size = _chunk(len(items), workers)
            first = {
                executor.submit(_apply, function, items[start : start + size]): start
                for start in range(0, len(items), size)
            }
            for future in first:
                future.add_done_callback(finished.put)
        while first:
            future = finished.get()
            yield from enumerate(future.result(), first.pop(future))
    except BrokenProcessPool as error:
        raise FplError(
            f"one of {workers} worker processes was killed", hint=f"was memory short? {_LESS_MEMORY}"
        ) from error
    finally:
        with held_back():
            executor.shutdown(wait=True, cancel_futures=True)


def _chunk(items: int, workers: int) -> int:
    """Items that a worker takes at once: handing them over one by one takes longer than looking at a small file."""
    return max(1, min(32, items // (8 * workers)))


def _apply(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    return [function(item) for item in items]


def _end_with_the_parent() -> None:
    """In a worker: it ends when it is told to; one whose parent is killed, which ends nobody, would wait for ever."""
    let_terminate()
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def _starting(workers: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FplError(
            f"{workers} worker processes cannot be started: {error.strerror or error}",
            hint="is /dev/shm full, or the number of processes limited? --workers 1 needs neither",
        ) from error
