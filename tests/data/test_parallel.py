from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fpl.data.parallel import run_parallel
from fpl.errors import FplError


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
def test_order_and_progress(workers: int) -> None:
    seen: list[int] = []
    results = run_parallel(
        square, range(23), workers=workers, chunk=3, progress=lambda done, total: seen.append(done * 100 + total)
    )
    assert results == [number * number for number in range(23)]
    assert seen == sorted(seen) and seen[-1] == 2323 and len(seen) == 8
    assert run_parallel(square, [], workers=workers) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_errors_come_through(workers: int) -> None:
    with pytest.raises(FplError, match="seven") as caught:
        run_parallel(refuse, range(20), workers=workers)
    assert caught.value.where == "here"


def test_a_killed_worker_is_an_error() -> None:
    with pytest.raises(FplError, match="was killed"):
        run_parallel(die, range(20), workers=2)


PROGRAM = """
import sys, time
from fpl.data.parallel import run_parallel
if __name__ == "__main__":
    print("started", flush=True)
    try:
        run_parallel(time.sleep, [0.2] * 200, workers=2, chunk=1, progress=lambda done, total: print(done, flush=True))
    except KeyboardInterrupt:
        print("stopped")
"""


def test_ctrl_c_reaches_all_processes_and_none_prints_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    process = subprocess.Popen(
        [sys.executable, tmp_path / "program.py"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    process.stdout.readline()
    began = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=8)
    assert out.splitlines()[-1] == "stopped"
    assert err == ""
    assert time.monotonic() - began < 5
