"""Figure files: what they say, what is refused, and that each series of the paper's figures names cells."""

from __future__ import annotations

from pathlib import Path

import pytest

from fpl.config.campaign import load_campaign
from fpl.config.figure import load_figures
from fpl.errors import FplError
from fpl.report.figures.kinds import check_options
from fpl.report.figures.series import find_series
from fpl.store.lookup import Lookup

EXPERIMENTS = Path(__file__).parents[2] / "experiments"

TEXT = """
[about]
order = 2
source = "section 1"
[figure]
name = "second"
number = "Figure 2"
caption = "Seen."
kind = "lines"
[[figure.options.panels]]
axis = "K"
quantities = ["mean_k"]
[[series]]
label = "FPL"
cells = "table4.fpl_cps.t090"
[[claims]]
name = "small"
says = "It is small."
source = "section 1"
check = "compare"
options = { quantity = "mean_k" }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    figures = tmp_path / "figures"
    figures.mkdir()
    (figures / "a_second.toml").write_text(TEXT)
    first = TEXT.replace("order = 2", "order = 1.5").replace('"second"', '"first"')
    (figures / "b_first.toml").write_text(first)
    return tmp_path


def test_a_file_is_read_as_it_stands(folder: Path) -> None:
    (figure,) = load_figures(folder, ["second"])
    assert (figure.name, figure.figure.number, figure.about.order) == ("second", "Figure 2", 2)
    assert [(series.label, series.cells) for series in figure.series] == [("FPL", "table4.fpl_cps.t090")]
    assert [(claim.name, claim.options) for claim in figure.claims] == [("small", {"quantity": "mean_k"})]
    assert not figure.figure.examples


def test_figures_come_in_the_order_of_the_paper(folder: Path) -> None:
    assert [figure.name for figure in load_figures(folder)] == ["first", "second"]
    assert [figure.name for figure in load_figures(folder, ["second", "first"])] == ["first", "second"]


def test_a_folder_without_figures_has_none(tmp_path: Path) -> None:
    assert load_figures(tmp_path) == []


def test_an_unknown_name_lists_those_there_are(folder: Path) -> None:
    with pytest.raises(FplError, match="no figure 'fist'") as caught:
        load_figures(folder, ["first", "fist"])
    assert caught.value.hint == "did you mean first? there are: first, second"


def test_two_figures_of_one_name_are_refused(folder: Path) -> None:
    (folder / "figures" / "c.toml").write_text(TEXT)
    with pytest.raises(FplError, match="figure 'second' is in two files") as caught:
        load_figures(folder)
    assert caught.value.hint.endswith("a_second.toml")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("caption =", "capton =", "figure: unknown key capton\n  -> did you mean caption? known here: name, number, "),
        ("order = 2", 'order = "b"', "about: order: Input should be a valid number"),
        ("[[series]]", "[[serie]]", "unknown key serie\n  -> did you mean series? known here: about, figure, series"),
        ("label = ", "lable = ", "series table4.fpl_cps.t090: unknown key lable\n  -> did you mean label?"),
        ('cells = "table4.fpl_cps.t090"\n', "", "series 1: cells: Field required"),
        ('says = "It is small."\n', "", "claim small: says: Field required"),
        ('name = "second"', 'name = "Second One"', "figure: name: 'Second One' is no name: 1 to 100 letters"),
    ],
)
def test_what_is_wrong_is_named(folder: Path, old: str, new: str, expected: str) -> None:
    path = folder / "figures" / "a_second.toml"
    assert old in TEXT
    path.write_text(TEXT.replace(old, new))
    with pytest.raises(FplError) as caught:
        load_figures(folder)
    assert caught.value.message.startswith(f"{path}: {expected}")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('kind = "lines"', 'kind = "line"', "no kind 'line'\n  -> did you mean lines?"),
        ('"mean_k"]', '"mean_q"]', "no quantity 'mean_q'\n  -> did you mean mean_k?"),
        ("[[figure.options.panels]]", "[[figure.options.panel]]", "unknown option panel\n  -> did you mean panels?"),
        ('axis = "K"\n', "", "a panel needs axis"),
        ('axis = "K"\n', 'axis = "K"\nlimit = [0, 1]\n', "unknown key limit of a panel\n  -> did you mean limits?"),
    ],
)
def test_options_that_a_kind_does_not_know_are_refused(folder: Path, old: str, new: str, expected: str) -> None:
    assert old in TEXT
    (folder / "figures" / "a_second.toml").write_text(TEXT.replace(old, new))
    with pytest.raises(FplError) as caught:
        check_options(load_figures(folder, ["second"])[0])
    assert caught.value.message.startswith(f"figure second: {expected}")


def test_a_kind_says_what_it_lacks(folder: Path) -> None:
    text = TEXT.replace('[[figure.options.panels]]\naxis = "K"\nquantities = ["mean_k"]\n', "")
    (folder / "figures" / "a_second.toml").write_text(text)
    with pytest.raises(FplError, match="kind lines needs the option panels"):
        check_options(load_figures(folder, ["second"])[0])


def test_every_figure_of_the_paper_is_there() -> None:
    names = [figure.name for figure in load_figures(EXPERIMENTS)]
    expected = ["figure_3a", "figure_3b", "figure_4", "table_4_curve", "figure_5a", "figure_5b", "table_5_curve"]
    appendix = [f"figure_a{number}" for number in range(1, 9)]
    assert names == ["method", *expected, "figure_6", *appendix, "length_curve", "frameworks_gain", "choices_gain"]
    for figure in load_figures(EXPERIMENTS):
        check_options(figure)


@pytest.mark.parametrize("scale", ["mini", "camvid", "paper"])
def test_every_series_of_the_paper_has_runs_at_every_scale(scale: str) -> None:
    campaign = load_campaign(EXPERIMENTS, scale)
    # The figures of tables of ours have runs where their rows are asked for.
    ours = load_figures(EXPERIMENTS, ["length_curve", "frameworks_gain", "choices_gain"])
    asked = load_campaign(EXPERIMENTS, scale, rows="all")
    assert all(not find_series(figure, campaign, Lookup()) for figure in ours)
    assert [len(find_series(figure, asked, Lookup())) for figure in ours] == [15, 13, 10]
    for figure in (figure for figure in load_figures(EXPERIMENTS) if figure not in ours):
        found = find_series(figure, campaign, Lookup())
        for series in figure.series:
            one = figure.model_copy(update={"series": (series,)})
            cells = [item.cell for item in find_series(one, campaign, Lookup())]
            assert cells, (figure.name, series.cells)
            assert all(cell.configs for cell in cells)
        labels = [item.label for item in found if item.cell.configs[0].loss.kind == "fpl"]
        if figure.figure.kind == "lines":
            assert len(set(labels)) == len(labels), figure.name
        # Pictures and diagnostics are of runs with a pixel loss.
        assert all(item.cell.configs[0].method.name == "cps" for item in found)


def test_figure_4_has_a_curve_per_t() -> None:
    campaign = load_campaign(EXPERIMENTS, "mini", ["table4"])
    (figure,) = load_figures(EXPERIMENTS, ["figure_4"])
    found = find_series(figure, campaign, Lookup())
    assert [item.label for item in found] == [
        f"T = {value}" for value in ("0.5", "0.75", "0.85", "0.9", "0.95", "0.99")
    ]
    assert [item.cell.configs[0].loss.threshold for item in found] == [0.5, 0.75, 0.85, 0.9, 0.95, 0.99]
