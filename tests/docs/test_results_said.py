"""What README and docs say of the committed results, and the examples of docs/pandas.md, run as they stand there."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import fpl
from fpl.config.figure import OURS
from fpl.report.claims.check_claims import MARKS, Verdict, count_text
from fpl.report.tables.head_to_head import Duel, duels, duels_by_control
from fpl.report.tables.shown import load_shown

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    text = (DOCS / "pandas.md").read_text()
    block = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert block
    found: dict[str, Any] = {}
    with contextlib.chdir(ROOT):
        exec(block[1], found)
    return found


def test_examples_show_what_they_say(names: dict[str, Any]) -> None:
    per_class, miou, beside, cost = (names[name] for name in ("per_class", "miou", "beside", "cost"))
    assert list(per_class.columns) == ["cps", "fpl_cps"]
    assert "pole" in per_class.index and per_class.max().max() <= 100
    thresholds = [0.5, 0.75, 0.85, 0.9, 0.95, 0.99]
    assert list(miou.index) == thresholds == list(names["k_over_t"].columns)
    tables = pd.read_csv(ROOT / "results" / "mini" / "tables.csv")
    assert list(miou["mean"]) == pytest.approx(list(tables.query("table == 'table4'")["ours"]), abs=0.005)
    assert beside.loc["fpl_cps", ("printed", "r50_1_16")] == pytest.approx(69.71)
    cells, runs = names["cells"], names["runs"].set_index("run_id")
    cell = cells.query("table == 'table1' and row == 'fpl_cps' and column == 'r50_1_16'").iloc[0]
    assert beside.loc["fpl_cps", ("ours", "r50_1_16")] == runs.loc[cell["run_id"], "miou_whole_best"]
    # Like with like: on each network labels alone cost less than CPS.
    seconds = cost["median"].reset_index()
    network = ["data.dataset", "model.network", "model.tiny_depth"]
    least = seconds.groupby([*network, "method.name"])["median"].min().unstack().dropna(subset=["supervised", "cps"])
    assert len(least) == 4 and (least["supervised"] < least["cps"]).all()


def test_frames_fit_together(names: dict[str, Any]) -> None:
    runs, results = names["runs"], names["results"]
    for frame in (results.history, results.classes, results.fuzziness):
        assert set(frame["run_id"]) <= set(runs["run_id"])
    assert isinstance(results.failures, pd.DataFrame) and results.failures.empty


def test_claims_are_those_of_the_committed_results() -> None:
    text = (DOCS / "figures.md").read_text()
    head = re.search(r"^\| figure \| the paper says \| (.+) \|$", text, re.MULTILINE)
    assert head
    scales = [name.strip().lower() for name in head[1].split("|")]
    assert scales == ["mini", "camvid"]
    rows = re.findall(r"^\| (.+?) \| (.+?) ((?:\| [✓✗–≡] )+)\|$", text, re.MULTILINE)
    for column, scale in enumerate(scales):
        folder = {"mini": "mini", "camvid": "camvid_tables"}[scale]
        frame = pd.read_csv(ROOT / "results" / folder / "figures" / "claims.csv")
        frame = frame[frame["source"] != OURS]
        verdicts = [
            Verdict("", "", "", row.says, "", row.state, "", row.by_formula) for row in frame.itertuples(index=False)
        ]
        assert [row[0] for row in rows] == list(frame["number"])
        assert [row[1].replace("\\|", "|") for row in rows] == list(frame["says"])
        assert [row[2].split("|")[column + 1].strip() for row in rows] == [verdict.mark for verdict in verdicts]
        counts = count_text(verdicts).removeprefix("claims of the paper: ").replace(" (checked)", "")
        assert f"scale {scale} {counts}" in " ".join(text.split())


def test_what_this_suite_asks_is_answered_by_the_committed_runs() -> None:
    text = (DOCS / "figures.md").read_text()
    claims = [
        row
        for part, figure in (("mini_frameworks", "frameworks_gain"), ("mini_thresholds", "choices_gain"))
        for row in pd.read_csv(ROOT / "results" / part / "figures" / "claims.csv").itertuples()
        if row.figure == figure
    ]
    lines = []
    for row in claims:
        (gain,) = re.findall(r": (\S+ \(.+? to .+?, n = 3\));", row.numbers)
        lines.append(f"| {row.number} | {row.says} | {MARKS[row.state]} | {gain} |")
    assert text.rstrip().endswith("\n".join(lines)) and len(lines) == 7
    held = sum(row.state == "holds" for row in claims)
    assert f"must lie above 0. {held} found to hold, {len(claims) - held} not." in " ".join(text.split())
    said = f"(docs/figures.md), three seeds each, {held} hold and {len(claims) - held} do not"
    assert said in " ".join((ROOT / "README.md").read_text().split())
    soft = lines[-1].split(" | ")[-1].removesuffix(" |")
    assert f"it gives {soft} points on K = n - 1: no gain is shown." in (DOCS / "loss.md").read_text()
    drawn = ROOT / "results" / "mini_frameworks" / "figures" / "frameworks_gain.png"
    assert (DOCS / "frameworks.png").read_bytes() == drawn.read_bytes()


def test_searches_found_what_is_said_of_them() -> None:
    results = fpl.load_results(ROOT / "results" / "mini")
    said = " ".join((DOCS / "search.md").read_text().split())
    joint = results.search("joint")
    steps = int(joint["step"].max())
    taken, whole = int(joint["step"].sum()), steps * len(joint)
    paper = joint[joint["origin"].str.startswith("table")]["score"].max()
    best = joint.loc[joint["score"].where(joint["state"] == "complete").idxmax()]
    threshold = f"T = {best['loss.threshold']:.2f}, " if best["loss.threshold"] > 0 else ""
    setting = f"{threshold}{best['loss.strategy']}, {best['loss.weight']} weight"
    for words in (
        f"`joint`: {(joint['state'] == 'pruned').sum()} of {len(joint)} trials were stopped early",
        f"saved {100 * (1 - taken / whole):.0f} % of the training steps ({taken:,} of {whole:,} were taken)",
        f"the best setting ({setting}) has {best['score']:.2f} % mIoU",
        f"the best of the paper's {paper:.2f} %",
    ):
        assert words in said, words
    found = results.search("threshold")
    best_of = found.loc[found.groupby("data.split.fraction")["score"].idxmax()].set_index("data.split.fraction")
    order = [best_of.loc[fraction] for fraction in ("1/32", "1/16", "1/8")]
    values = [[f"{row[key]:.2f}" for row in order] for key in ("loss.threshold", "score")]
    words = "the best T is {}, {} and {} at 1/32, 1/16 and 1/8 labeled images ({}, {} and {} %)"
    assert words.format(*values[0], *values[1]) in said


NUMBER = r"(\S+) \((\S+) to (\S+); (\d+) : (\d+)\)"
ROWS = rf"^\| ([\w= ]+) \| {NUMBER} \| {NUMBER} \| {NUMBER} \|$"
SETS = ("synthetic_city", "synthetic_voc")


def test_the_head_line_of_the_readme_is_that_of_five_seeds() -> None:
    said = (ROOT / "README.md").read_text()
    results = fpl.load_results(ROOT / "results" / "mini_seeds")
    names = ["table1", "table2"]
    grids = load_shown(ROOT / "experiments", "mini", results, names, seeds=5, rows="all").grids
    found = {duel.opponent: duel for duel in (*duels(grids), *duels_by_control(grids))}
    rows = re.findall(ROWS, said, re.MULTILINE)
    assert len(rows) == 5
    for what, *numbers in rows:
        parts = [*(found[what].by_dataset[name] for name in SETS), found[what]]
        assert numbers == [text for duel in parts for text in shown(duel)], what
    gate = found["AEL without its confidence gate"]
    assert gate.by_dataset.keys() == {"synthetic_voc"}
    assert "({}, {} to {}; {} : {})".format(*shown(gate)) in flowing(said)
    half = found["half the unsupervised weight"]
    assert half.interval is not None and half.interval.high < 0
    assert all((one := duel.interval) is not None and one.low < 0 < one.high for duel in half.by_dataset.values())
    assert f"({len(results.runs)} runs, `results/mini_seeds`)" in flowing(said)
    counts = "sentences {} hold, {} do not, and {} hold by their formula"
    (held,) = re.findall(counts.format(*3 * [r"(\d+)"]), flowing(said))
    told = "at scale mini {} found to hold, {} not, {} by their formula"
    assert told.format(*held) in flowing((DOCS / "figures.md").read_text()).lower()


def shown(duel: Duel) -> list[str]:
    assert duel.interval is not None and duel.interval.n == 5 and duel.signs.ties == 0
    points = [f"{value:+.2f}" for value in (duel.mean, duel.interval.low, duel.interval.high)]
    return [*points, str(duel.signs.wins), str(duel.signs.losses)]


def flowing(text: str) -> str:
    return " ".join(text.split())


def test_all_tables_with_one_seed_are_those_of_the_committed_page() -> None:
    said = (DOCS / "start.md").read_text()
    tables = (ROOT / "results" / "mini" / "tables.md").read_text().replace("\\_", "_")
    rows = re.findall(ROWS, said, re.MULTILINE)
    assert len(rows) == 5
    for what, *numbers in rows:
        (line,) = [line for line in tables.splitlines() if line.startswith(f"- FPL against {what}: ")]
        *sets, (mean, low, high, wins, losses) = (numbers[5 * part : 5 * part + 5] for part in range(3))
        assert re.search(rf": {wins} wins?, {losses} loss(es)?, 0 ties", line)
        assert f"mean difference {mean} points (95 % interval {low} to {high} over" in line
        for name, (mean, low, high, wins, losses) in zip(SETS, sets, strict=True):
            words = rf"{name} \{mean} points \(\{low} to \{high}; {wins} wins?, {losses} loss(es)?, 0 ties\)"
            assert re.search(words, line), words
    (gate,) = [
        line for line in tables.splitlines() if line.startswith("- FPL against AEL without its confidence gate: ")
    ]
    found = re.search(
        r": (\d+) wins, (\d+) losses, .* difference (\S+) points \(95 % interval (\S+) to (\S+) over", gate
    )
    assert found
    wins, losses, mean, low, high = found.groups()
    assert f"({mean}, {low} to {high}; {wins} : {losses})" in said
    (runs,) = re.findall(r"Scale mini, (\d+) runs on drawn scenes", said)
    assert f"- {runs} of {runs} runs done" in tables
    assert f"({runs} runs)" in flowing((ROOT / "README.md").read_text())
