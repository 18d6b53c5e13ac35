"""Text as it reaches a terminal, and names that no file can have."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path

import pytest

from fpl.errors import FplError, check_name, file_error, name_problem
from fpl.text import aligned, answer, enumerate_briefly, one_line, printable, say
from fpl.train.progress import Progress

HOSTILE = "a\x1b[2Jb\rc\x07d\u202ee\u2066f\x9bg"


def test_whatever_is_written_is_printable_and_a_name_stays_on_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    answer(HOSTILE)
    say(HOSTILE)
    stream = io.StringIO()
    progress = Progress(1, stream=stream, pause=0.0)
    progress.note(HOSTILE)
    progress.validated(0.0, HOSTILE)
    told = capsys.readouterr()
    for text in (told.out, told.err, *stream.getvalue().splitlines(keepends=True)):
        assert text == f"{printable(HOSTILE)}\n" and text[:-1].isprintable()
    assert one_line("a\nb\tc\x1b") == "a�b�c�" and printable("a\nb\tc\x1b") == "a\nb\tc�"
    assert enumerate_briefly(["a\nb", "c"], 1) == "a�b and 1 more"
    assert aligned([["a\nb", "c"]], ()) == ["a�b  c"]
    assert FplError("what", where="a\nb").message == "a�b: what"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("a" * 255, ""),
        ("a" * 256, "a name of 256 bytes, more than 255"),
        ("ä" * 128, "a name of 256 bytes, more than 255"),
        ("/".join(["a" * 255] * 15), ""),
        ("/".join(["a" * 255] * 16), ""),
        ("/".join(["a" * 255] * 17), "a path of 4,351 bytes, more than 4,095"),
        ("a\0b", "a name with a NUL character"),
        ("\udcff", ""),
    ],
)
def test_names_that_no_file_can_have(tmp_path: Path, name: str, problem: str) -> None:
    assert name_problem(name) == problem
    if not problem:
        return check_name(name)
    with pytest.raises(FplError, match=problem) as caught:
        check_name(name)
    assert len(caught.value.where) <= 80 and "up to 255 bytes and no NUL" in caught.value.hint
    # The system thinks so too.
    with pytest.raises((OSError, ValueError)) as refused:
        os.stat(tmp_path / name)  # noqa: PTH116
    if isinstance(refused.value, OSError):
        assert refused.value.errno == errno.ENAMETOOLONG
        assert file_error(refused.value).what.startswith(problem[:6])
    return None
