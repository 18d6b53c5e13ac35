"""What `fpl doctor` says about the implementations of the loss."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fpl import doctor
from fpl.config.sections import ModelConfig
from fpl.errors import FplError
from fpl.losses import kernels
from fpl.losses.kernels import Found
from fpl.sweep.places import Places
from fpl.sweep.plan.needs import Needs
from tests.data.conftest import write_camvid


def test_an_unknown_implementation_is_bad_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FPL_LOSS", "foo")
    with pytest.raises(FplError, match="FPL_LOSS is 'foo'; allowed: 'auto', 'tensor', 'cpu', 'triton'") as raised:
        doctor.print_doctor(Places(tmp_path, tmp_path, tmp_path))
    assert raised.value.exit_code == 2


@pytest.mark.parametrize("chosen", ["auto", "cpu"])
def test_what_is_missing_is_one_line(monkeypatch: pytest.MonkeyPatch, chosen: str) -> None:
    monkeypatch.setenv("FPL_LOSS", chosen)
    monkeypatch.setattr(kernels, "find_cpu", lambda: Found(None, "no C++ compiler"))
    line = next(iter(doctor._losses()))
    assert line.startswith("- cpu: ")
    assert line.endswith("no C++ compiler")
    assert ("FPL_LOSS is cpu" in line) == (chosen == "cpu")


def test_weights_are_said_as_plans_say_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where training would download, neither asks for a file; where it cannot, both do."""
    monkeypatch.delenv("FPL_WEIGHTS", raising=False)
    model = ModelConfig.model_validate({"backbone": "resnet50", "pretrained": "imagenet"})
    for offline in ("0", "1"):
        monkeypatch.setenv("HF_HUB_OFFLINE", offline)
        places = Places(tmp_path, tmp_path, tmp_path)
        needs = Needs(places)
        problem = needs.weights(model)
        doctor.print_doctor(places)
        (line,) = [line for line in capsys.readouterr().out.splitlines() if "resnet50:" in line]
        assert (problem in line) if problem else ("downloaded when the first run starts" in line)
        assert bool(problem) != bool(needs.to_download)


def test_a_set_that_is_not_whole_is_no_good_news(tmp_path: Path) -> None:
    """Here of a preparation that was stopped, behind its first part and amid its second."""
    root = tmp_path / "camvid"
    write_camvid(root, ["t0", "t1"], ["v0"])
    said = {line.split(":")[0]: line for line in doctor._data(Places(tmp_path, tmp_path, tmp_path))}
    assert said["- camvid"].startswith("- camvid: 2 train, 1 val images in ")
    assert f"367 train, 101 val are expected -> fpl data check camvid --data-root {tmp_path} says" in said["- camvid"]
    shutil.rmtree(root / "val")
    said = {line.split(":")[0]: line for line in doctor._data(Places(tmp_path, tmp_path, tmp_path))}
    assert "no folder of val images" in said["- camvid"]
    assert said["- camvid"].endswith("if `fpl data prepare` was stopped, the same command continues")


def test_lines_are_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    folded = doctor._folded("- " + "word " * 60).splitlines()
    assert len(folded) > 3 and max(map(len, folded)) <= 80
    assert folded[0].startswith("  - ") and all(line.startswith("      w") for line in folded[1:])


def test_methods_of_other_packages_are_named_with_them() -> None:
    (line,) = doctor._methods()
    assert "cps, " in line and line.endswith("example_mean_teacher (of example-methods 1.0)")
