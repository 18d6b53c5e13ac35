"""What is committed under results/ is of one commit and one arithmetic, and agrees with itself: nothing is trained."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from fpl.cli.rehearse import report
from fpl.config.figure import load_figures
from fpl.config.identity import ARITHMETIC
from fpl.report.claims.check_claims import scale_note, write_claims
from fpl.report.figures.export import FOLDER, numbers_csv, prepare
from fpl.report.page import write_tables
from fpl.report.tables.shown import load_shown
from fpl.store.read import Results, load_results
from fpl.sweep.rehearsal.rows import DONE, read
from fpl.sweep.rehearsal.whole import load_cells

ROOT = Path(__file__).parents[1]
RESULTS, EXPERIMENTS = ROOT / "results", ROOT / "experiments"
SCALES = sorted(path.name for path in RESULTS.iterdir() if (path / "runs").is_dir() and (path / "ENVIRONMENT").exists())
BENCHMARKS = sorted((RESULTS / "benchmarks").glob("*.csv"))


@pytest.fixture(scope="module", params=SCALES)
def results(request: pytest.FixtureRequest) -> Results:
    return load_results(RESULTS / request.param)


def scale_of(results: Results) -> str:
    """`camvid_tables` is of scale camvid."""
    return results.folder.name.partition("_")[0]


def environment(folder: Path) -> dict[str, str]:
    lines = (folder / "ENVIRONMENT").read_text().splitlines()
    return dict(line.split(": ", 1) for line in lines)


def test_there_is_evidence() -> None:
    assert "mini" in SCALES


def test_runs_are_of_one_commit_and_this_arithmetic(results: Results) -> None:
    runs, told = results.runs, environment(results.folder)
    assert results.of_other_arithmetic == []
    assert runs["commit"].nunique() == 1 and not runs["commit"].str.endswith("+").any()
    assert told["commit"] == runs["commit"].iloc[0]
    assert told["arithmetic"] == str(ARITHMETIC)
    assert set(results.noise["run_id"]) <= set(runs["run_id"])
    assert results.failures.empty


def test_nothing_published_names_somebodys_folders(results: Results) -> None:
    for path in (results.folder / "ENVIRONMENT", *results.folder.rglob("*.html"), *results.folder.rglob("*.md")):
        if path.exists():
            assert not re.search(r"(?<![\w.<])/(?:work|home|root|tmp|Users|mnt)/", path.read_text()), path


def test_searches_are_of_this_arithmetic_and_agree_with_the_runs(results: Results) -> None:
    for base in results.studies["base"]:
        assert json.loads(base)["arithmetic"] == ARITHMETIC
    assert results.warnings() == []


def test_k_falls_in_training_at_scale_mini() -> None:
    """The trend that the scale is said to show: from the first quarter of a run to the last."""
    results = load_results(RESULTS / "mini")
    runs = results.runs.query("`loss.kind` == 'fpl' and `loss.strategy` == 'n-1' and `loss.fidelity` == 'paper'")
    found = results.fuzziness.merge(runs[["run_id", "train.steps"]], on="run_id")
    share = found["step"] / found["train.steps"]
    first, last = (
        found[part].groupby("run_id")[["mean_k", "share_k1"]].mean() for part in (share <= 0.25, share > 0.75)
    )
    both = first.merge(last, on="run_id", suffixes=("_first", "_last")).dropna()
    # Behind a gate of T or more K is 1 from the beginning; U2PL begins with labels alone.
    both = both[both["share_k1_first"] < 1]
    assert (len(first), len(last), len(both)) == (92, 94, 90)
    assert (both["mean_k_last"] < both["mean_k_first"]).sum() == 90
    assert (both["share_k1_last"] > both["share_k1_first"]).sum() >= 88


def test_tables_are_those_of_the_runs(results: Results, tmp_path: Path) -> None:
    if not (results.folder / "tables.csv").exists():
        pytest.skip("no tables of a few runs are published")
    shown = load_shown(EXPERIMENTS, scale_of(results), results)
    # A row of ours without results is counted in a note, and in nothing else: one that was added since may lack there.
    whole, bare = (tmp_path / name for name in ("whole", "bare"))
    written = write_tables(whole, shown.grids, shown.summary)
    write_tables(bare, shown.grids, replace(shown.summary, notes=()))
    for name in (path.relative_to(whole) for path in written):
        found = (results.folder / name).read_bytes()
        assert found in ((whole / name).read_bytes(), (bare / name).read_bytes()), name


def test_figures_and_claims_are_those_of_the_runs(results: Results, tmp_path: Path) -> None:
    folder = results.folder / FOLDER
    campaign = load_shown(EXPERIMENTS, scale_of(results), results).campaign
    prepared = prepare(load_figures(EXPERIMENTS), campaign, results)
    drawn = {item.figure.name: numbers_csv(item.frame) for item in prepared if item.paint is not None}
    assert {path.stem for path in folder.glob("*.csv")} - {"claims"} == set(drawn)
    for name, content in drawn.items():
        assert content == (folder / f"{name}.csv").read_bytes(), name
        assert (folder / f"{name}.png").is_file() and (folder / f"{name}.pdf").is_file()
    write_claims(tmp_path, [one for item in prepared for one in item.verdicts], scale_note(campaign))
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (folder / path.name).read_bytes(), path.name


def test_the_picture_of_the_readme_is_that_of_the_runs() -> None:
    assert (ROOT / "docs" / "method.png").read_bytes() == (RESULTS / "mini" / FOLDER / "method.png").read_bytes()


def test_pages_of_searches_are_those_of_the_trials() -> None:
    results = load_results(RESULTS / "mini")
    assert set(results.searches) == {"joint", "threshold"}
    for name in results.searches:
        folder = results.folder / "search" / name
        trials = pd.read_csv(folder / "trials.csv")
        recorded = results.search(name)
        assert len(trials) == len(recorded)
        assert list(trials["score"].dropna()) == pytest.approx(list(recorded["score"].dropna()), rel=1e-9)


def test_the_rehearsal_says_what_its_rows_do() -> None:
    folder = RESULTS / "rehearsal"
    rows = read(folder)
    assert (folder / "rehearsal.txt").read_text() == "\n".join(report(rows)) + "\n"
    assert len({row.commit for row in rows}) == 1 and "+" not in rows[0].commit
    cells = {cell.name for cell in load_cells(EXPERIMENTS, "paper", [], []).all_cells if cell.configs}
    assert {row.cell for row in rows} == cells and [row.state for row in rows] == [DONE] * len(rows)
    for path in folder.iterdir():
        assert not re.search(rb"(?<![\w.<])/(?:work|home|root|tmp|Users|mnt)/", path.read_bytes()), path


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_benchmarks_say_what_they_are_of(path: Path) -> None:
    """They measure time, not results: each may be of another commit, for which tests/docs looks in a page."""
    frame = pd.read_csv(path, dtype=str)
    assert frame["commit"].nunique() == frame["arithmetic"].nunique() == 1
    assert frame["commit"].notna().all() and frame["arithmetic"].notna().all()
