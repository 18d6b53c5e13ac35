"""Figures as files and on the page."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fpl.config.figure import load_figures
from fpl.report.figures.drawing_cache import CACHE, Files, Task, drawings, forget_others
from fpl.report.figures.export import COLUMN, DPI, Prepared, prepare, write_figures
from fpl.report.figures.figure_section import figure_extra, first_figure
from fpl.report.page import Extra
from fpl.store.pictures import encode
from fpl.store.write import write_table
from tests.report.world import World
from tests.report.world_figures import figure_world, log


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Runs of all but one figure; `course` lacks 1/16, and its runs have no impurity."""
    made = figure_world(tmp_path)
    for seed in range(3):
        made.run("main.cps.small_8", 60.0 + seed, seed, validation_images=30)
        run = made.run("main.fpl_cps.small_8", 61.0 + 2 * seed, seed, labeled_images=40, validation_images=30)
        log(
            made,
            run,
            [
                {
                    "step": step,
                    "mean_k": 1.0 + 100 / step,
                    "k_histogram": [50, 20, 20, 10, 0],
                    "gradient_sum_n": 0.01 * step,
                    "gradient_sum_n_minus_1": 0.02 * step,
                }
                for step in (50, 100, 200)
            ],
        )
    return made


def prepared(world: World, *names: str) -> dict[str, Prepared]:
    """The figures of these names, in this order, or all."""
    found = prepare(load_figures(world.experiments, names), world.campaign, world.results)
    figures = {item.figure.name: item for item in found}
    return {name: figures[name] for name in names or figures}


def test_files_are_written_and_are_the_same_again(world: World, tmp_path: Path) -> None:
    names = ["course"]
    paths = write_figures(tmp_path / "a", list(prepared(world).values()), names)
    assert [path.name for path in paths] == ["course.png"]
    write_figures(tmp_path / "b", list(prepared(world).values()), names)
    written = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert written == sorted([*(f"{name}.{kind}" for name in names for kind in ("png", "pdf", "csv")), "captions.md"])
    for name in written:
        first = (tmp_path / "a" / name).read_bytes()
        assert first == (tmp_path / "b" / name).read_bytes(), name
        starts = {"png": b"\x89PNG", "pdf": b"%PDF", "csv": b"series,", "md": b"# Figures"}
        assert first.startswith(starts[name.split(".")[1]]) and len(first) > 100
        assert not re.search(rb"CreationDate|Matplotlib", first)


@pytest.mark.parametrize("name", ["areas", "batches"])
def test_the_other_kinds_are_drawn_too(world: World, tmp_path: Path, name: str) -> None:
    (path,) = write_figures(tmp_path, list(prepared(world, name).values()), [name])
    assert len(path.read_bytes()) > 5000


def test_a_png_is_as_wide_as_a_column(world: World, tmp_path: Path) -> None:
    write_figures(tmp_path, list(prepared(world, "bars").values()), ["bars"])
    header = (tmp_path / "bars.png").read_bytes()[16:24]
    assert int.from_bytes(header[:4], "big") == round(COLUMN * DPI)


def test_the_csv_holds_what_is_drawn(world: World, tmp_path: Path) -> None:
    write_figures(tmp_path, list(prepared(world, "course", "bars").values()), ["course", "bars"])
    found = pd.read_csv(tmp_path / "course.csv")
    assert found[["series", "quantity", "step", "training", "value", "seeds", "pixels"]].values.tolist() == [
        ["T at 1/8", "mean_k", 50, 25.0, 3.0, 3, 300],
        ["T at 1/8", "mean_k", 100, 50.0, 2.0, 3, 300],
        ["T at 1/8", "mean_k", 200, 100.0, 1.5, 3, 300],
    ]
    bars = pd.read_csv(tmp_path / "bars.csv")
    assert bars[["series", "miou", "std", "seeds", "paper"]].values.tolist() == [
        ["CPS", 61.0, 1.0, 3, 65.0],
        ["FPL+CPS", 63.0, 2.0, 3, 65.5],
    ]
    assert bars.loc[1, ["gain", "gain_std"]].to_list() == [2.0, 1.0]


def test_captions_say_settings_and_numbers(world: World) -> None:
    found = prepared(world)
    text = found["course"].caption
    assert text.startswith(
        "K & <impurity> over training. Settings: synthetic_city, 1/8 labeled (40 images), CPS without"
    )
    assert "T = 0.9" in text and "200 steps; scale full." in text
    assert "n = 3 seeds" in text and "up to 300 pixels" in text
    assert text.endswith("Not run: T at 1/16.")
    assert "mIoU on 30 validation images, protocol whole, the best of all validations." in found["bars"].caption
    assert "3 mini-batches" not in found["batches"].caption
    assert "9 mini-batches" in found["batches"].caption
    assert found["weights"].caption == "Weights."


def test_a_figure_without_runs_is_skipped_and_says_what_makes_them(tmp_path: Path) -> None:
    world = figure_world(tmp_path)
    world.run("main.cps.small_8", 60.0)
    found = prepared(world)
    assert found["areas"].paint is None
    assert found["areas"].line == "areas: not run: fpl reproduce main.fpl_cps.small_8 --scale full"
    target = tmp_path / "figures"
    target.mkdir()
    (target / "areas.png").write_bytes(b"of another store")
    paths = write_figures(target, list(found.values()))
    assert [path.stem for path in paths] == ["bars", "weights"]
    assert not (target / "areas.png").exists()
    captions = (target / "captions.md").read_text()
    assert "**Figure 6** (`areas`; section 6). Not drawn: not run: fpl reproduce main.fpl\\_cps.small\\_8" in captions


def test_runs_without_diagnostics_say_so(tmp_path: Path) -> None:
    world = figure_world(tmp_path)
    for seed in range(3):
        world.run("main.fpl_cps.small_8", 60.0, seed)
    line = prepared(world)["areas"].line
    assert line.startswith("areas: its runs were recorded without K statistics and diagnostics: fpl reproduce main.fpl")


def test_lines_count_runs(world: World) -> None:
    found = prepared(world)
    assert found["bars"].line == "bars: 6 runs"
    assert found["weights"].line == "weights: no run needed"
    assert found["course"].line.startswith("course: 3 runs; not run: fpl reproduce 'main.fpl_cps.small_*'")


def test_nothing_run_at_all(tmp_path: Path) -> None:
    world = figure_world(tmp_path)
    found = prepare(load_figures(world.experiments), world.campaign, None)
    assert [item.figure.name for item in found if item.paint is not None] == ["weights"]


def section(world: World) -> list[Extra]:
    found = prepare(load_figures(world.experiments), world.campaign, world.results)
    return figure_extra(found, drawings(None, found), world.out / "figures")


def test_nothing_is_drawn_twice_from_the_same_runs(world: World, tmp_path: Path) -> None:
    calls: list[list[str]] = []

    def spy(function: Callable[[Task], Files], tasks: Sequence[Task]) -> list[Files]:
        calls.append([name for name, *_ in tasks])
        return [function(task) for task in tasks]

    names = ["bars", "course"]
    first = list(prepared(world, *names).values())
    drawn = drawings(tmp_path, first, spy)
    kept = {path.name for path in (tmp_path / CACHE).iterdir()}
    assert len(kept) == 6 and calls == [names]
    again = drawings(tmp_path, list(prepared(world, *names).values()), spy)
    assert calls[1:] == [[]] and again == drawn
    # Another run behind it: that figure alone is drawn, and what was drawn before it is forgotten.
    world.run("main.cps.small_8", 70.0, 0, finished_at="2027-01-01T00:00:00+00:00")
    changed = list(prepared(world, *names).values())
    renewed = drawings(tmp_path, changed, spy)
    assert calls[2:] == [["bars"]] and renewed["course"] == drawn["course"] and renewed["bars"] != drawn["bars"]
    forget_others(tmp_path, changed)
    left = {path.name for path in (tmp_path / CACHE).iterdir()}
    assert len(left) == 6 and len(left & kept) == 3
    # Half of what is kept, as after a kill, is nothing.
    next((tmp_path / CACHE).glob("*.png")).unlink()
    drawings(tmp_path, changed, spy)
    assert len(calls[3]) == 1


def test_other_processes_can_draw(world: World) -> None:
    for item in prepared(world).values():
        if item.paint is not None:
            pickle.loads(pickle.dumps(item.paint))


def test_the_page_has_figures_captions_and_claims(world: World) -> None:
    for name in ("bars", "curve", "batches"):
        (world.experiments / "figures" / f"{name}.toml").unlink()
    (extra,) = section(world)
    assert (extra.anchor, extra.title) == ("figures", "Figures")
    assert extra.html.count("<svg") == extra.html.count("<figure id=") == 3
    assert "K &amp; &lt;impurity&gt; over training." in extra.html
    assert "Impurity stays above 10 %." in extra.html and "not run" in extra.html
    # Ids of different figures differ, and nothing is fetched from elsewhere.
    ids = re.findall(r'\bid="([^"]+)"', extra.html)
    assert len(ids) == len(set(ids))
    assert not re.search(r'(href|src)="(?!#|data:)', extra.html)
    again = section(world)
    assert again[0].html == extra.html


def test_the_page_lists_what_is_not_drawn_and_links_files(tmp_path: Path) -> None:
    world = figure_world(tmp_path)
    (world.out / "figures").mkdir(parents=True)
    (world.out / "figures" / "weights.csv").write_text("shape,q,weight\n")
    (extra,) = section(world)
    assert '<a href="figures/weights.csv">CSV</a>' in extra.html
    assert "<h3>Not drawn</h3>" in extra.html and "fpl reproduce main.fpl_cps.small_8" in extra.html
    assert extra.html.count("<svg") == 1


PICTURES = """
[about]
order = 7
source = "section 7"
[figure]
name = "KIND"
number = "Figure 7"
caption = "Seen."
kind = "KIND"
options = { images = 1 }
examples = true
[[series]]
label = "CPS"
cells = "main.cps.small_8"
[[series]]
label = "FPL+CPS"
cells = "main.fpl_cps.small_8"
"""


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("k_maps", {"pixels": [16], "mean_k": [1.375], "share_k1": [0.625]}),
        # The table of K, then that of scores.
        ("strip", {"pixels": [16, 12, 0, 0]}),
        ("score_maps", {"case": [1, 2, 3], "pixels": [12, 0, 0]}),
        ("segmentations", {"run": ["CPS", "FPL+CPS"], "pixels": [12, 12], "pixel_accuracy": [50.0, 100.0]}),
    ],
)
def test_pictures_are_drawn_with_the_numbers_behind_them(
    tmp_path: Path, kind: str, expected: dict[str, list[Any]]
) -> None:
    world = figure_world(tmp_path, "little")
    text, images = PICTURES.replace("KIND", kind), "options = { images = 1 }\n"
    (world.experiments / "figures" / f"{kind}.toml").write_text(text if kind != "strip" else text.replace(images, ""))
    truth = np.array([[255, 255, 255, 255], [0, 0, 1, 1], [0, 0, 1, 1], [0, 0, 1, 1]], dtype=np.uint8)
    scores = np.where(truth == 255, np.nan, 0.5).astype(np.float16)
    k = np.where(truth == 1, 2, 1).astype(np.uint8)
    for cell, found in (("main.cps.small_8", np.zeros_like(truth)), ("main.fpl_cps.small_8", truth)):
        run = world.run(cell, 60.0)
        arrays = {"image": np.zeros((4, 4, 3), np.uint8), "ground_truth": truth, "k": k, "prediction": found}
        pictures = {**arrays, "vanilla_score": scores, "fuzzy_score": scores}
        about = {"run_id": run, "step": 200, "part": "val"}
        rows = [
            encode({**about, "image_id": image, "kind": name, "array": array})
            for image in ("one", "two")
            for name, array in pictures.items()
        ]
        write_table(world.out / "examples" / f"{run}.parquet", "examples", rows)
    first = prepared(world, kind)[kind]
    if kind != "segmentations":
        # Maps are of one run: the first series.
        assert "n = 1 image of seed 0" in first.caption
    (path,) = write_figures(tmp_path, [first])
    assert path.read_bytes().startswith(b"\x89PNG")
    table = pd.read_csv(tmp_path / f"{kind}.csv")
    # Of the one image that is drawn.
    assert set(table["image_id"]) == {"one"}
    for name, values in expected.items():
        assert table[name].tolist() == values
    # One kind stands on the first screen, all others further down.
    drawn = drawings(None, [first])
    top, below = first_figure([first], drawn, tmp_path), "".join(item.html for item in figure_extra([first], drawn))
    assert (top is not None) == (kind == "strip") and ("<svg" in below) == (kind != "strip")
    assert top is None or (top.count("<svg") == 1 and '<a href="figures/strip.png">PNG</a>' in top)


def test_a_page_without_figure_files_has_no_section(world: World, tmp_path: Path) -> None:
    assert figure_extra(prepare(load_figures(tmp_path), world.campaign, world.results), {}) == []
    other = figure_world(tmp_path / "other", names=["again"])
    assert figure_extra(prepare(load_figures(other.experiments), other.campaign, None), {}) == []
