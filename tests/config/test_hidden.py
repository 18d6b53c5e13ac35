"""What macOS and editors put beside a file is none of ours."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fpl.config.campaign import load_campaign
from fpl.config.figure import load_figures
from fpl.config.scale import scale_path
from fpl.config.search import search_names
from fpl.errors import FplError
from fpl.files import visible

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
COMPANION = b"\0\5\26\7\0\2\0\0Mac OS X        \xff"


def test_companions_of_experiment_files_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "experiments"
    shutil.copytree(EXPERIMENTS, folder, ignore=shutil.ignore_patterns("splits"))
    before = (load_campaign(folder, "mini"), search_names(folder), load_figures(folder, ()))
    for path in list(folder.rglob("*.toml")):
        path.with_name(f"._{path.name}").write_bytes(COMPANION)
        path.with_name(f".{path.name}.swp").write_bytes(COMPANION)
    after = (load_campaign(folder, "mini"), search_names(folder), load_figures(folder, ()))
    assert after[0].cells.keys() == before[0].cells.keys()
    assert after[1:] == before[1:]
    with pytest.raises(FplError) as caught:
        scale_path(folder / "tables" / "table1.toml", "nothing")
    assert "._" not in caught.value.hint


def test_hidden_files_and_what_lies_in_hidden_folders(tmp_path: Path) -> None:
    for name in ("b.toml", "a.toml", ".a.toml", ".git/c.toml", "d/e.toml", "a.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "folder.toml").mkdir()
    assert visible(tmp_path, "*.toml") == [tmp_path / "a.toml", tmp_path / "b.toml"]
    assert visible(tmp_path, "**/*.toml") == [tmp_path / "a.toml", tmp_path / "b.toml", tmp_path / "d/e.toml"]
    assert visible(tmp_path / "nowhere", "*") == []
