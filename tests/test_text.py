"""Names that no file can have."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from fpl.errors import FplError, check_name, file_error, name_problem


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
