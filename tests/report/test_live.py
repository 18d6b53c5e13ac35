"""A report that is written while runs are carried out."""

from __future__ import annotations

import threading

import pytest

from fpl.report.live import SHARE, LiveReport


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_it_pauses_between_two_and_in_proportion_to_what_one_takes() -> None:
    clock, written = Clock(), []

    def write() -> None:
        written.append(clock.now)
        clock.now += cost

    live = LiveReport(write, pause=30.0, clock=clock)

    def end_a_run_at(now: float) -> None:
        clock.now = now
        live.ended()
        live.join()

    cost = 1.0
    for now in (100.0, 110.0, 130.0, 131.0):
        end_a_run_at(now)
    assert written == [100.0, 131.0]
    cost = 5.0
    for now in (162.0, 167.0 + 30.0, 167.0 + SHARE * 5.0):
        end_a_run_at(now)
    assert written == [100.0, 131.0, 162.0, 267.0]


def test_runs_do_not_wait_for_it_and_its_end_does() -> None:
    begun, go, written = threading.Event(), threading.Event(), []

    def write() -> None:
        begun.set()
        assert go.wait(30)
        written.append(1)

    with LiveReport(write, pause=0.0) as live:
        live.ended()
        assert begun.wait(30)
        # One at a time.
        live.ended()
        assert not written
        go.set()
    assert written == [1]


def test_a_report_that_fails_is_told_and_ends_nothing() -> None:
    def write() -> None:
        raise OSError("disk full")

    with LiveReport(write) as live:
        live.ended()
    with pytest.raises(OSError, match="disk full"):
        raise live.problem or AssertionError("kept nothing")


def test_without_memory_for_a_thread_the_runs_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched, LiveReport(lambda: None) as live:
        patched.setattr(threading.Thread, "start", start)
        live.ended()
    assert str(live.problem) == "can't start new thread"


def test_a_report_that_waits_for_ever_does_not_keep_a_command_that_is_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fpl.report.live.FAREWELL", 0.1)
    go = threading.Event()
    with pytest.raises(KeyboardInterrupt), LiveReport(go.wait) as live:
        live.ended()
        raise KeyboardInterrupt
    assert "more than 0 s" in str(live.problem)
    go.set()
