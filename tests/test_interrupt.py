"""SIGTERM and Ctrl-C end what runs whenever they come, and never in the middle of what must be whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from fpl.interrupt import check_interrupted, held_back, interrupt_main, terminated_like_interrupted
from fpl.sweep import job
from fpl.sweep.execution import Execution
from fpl.sweep.job import Job, JobResult, run_serially
from fpl.sweep.places import Places
from tests.signals import interruptible, popen

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# A signal in what Python calls around each fork, which drops whatever is raised there.
LOADER = """
import os, signal, sys
from torch.utils.data import Dataset
from fpl.cli.data import interruptible
from fpl.data.batches import BatchStream
from fpl.errors import Interrupted

class Steps(Dataset):
    def __getitem__(self, number):
        return number

came = []

def come():
    came.append("the signal came")
    os.kill(os.getpid(), int(sys.argv[1]))

if __name__ == "__main__":
    os.register_at_fork(**{sys.argv[2]: come})
    try:
        with interruptible("go on"):
            for number in BatchStream(Steps(), range(1000), 2):
                print(number)
        print("it went on to the end")
    except Interrupted as error:
        print(came[0], error.what)
"""


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("moment", ["before", "after_in_parent"])
def test_a_signal_while_loader_processes_start_is_not_lost(tmp_path: Path, number: signal.Signals, moment: str) -> None:
    (tmp_path / "program.py").write_text(LOADER)
    command = [sys.executable, tmp_path / "program.py", str(int(number)), moment]
    with popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.communicate() == ("the signal came stopped\n", "")


def test_without_a_handler_new_processes_end_by_sigterm_as_ever() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with held_back():
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    finally:
        signal.signal(signal.SIGTERM, before)
    child.terminate()
    assert child.wait(60) == -signal.SIGTERM


class Interrupting:
    """Interrupts its own destructor."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


def test_an_interruption_that_python_drops_comes_again(capfd: pytest.CaptureFixture[str]) -> None:
    hook = sys.unraisablehook
    began = time.monotonic()
    with terminated_like_interrupted(), pytest.raises(KeyboardInterrupt):
        Interrupting()
        time.sleep(600)
    assert time.monotonic() - began < 600 and sys.unraisablehook is hook and not capfd.readouterr().err


@pytest.mark.parametrize("number", SIGNALS)
def test_what_is_held_back_has_its_effect_afterwards(number: signal.Signals) -> None:
    done = []
    with interruptible(), terminated_like_interrupted():
        before = [signal.getsignal(each) for each in SIGNALS]
        with pytest.raises(KeyboardInterrupt), held_back():
            for _ in range(2):
                os.kill(os.getpid(), number)
            interrupt_main()
            done.append("whole")
        assert [signal.getsignal(each) for each in SIGNALS] == before and done == ["whole"]
        with held_back():
            done.append("nothing came")
    assert len(done) == 2


def test_a_process_that_is_started_meanwhile_can_be_told_to_end() -> None:
    """Also before it knows itself: its parent waits for it when both end."""
    with terminated_like_interrupted(), held_back():
        child = os.fork()
        if not child:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(3)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM


def test_a_signal_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with held_back():
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_changes_nothing() -> None:
    before, seen = signal.getsignal(signal.SIGTERM), []

    def look() -> None:
        with terminated_like_interrupted(), held_back():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [before]


# A signal in the machinery of an import, behind the lock of all imports: an exception there leaves it closed.
IMPORT = """
import _imp, functools, operator, signal, sys, threading, time, types
import importlib._bootstrap as machinery
from fpl.interrupt import terminated_like_interrupted

steps = [_imp.acquire_lock, functools.partial(setattr, machinery, "_imp", _imp)]
steps.append(functools.partial(signal.raise_signal, int(sys.argv[1])))
in_between = {"acquire_lock": functools.partial(any, map(operator.call, steps))}
with terminated_like_interrupted():
    try:
        machinery._imp = types.SimpleNamespace(**{**vars(_imp), **in_between})
        import wave
        time.sleep(600)
    except KeyboardInterrupt:
        other = threading.Thread(target=__import__, args=("colorsys",), daemon=True)
        other.start()
        other.join(30)
        print("another thread waits" if other.is_alive() else "another thread imports")
"""


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_in_the_middle_of_an_import_leaves_imports_to_other_threads(number: signal.Signals) -> None:
    command = [sys.executable, "-c", IMPORT, str(int(number))]
    with popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.communicate() == ("another thread imports\n", "")


@pytest.mark.parametrize("becomes", ["an error", "a report", "nothing"])
def test_an_interruption_that_a_library_swallows_is_no_failure_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, becomes: str
) -> None:
    def train(job: Job, on_report: Callable[[int, dict[str, float]], object]) -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            if becomes == "an error":
                raise ValueError("from the library") from None
        if becomes == "a report":
            on_report(1, {})

    monkeypatch.setattr(job, "_run_logged", train)
    monkeypatch.setattr(job, "finished", lambda one: JobResult(one.run_id, "done"))
    places, told = Places(tmp_path / "out", tmp_path, tmp_path), []
    watcher = SimpleNamespace(started=told.append, reported=lambda *_: None, ended=told.append)
    jobs = [Job(name, {"seed": 0}, places, Execution(), "cpu") for name in "ab"]
    with terminated_like_interrupted(), pytest.raises(KeyboardInterrupt):
        run_serially(jobs, watcher)
    assert told == ["a"] and not (places.out / "failures").exists()
    # What came is over.
    run_serially([], watcher)
    check_interrupted()


def test_a_handler_of_somebody_else_stays() -> None:
    def own(number: int, frame: object) -> None:
        seen.append(number)

    seen: list[int] = []
    before = signal.signal(signal.SIGINT, own)
    try:
        with terminated_like_interrupted():
            signal.raise_signal(signal.SIGINT)
        assert seen == [signal.SIGINT] and signal.getsignal(signal.SIGINT) is own
    finally:
        signal.signal(signal.SIGINT, before)
