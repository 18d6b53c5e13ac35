"""Commands in processes of their own: watched, killed, limited, and gone with their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from fpl.sweep.rehearsal.child import Ended, free_memory, run

SLEEP = "import time; print('here', flush=True); time.sleep(600)"


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def told(seconds: float) -> None:
    """Nothing is looked at here."""


def test_what_it_said_and_how_it_ended(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert run(python("print('first')"), log, threads=1, tell=told).code == 0
    ended = run(python("import sys; print('error: no'); sys.exit(2)"), log, threads=1, tell=told)
    assert (ended.code, ended.text, ended.lacked_memory) == (2, "error: no\n", False)
    assert ended.reason == "exit code 2: error: no"
    assert log.read_text() == "first\nerror: no\n"


def test_killed_where_it_is_to_be(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ended = run(python(SLEEP), log, threads=1, tell=told, look=lambda: log.read_text() == "here\n")
    assert ended.code == -signal.SIGKILL and not ended.lacked_memory and ended.stopped


def test_memory_beyond_the_limit_is_refused_and_understood(tmp_path: Path) -> None:
    program = "print(len(bytearray(4 * 10**8)))"
    assert run(python(program), tmp_path / "log", threads=1, tell=told).code == 0
    ended = run(python(program), tmp_path / "log", threads=1, tell=told, limit=3 * 10**8)
    assert ended.code == 1 and ended.lacked_memory
    assert Ended(-signal.SIGKILL, 1.0, "").lacked_memory
    # As a campaign does: the reason comes first, and then the tables, however long they are.
    program = "import sys; print('not finished: RUN: not enough memory'); print('a row\\n' * 9999); sys.exit(2)"
    ended = run(python(program), tmp_path / "log", threads=1, tell=told)
    assert ended.lacked_memory and ended.reason == "exit code 2: not finished: RUN: not enough memory"
    free = free_memory()
    assert free is None or free > 10**8


def test_it_does_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = f"import os; print(os.getpid(), flush=True); {SLEEP}"
    program = (
        "import sys; from pathlib import Path; from fpl.sweep.rehearsal.child import run; "
        f"run([sys.executable, '-c', {child!r}], Path({str(log)!r}), threads=1, tell=print)"
    )
    with subprocess.Popen(python(program)) as parent:
        deadline = time.monotonic() + 60
        while not (log.exists() and log.read_text().endswith("here\n")):
            assert time.monotonic() < deadline and parent.poll() is None
            time.sleep(0.02)
        parent.kill()
    number = int(log.read_text().split()[0])
    while _lives(number):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _lives(number: int) -> bool:
    """Whether a process runs; one that is dead and not yet waited for does not."""
    try:
        os.kill(number, 0)
        return ") Z " not in Path(f"/proc/{number}/stat").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False
