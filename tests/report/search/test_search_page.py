"""The page of a search: whole, alone, the same bytes for the same rows; and the commands that write it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
import typer
from typer.testing import CliRunner, Result

from fpl.cli.report import report
from fpl.errors import FplError
from fpl.report.page import page
from fpl.report.search.search_page import search_extra, write_search_pages
from fpl.store.read import Results
from tests.report.world import World
from tests.report.world_search import EIGHTH, QUARTER, T_ONLY, study, trial, write_world

VOID = {"meta", "br", "link", "img"}


class Elements(HTMLParser):
    """Tags that are open, ids, links, figures and what is said."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.figures: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        self.ids += [values["id"] or ""] if "id" in values else []
        self.links += [values[name] or "" for name in ("href", "src", "data", "srcset") if name in values]
        self.figures += [values["aria-label"] or ""] if tag == "svg" else []

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, (tag, self.open)

    def handle_data(self, data: str) -> None:
        if not {"style", "svg"} & set(self.open):
            self.text += data


def read(text: str) -> Elements:
    parser = Elements()
    parser.feed(text)
    parser.close()
    return parser


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the page of its search."""
    import matplotlib

    folder = write_world(tmp_path_factory.mktemp("store"))
    before = dict(matplotlib.rcParams)
    assert write_search_pages(folder) == [folder / "search" / "demo" / "index.html"]
    # Drawing leaves no settings behind.
    assert dict(matplotlib.rcParams) == before
    return folder


def little(folder: Path) -> Path:
    """A search that is quickly drawn."""
    study(folder, space=T_ONLY)
    trial(folder, 0, {"loss.threshold": 0.9}, 40.0, origin="table5.t090.c1_8")
    trial(folder, 1, {"loss.threshold": 0.8}, 42.5)
    return folder


def test_page_is_whole_and_needs_nothing_else(store: Path) -> None:
    path = store / "search" / "demo" / "index.html"
    text = path.read_text()
    found = read(text)
    assert found.open == []
    assert len(set(found.ids)) == len(found.ids)
    # Links lead to a place on the page, or to a file beside it.
    for link in found.links:
        assert link[1:] in found.ids if link.startswith("#") else (path.parent / link).is_file(), link
    assert set(re.findall(r"url\(#(.*?)\)", text)) <= set(found.ids)
    assert not re.search(r"https?:|//|url\([^#]|@import|<script|<link|<img|<metadata|\son\w+=", text)
    assert "What &lt;is&gt; worth searching?" in text and "the loss is no &lt;number&gt;" in text
    assert "prefers-color-scheme: dark" in text and "currentColor" in text and "#010203" not in text
    assert "score by T, a curve per labeled fraction" in found.figures
    assert {f"score by loss.{key}" for key in ("strategy", "threshold", "ratio", "fixed_k")} <= set(found.figures)
    assert "score over loss.strategy and loss.threshold" in found.figures
    assert found.figures.count("complete trials as lines through all parameters") == 2
    assert found.figures.count("importance of each parameter") == 2
    for said in ("optimistic", "11 % saved", "unreliable", "where it means something: strategy fixed", "n = 1"):
        assert said in found.text
    assert "1/8 labeled: best T 0.8 of 5 trials (42.50 %); 1/4 labeled: best T 0.7 of 2 trials" in found.text


def test_every_frame_is_a_csv(store: Path) -> None:
    frames = {file.stem: pd.read_csv(file) for file in (store / "search" / "demo").glob("*.csv")}
    assert set(frames) == {
        *("trials", "thresholds", "claim", "best", "importances", "history", "early_stopping", "slice", "contour"),
        *("parallel", "failures"),
    }
    assert len(frames["trials"]) == 12 and frames["trials"].loc[4, "run_ids"] == "demo-aaaa0001-run-4-0"
    assert frames["best"].groupby("study")["number"].apply(list).to_dict() == {
        EIGHTH: [4, 1, 0, 3, 7],
        QUARTER: [2, 1, 0],
    }
    assert list(frames["claim"]["best_threshold"]) == [0.8, 0.7] and set(frames["claim"]["verdict"]) == {"holds"}
    assert list(frames["early_stopping"]["steps_spent"]) == [620, 300]
    assert frames["parallel"]["loss.fixed_k"].notna().sum() == 2


def test_what_a_frame_no_longer_holds_goes(tmp_path: Path) -> None:
    little(tmp_path)
    trial(tmp_path, 2, {"loss.threshold": 0.7}, state="failed", reason="lost")
    (path,) = write_search_pages(tmp_path, "demo")
    assert pd.read_csv(path.parent / "failures.csv")["reason"].item() == "lost" and "failures.csv" in path.read_text()
    trial(tmp_path, 2, {"loss.threshold": 0.7}, 41.0)
    write_search_pages(tmp_path)
    assert not (path.parent / "failures.csv").exists() and "failures.csv" not in path.read_text()


def test_same_rows_same_bytes_in_any_process(store: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from fpl.report.search.search_page import write_search_pages; "
        "write_search_pages(Path(sys.argv[1])); "
        "print(sorted({'torch', 'ray'} & set(sys.modules)))"
    )
    folder = store / "search" / "demo"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    command = [sys.executable, "-c", program, str(store)]
    environment = os.environ | {"PYTHONHASHSEED": "1"}
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before and len(before) == 12


def test_a_study_without_an_end_has_a_page(tmp_path: Path) -> None:
    study(tmp_path)
    (path,) = write_search_pages(tmp_path)
    assert "no trials yet" in path.read_text() and "No trial is complete yet" in path.read_text()
    trial(tmp_path, 0, {"loss.strategy": "n-1", "loss.threshold": 0.8})
    trial(tmp_path, 1, {"loss.strategy": "fixed", "loss.fixed_k": 1}, 40.0)
    write_search_pages(tmp_path)
    found = read(path.read_text())
    assert "Fewer than two complete trials" in found.text and found.open == []


def test_numbers_over_two_parameters_are_a_surface(tmp_path: Path) -> None:
    from fpl.config.search import Parameter

    a, b = Parameter(key="x.a", low=0.0, high=1.0), Parameter(key="x.b", low=1.0, high=1000.0, log=True)
    study(tmp_path, space=[a, b], objectives=["miou", "cost"])
    trial(tmp_path, 0, {"x.a": 0.5, "x.b": 2.0}, 40.0)
    trial(tmp_path, 1, {"x.a": 0.5, "x.b": 900.0}, 41.0)
    (path,) = write_search_pages(tmp_path)
    # One value of x.a alone: there is nothing to see that a slice does not show.
    assert "score over x.a and x.b" not in read(path.read_text()).figures
    trial(tmp_path, 2, {"x.a": 0.1, "x.b": 900.0}, 47.0)
    write_search_pages(tmp_path)
    found = read(path.read_text()).figures
    assert {"score over x.a and x.b", "score by cost"} <= set(found)
    assert "QuadContourSet" in path.read_text()


def test_main_page_lists_searches(tmp_path: Path) -> None:
    write_world(tmp_path)
    study(tmp_path, "other-1", search="other", caption="T & more", space=T_ONLY)
    (tmp_path / "search" / "demo").mkdir(parents=True)
    (tmp_path / "search" / "demo" / "index.html").touch()
    (extra,) = search_extra(Results(tmp_path))
    found = read(str(extra.html))
    # Only a page that is there is linked.
    assert found.links == ["search/demo/index.html"] and found.open == []
    assert "12" in found.text and "T & more" in found.text
    assert "1/8 labeled (40 images): 42.50 % (n = 1) with strategy n-1, threshold 0.8; 1/4 labeled" in found.text
    assert search_extra(Results(tmp_path / "none")) == []


app = typer.Typer()
app.command()(report)


def call(world: World, *arguments: str) -> Result:
    places = ["--experiments", str(world.experiments), "--scale", "little", "--results", str(world.out)]
    return CliRunner().invoke(app, [*arguments, *places], catch_exceptions=False)


def test_report_writes_all_pages(tmp_path: Path) -> None:
    world = World(tmp_path, "little")
    world.run("main.cps.small_8", 25.0)
    (world.out / "ENVIRONMENT").write_text("torch <9>")
    little(world.out)
    result = call(world)
    assert result.exit_code == 0
    for said in ("0 % saved", "optimistic", str(world.out / "search" / "demo" / "index.html"), str(world.out)):
        assert said in result.stdout
    text = (world.out / "index.html").read_text()
    found = read(text)
    assert found.open == [] and "torch <9>" in found.text and "25.00" in found.text
    (world.out / "ENVIRONMENT").write_bytes(b"torch \xff\xfe")
    assert call(world).exit_code == 0 and "torch" in read((world.out / "index.html").read_text()).text
    assert "search/demo/index.html" in found.links and "#searches" in found.links and "searches" in found.ids
    back = read((world.out / "search" / "demo" / "index.html").read_text()).links
    assert "../../index.html" in back
    assert (world.out / "tables.csv").is_file()
    before = {path: path.read_bytes() for path in world.out.rglob("*") if path.is_file()}
    assert call(world, "demo").exit_code == 0
    assert {path: path.read_bytes() for path in world.out.rglob("*") if path.is_file()} == before


def test_report_without_searches_is_the_page_of_the_tables(tmp_path: Path) -> None:
    from fpl.report.tables.grid import build_grids
    from fpl.report.tables.summary import summarize

    world = World(tmp_path, "little")
    world.run("main.cps.small_8", 25.0)
    assert call(world, "--rows", "all").exit_code == 0
    grids = build_grids(world.campaign, world.results)
    assert (world.out / "index.html").read_text() == page(grids, summarize(grids, world.results))
    assert not (world.out / "search").exists()


def test_report_of_searches_alone(tmp_path: Path) -> None:
    world = World(tmp_path, "little")
    little(world.out)
    assert call(world).exit_code == 0
    assert "search/demo/index.html" in read((world.out / "index.html").read_text()).links


def test_report_says_what_is_missing(tmp_path: Path) -> None:
    world = World(tmp_path, "little")
    with pytest.raises(FplError) as caught:
        call(world)
    assert str(world.out) in caught.value.where and "fpl search" in caught.value.hint
    little(world.out)
    with pytest.raises(FplError, match="no search 'jiont'"):
        call(world, "jiont")
    assert not (world.out / "index.html").exists()
