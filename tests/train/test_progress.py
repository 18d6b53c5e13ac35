"""The progress line on a terminal and in a file."""

from __future__ import annotations

import io

import pytest

from fpl.text import duration
from fpl.train import progress as module
from fpl.train.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59, "59 s"), (185, "3:05"), (7385, "2:03:05"), (4 * 86400 + 7380, "4 d 02:03")]
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_plain_lines_pause_and_foresee_the_end(clock: list[float]) -> None:
    stream = io.StringIO()
    progress = Progress(100, stream=stream, pause=10.0)
    progress.begin(20)
    clock[0] += 5
    progress.show(25, {"loss": "1.5"})
    assert stream.getvalue() == ""
    clock[0] += 15
    progress.show(40, {"loss": "1.25"})
    # 20 steps in 20 seconds leave 60 seconds for 60 steps.
    assert stream.getvalue() == "step 40/100  loss 1.25  1.00 steps/s  left 1:00\n"


def test_validation_does_not_slow_the_rate(clock: list[float]) -> None:
    stream = io.StringIO()
    progress = Progress(100, stream=stream)
    clock[0] += 30
    progress.validated(20.0, "mIoU 40")
    assert progress.rate(10) == pytest.approx(1.0)
    assert stream.getvalue() == "mIoU 40\n"


def test_terminal_line_renews_itself_and_notes_clear_it(clock: list[float]) -> None:
    stream = Terminal()
    progress = Progress(4, unit="image", stream=stream)
    clock[0] += 1
    progress.show(1)
    clock[0] += 0.01
    progress.show(2)  # too soon
    progress.note("done")
    first, rest = stream.getvalue().split("left 3 s")
    assert first == "\rimage 1/4  1.00 images/s  "
    assert rest.endswith("\rdone\n")


def test_quiet_says_nothing(clock: list[float]) -> None:
    stream = io.StringIO()
    progress = Progress(4, quiet=True, stream=stream)
    clock[0] += 60
    progress.show(1)
    progress.note("x")
    progress.validated(1.0, "y")
    assert stream.getvalue() == ""
