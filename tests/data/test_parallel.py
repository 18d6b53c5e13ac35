from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fpl.data.parallel import run_parallel
from fpl.errors import FplError
from fpl.interrupt import terminated_like_interrupted
from tests.signals import popen


def square(number: int) -> int:
    return number * number


def refuse(number: int) -> int:
    if number == 7:
        raise FplError("seven", where="here")
    return number


def die(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("count", [23, 601])
def test_order_and_progress(workers: int, count: int) -> None:
    seen: list[int] = []
    results = run_parallel(
        square, range(count), workers=workers, progress=lambda done, total: seen.append(done * 1000 + total)
    )
    assert results == [number * number for number in range(count)]
    assert seen == sorted(seen) and seen[-1] == 1001 * count and len(seen) == count
    assert run_parallel(square, [], workers=workers) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_errors_come_through(workers: int) -> None:
    with pytest.raises(FplError, match="seven") as caught:
        run_parallel(refuse, range(20), workers=workers)
    assert caught.value.where == "here"


def test_a_killed_worker_is_an_error() -> None:
    with pytest.raises(FplError, match="was killed"):
        run_parallel(die, range(20), workers=2)


def test_a_pool_that_is_told_to_end_while_it_starts_ends_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped between two of its locks it would be waited for without an end."""
    submit, submitted = ProcessPoolExecutor.submit, []

    def told(self: ProcessPoolExecutor, *arguments: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        submitted.append(arguments)
        return submit(self, *arguments)

    monkeypatch.setattr(ProcessPoolExecutor, "submit", told)
    with terminated_like_interrupted(), pytest.raises(KeyboardInterrupt):
        run_parallel(square, range(20), workers=2)
    assert len(submitted) == 20


def mask(number: int) -> tuple[bool, bool]:
    held = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    return signal.SIGINT in held, signal.SIGTERM in held


def test_workers_leave_ctrl_c_to_their_parent_and_end_when_they_are_told_to() -> None:
    assert run_parallel(mask, range(4), workers=2) == [(True, False)] * 4
    with ThreadPoolExecutor(1) as thread:  # of the live page
        assert thread.submit(run_parallel, mask, range(4), workers=2).result() == [(True, False)] * 4


def run_out_of_memory(number: int) -> int:
    raise MemoryError


@pytest.mark.parametrize("workers", [1, 2])
def test_no_memory_is_an_error_with_a_remedy(workers: int) -> None:
    with pytest.raises(FplError, match="memory ran out") as caught:
        run_parallel(run_out_of_memory, range(20), workers=workers)
    assert "--workers" in caught.value.hint


@pytest.mark.parametrize("failing", ["synchronize.SemLock.__init__", "context.SpawnProcess._Popen"])
def test_workers_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    """A full /dev/shm has no room for a semaphore; where there may be no more processes, none starts."""

    def refuse_it(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(f"multiprocessing.{failing}", refuse_it)
    with pytest.raises(FplError, match="cannot be started: No space left") as caught:
        run_parallel(square, range(20), workers=2)
    assert "/dev/shm" in caught.value.hint


PROGRAM = """
import sys, time
from fpl.data.parallel import run_parallel
if __name__ == "__main__":
    print("started", flush=True)
    try:
        run_parallel(time.sleep, [0.1] * 500, workers=2, progress=lambda done, total: print(done, flush=True))
    except KeyboardInterrupt:
        print("stopped")
"""


@pytest.fixture
def process(tmp_path: Path) -> subprocess.Popen[str]:
    """A program whose workers have begun, with 500 items to do."""
    (tmp_path / "program.py").write_text(PROGRAM)
    child = popen([sys.executable, tmp_path / "program.py"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    assert [child.stdout.readline() for _ in range(2)] == ["started\n", "1\n"]
    return child


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_reaches_all_processes_and_none_prints_a_traceback(process: subprocess.Popen[str], times: int) -> None:
    for _ in range(times):
        os.killpg(process.pid, signal.SIGINT)
    # Standard output ends when the last process does.
    out, err = process.communicate()
    if times == 1:
        assert out.splitlines()[-1] == "stopped"
        assert err == ""
    # Soon: what was done is far from all there was.
    assert len(out.splitlines()) < 100


def test_workers_end_with_a_parent_that_is_killed(process: subprocess.Popen[str]) -> None:
    process.kill()
    out, _ = process.communicate()
    assert len(out.splitlines()) < 100
