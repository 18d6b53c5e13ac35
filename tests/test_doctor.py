"""What `fpl doctor` says about the implementations of the loss."""

from __future__ import annotations

from pathlib import Path

import pytest

from fpl import doctor
from fpl.errors import FplError
from fpl.losses import kernels
from fpl.losses.kernels import Found


def test_an_unknown_implementation_is_bad_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FPL_LOSS", "foo")
    with pytest.raises(FplError, match="FPL_LOSS is 'foo'; allowed: 'auto', 'tensor', 'cpu', 'triton'") as raised:
        doctor.print_doctor(tmp_path, tmp_path, None)
    assert raised.value.exit_code == 2


@pytest.mark.parametrize("chosen", ["auto", "cpu"])
def test_what_is_missing_is_one_line(monkeypatch: pytest.MonkeyPatch, chosen: str) -> None:
    monkeypatch.setenv("FPL_LOSS", chosen)
    monkeypatch.setattr(kernels, "find_cpu", lambda: Found(None, "no C++ compiler"))
    line = next(iter(doctor._losses()))
    assert line.startswith("- cpu: ")
    assert line.endswith("no C++ compiler")
    assert ("FPL_LOSS is cpu" in line) == (chosen == "cpu")
