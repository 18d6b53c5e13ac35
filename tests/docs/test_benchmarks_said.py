"""Numbers of time and memory in docs/ are those of results/benchmarks."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SAID = " ".join(" ".join((DOCS / f"{name}.md").read_text().split()) for name in ("speed", "data", "search"))
README = " ".join((ROOT / "README.md").read_text().split())
PAGE_OF = {
    **dict.fromkeys(("loss", "loss_memory", "train_step", "diagnostics"), "speed"),
    **{"loader": "data", "search": "search", "proposals": "search", "chaos": "cluster", "nodes": "cluster"},
    **{"methods": "systems", "weights": "frameworks", "store": "runs", "object_storage": "cluster"},
}
# What follows the shape in the table of the loss -> input, opponent, implementation.
KINDS = {
    "": ("full", "vanilla", "cpu"),
    "enlarged and mixed (CutMix) inside": ("enlarged", "vanilla", "cpu"),
    "over a tensor transcription of the released algorithm": ("full", "released", "cpu"),
    "plain PyTorch, without a compiler": ("full", "vanilla", "tensor"),
}
LOSS_ROWS = [
    tuple(cell.strip() for cell in found)
    for found in re.findall(
        r"^\| (float32|bfloat16), (\S+x\d+)(?:: (.+?))? \|(.*?)\|(.*?)\|(.*?)\|.*\|$",
        (DOCS / "speed.md").read_text(),
        re.MULTILINE,
    )
]


def benchmark(name: str) -> pd.DataFrame:
    return pd.read_csv(ROOT / "results" / "benchmarks" / f"{name}.csv")


def test_the_table_of_the_loss_is_there() -> None:
    assert len(LOSS_ROWS) == 11 and {kind for _, _, kind, *_ in LOSS_ROWS} == set(KINDS)


@pytest.mark.parametrize("row", LOSS_ROWS, ids=lambda row: f"{row[0]} {row[1]} {row[2]}")
def test_times_of_the_loss(row: tuple[str, ...]) -> None:
    dtype, shape, kind, *cells = row
    wanted = dict(zip(("input", "against", "implementation"), KINDS[kind], strict=True))
    wanted |= {"measure": "time", "case": "fpl", "dtype": dtype, "shape": shape}
    frame = benchmark("loss")
    for name, value in wanted.items():
        frame = frame[frame[name] == value]
    digits = 3 if KINDS[kind][1] == "released" else 2
    for regime, cell in zip(("late", "early", "noise"), cells, strict=True):
        found = frame[frame["regime"] == regime]
        if not cell:
            assert found.empty
            continue
        (value,), (met,) = found["value"], found["met"]
        assert cell == f"{value:.{digits}f}" + (" (not met)" if met == "no" else "")


def test_the_range_that_readme_says() -> None:
    frame = benchmark("loss").query(
        "measure == 'time' and case == 'fpl' and dtype == 'float32' and input == 'full'"
        " and against == 'vanilla' and implementation == 'cpu'"
    )
    low, high = frame["value"].min(), frame["value"].max()
    assert f"takes {low:.2f} to {high:.2f} of the time" in README


def test_the_step_of_two_resnets() -> None:
    ratio = benchmark("train_step").set_index("step")["to_plain"]
    named = {"fpl": "FPL", "fpl + concatenate": "with `concatenate`", "fpl + channels_last": "with `channels_last`"}
    for step, words in named.items():
        assert f"{words} {ratio[step]:.2f}" in SAID
    assert f"takes {ratio['fpl + bf16']:.1f} times as long" in SAID


@pytest.mark.parametrize(("scales", "name"), [("choice", "the six published"), ("uniform", "uniform in 0.5-2")])
def test_speed_of_loading(scales: str, name: str) -> None:
    frame = benchmark("loader").query("scales == @scales").set_index("way")
    speed, times = frame["images_per_second"], frame["times_b"]["d"]
    cached = f"**{speed['d']:.0f}** ({times:g} x PIL + v2)"
    assert f"| {name} | {speed['a']:.1f} | {speed['b']:.1f} | {speed['c']:.1f} | {cached} |" in SAID


def test_every_benchmark_has_its_page() -> None:
    assert set(PAGE_OF) == {path.stem for path in (ROOT / "results" / "benchmarks").glob("*.csv")}


@pytest.mark.parametrize("name", PAGE_OF)
def test_the_commit_that_was_measured_is_said(name: str) -> None:
    assert benchmark(name)["commit"].iloc[0] in (DOCS / f"{PAGE_OF[name]}.md").read_text()


def test_what_searches_found() -> None:
    frame = benchmark("search")
    fresh = frame.groupby("sampler")["fresh_mean"].agg(["mean", "std", "size"])
    (own,) = frame[frame["sampler"].str.startswith("none")].to_dict("records")
    assert set(fresh.loc[["tpe", "random"], "size"]) == {3} and set(frame["trials"].dropna()) == {24}
    assert f"winners reach {fresh['mean']['tpe']:.2f} % with TPE" in SAID
    assert f"(standard deviation over the searches {fresh['std']['tpe']:.2f})" in SAID
    assert f"{fresh['mean']['random']:.2f} % with random search ({fresh['std']['random']:.2f})" in SAID
    assert f"setting {own['fresh_mean']:.2f} % (over its seeds {own['fresh_std']:.2f})" in SAID


def test_a_campaign_under_fire() -> None:
    told = benchmark("chaos").iloc[0]
    kinds = ["worker", "node", "control store", "command", "everything"]
    blows = int(told[kinds].sum())
    assert told["differ"] == told["trained_twice"] == 0
    done = f"{told['equal']} of {told['runs']} runs"
    where = "{} on a worker, {} on a node's raylet, {} on the control store, {} on the command, {} on everything"
    page = " ".join((DOCS / "cluster.md").read_text().split())
    assert f"{blows} blows ({where.format(*told[kinds])}); after {told['commands']} commands and" in page
    assert f"{told['minutes']} minutes {done} were done and equal to the last bit, 0 trained twice" in page
    assert f"{blows} blows, {done} done and equal to the last bit, 0 trained twice" in README


def test_what_a_proposal_takes() -> None:
    frame = benchmark("proposals").query("sampler == 'tpe'").set_index(["what", "trials"])["ms"]
    few, many, first, first_of_many = (
        frame[f"{what} proposal", trials] for what in ("next", "first") for trials in (500, 2000)
    )
    assert (
        f"Behind 500 trials TPE's next proposal takes {few} ms of one core, behind 2,000 trials {many} ms; the first "
        f"one of a process that has just begun {first} and {first_of_many} ms"
    ) in SAID
    # The goal.
    assert many <= 50
    assert f"behind 2,000 trials the next is proposed in {frame['next proposal', 2000]:.1f} ms" in README


def test_what_many_nodes_take() -> None:
    page, costs = (DOCS / "cluster.md").read_text(), []
    for nodes, frame in benchmark("nodes").groupby("nodes"):
        preflight, each, *runs = (float(takes.split(" ")[0]) for takes in frame["takes"])
        assert f"| {nodes} | {preflight} s | {each:.2f} s | {', '.join(map(str, runs))} ms |" in page
        # The goals: at most 20 ms (said where it is not so), and no more for later runs.
        assert max(runs[1:]) <= 20 and max(runs[1:]) <= runs[0]
        costs += runs
    few, many = benchmark("nodes")["nodes"].agg(["min", "max"])
    assert f"driver {min(costs)} to {max(costs)} ms of CPU ({few} to {many} simulated nodes, 1,000 runs)" in README


def test_what_ten_thousand_runs_take() -> None:
    frame = benchmark("store").set_index(["store", "command"])
    seconds, page = frame["seconds"], " ".join((DOCS / "runs.md").read_text().split())
    takes = seconds["compacted"]
    assert f"`fpl.load_results` takes {takes['load_results']:.2f} s, `fpl results` {takes['fpl results']:.2f} s" in page
    assert f"`fpl tables` {takes['fpl tables']:.2f} s and `fpl plan` {takes['fpl plan']:.2f} s" in page
    slowest, memory = seconds["50 newer"].max(), frame["peak_gb"]
    assert f"{slowest:.2f} s at most with 50 runs that are newer" in page
    single = seconds["file by file"]
    assert f"file by file it takes {single.min():.0f} to {single.max():.0f} s" in page
    assert f"compacting {takes['(compacting)']:.0f} s, once" in page
    peak = pd.to_numeric(memory[memory != "-"])[["compacted", "50 newer"]].max()
    assert f"with {peak:.2f} GB" in page
    assert f"history each are read in {takes['load_results']:.2f} s and {peak:.2f} GB" in README
    # The goals: three seconds and one GB.
    assert slowest <= 3 and peak <= 1


def test_what_was_killed_on_object_storage() -> None:
    found = benchmark("object_storage").set_index("what")["found"]
    page = " ".join((DOCS / "cluster.md").read_text().split())
    first, second, last = (found[f"machine {number}"].split()[2] for number in (1, 2, 3))
    assert f"killed with {first} run in the store, the next with {second}, the third ended with {last}" in page
    assert found["read by pandas on a fourth"].split(", ")[1] in page
    assert " and ".join(found["requests to the server"].rsplit(", ", 1)) in page
