"""Commands of the suite in processes of their own: watched, killed, and gone when this process is."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fpl.interrupt import held_back

# Seconds: looks at a process, words about it to the user, and the longest that one command may take.
LOOK, TELL, PATIENCE = 0.05, 30.0, 6 * 3600.0
# Of the memory that is free, what a process may take; the rest is for everybody else.
FREE_SHARE = 0.95
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_MEMORY_WORDS = (
    "not enough memory",
    "out of memory",
    "MemoryError",
    "bad_alloc",
    "could not create a memory",
    "Cannot allocate memory",
    "of memory needed on",
)


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        code: Exit code; negative: the signal that killed it.
        seconds: Wall time.
        text: What it said.
        stopped: Why it was killed from here; empty if it was not.
    """

    code: int
    seconds: float
    text: str
    stopped: str = ""

    @property
    def lacked_memory(self) -> bool:
        """Whether it failed for want of memory: its own words, or a kill that nobody else can have sent."""
        if self.stopped:
            return False
        return self.code == -signal.SIGKILL or any(word in self.text for word in _MEMORY_WORDS)

    @property
    def reason(self) -> str:
        """Its last words in one line."""
        if self.stopped:
            return self.stopped
        told = [line for line in self.text.splitlines() if line.startswith(("error", "failed", "not finished"))]
        lines = told or self.text.strip().splitlines() or ["it said nothing"]
        return f"exit code {self.code}: {lines[-1]}"


def fpl_command(*arguments: str) -> list[str]:
    """A command line of this suite, as this Python runs it."""
    return [sys.executable, "-m", "fpl", *arguments]


def run(
    command: Sequence[str],
    log: Path,
    *,
    threads: int,
    tell: Callable[[float], None],
    limit: int | None = None,
    look: Callable[[], bool] = lambda: False,
) -> Ended:
    """Run a command until it ends, or kill it as `kill -9` does when `look` says so.

    Args:
        command: The command line.
        log: File that what it says is put behind.
        threads: CPU threads of its libraries.
        tell: Told now and then the seconds that have passed.
        limit: Bytes of memory that it may take; None: no limit.
        look: Asked many times a second whether the command has come to where it is to be killed.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    began, stopped = time.monotonic(), ""
    told = began
    begins = log.stat().st_size if log.exists() else 0
    with log.open("ab") as stream, _started(command, stream.fileno(), threads, limit) as process:
        while process.poll() is None:
            now = time.monotonic()
            if look():
                stopped = "killed where it was to be"
                break
            if now - began > PATIENCE:
                stopped = f"killed: it took longer than {PATIENCE / 3600:.0f} hours"
                break
            if now - told >= TELL:
                told = now
                tell(now - began)
            time.sleep(LOOK)
    text = log.read_bytes()[begins:].decode(errors="replace")
    return Ended(process.returncode, time.monotonic() - began, text, stopped)


@contextlib.contextmanager
def _started(command: Sequence[str], out: int, threads: int, limit: int | None) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a session of its own, which never outlives this block, nor this process however that ends."""
    libc = ctypes.CDLL(None)

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        libc.prctl(_DEATH_SIGNAL, signal.SIGKILL)
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    with held_back():
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=environment,
            start_new_session=True,
            preexec_fn=prepare,  # calls of the system: none asks for a lock that a thread may hold
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def free_memory() -> int | None:
    """Bytes that a process may take here without harm to others; None where the system does not say."""
    found = []
    with contextlib.suppress(OSError, ValueError):
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        found.append(int(lines["MemAvailable"].split()[0]) * 1024)
    # Of a container or a job of a scheduler.
    group = Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError, ValueError):
        cached = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())["inactive_file"]
        used = int((group / "memory.current").read_text()) - int(cached)
        found.append(int((group / "memory.max").read_text()) - used)
    return int(min(found) * FREE_SHARE) if found else None


@functools.cache
def base_bytes() -> int:
    """Resident memory of a process that has loaded what trains, and has no network yet."""
    program = "import resource, fpl.sweep.local; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    return int(told) * 1024
