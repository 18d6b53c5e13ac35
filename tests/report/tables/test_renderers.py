"""The same grid in every format: the right number in the right place, nothing unescaped, nothing broken."""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markupsafe import Markup

from fpl.report.page import Extra, page, write_tables
from fpl.report.tables.console import blocks, console_text
from fpl.report.tables.entry import Grid
from fpl.report.tables.grid import build_grids
from fpl.report.tables.latex import escape as latex_escape
from fpl.report.tables.latex import latex, latex_table
from fpl.report.tables.longform import longform
from fpl.report.tables.markdown import markdown
from fpl.report.tables.numbers import Shown, arrow_text, number_text, probability_text, show
from fpl.report.tables.remarks import legend
from fpl.report.tables.summary import Summary, summarize
from tests.report.world import MAIN, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path, "little")
    made.run("main.cps.small_16", 23.0)
    made.run("main.fpl_cps.small_16", 23.75)
    made.run("main.cps.small_8", 25.0)
    made.run("main.fpl_cps.small_8", 24.5)
    made.fail("main.cps.large_8", "ValueError: <b> & 50 % of_it")
    return made


@pytest.fixture
def grids(world: World) -> list[Grid]:
    return build_grids(world.campaign, world.results)


@pytest.fixture
def summary(world: World, grids: list[Grid]) -> Summary:
    return summarize(grids, world.results)


# What each row of the main table says, column by column, in every format that has lines in its cells.
EXPECTED = {
    "Mean_Teacher": [["cited 66.14"], ["cited 72.03"], ["-"]],
    "CPS": [["23.00", "paper 60.00"], ["25.00", "paper 65.00"], ["failed", "paper 66.00"]],
    "FPL+CPS": [
        ["23.75 ↑0.75 ✓", "paper 61.00 ↑1.00"],
        ["24.50 ↓0.50 ✗", "paper 65.50 ↑0.50"],
        ["not run", "paper 66.25 ↑0.25"],
    ],
    "FPL+AEL": [["pending", "paper 62.00 ↑0.10"], ["pending"], ["pending", "paper 67.00 ↑0.20"]],
    "supervised only": [["not run"], ["not run"], ["not run"]],
}


def test_markdown_cells(grids: list[Grid], summary: Summary) -> None:
    text = markdown(grids, summary)
    section = text.partition("## Table 1")[2].partition("## Table A4")[0]
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in section.splitlines() if line.startswith("|")]
    assert {len(row) for row in rows} == {4}
    assert [cell.strip() for cell in rows[0]] == ["", "Small 1/16", "Small 1/8", "Large 1/8"]
    found = {}
    for label, *cells in rows[2:]:
        name = re.sub(r"<sup>.*?</sup>|[*\\]", "", label).strip()
        found[name] = [re.sub(r"[*\\]", "", cell).strip().split("<br>") for cell in cells]
    assert found == EXPECTED
    assert "paper **61.00**" in section and "paper **65.50**" not in section
    assert r"Street scenes & 100 % of\_them \| made up" in text
    assert r"failed: ValueError: \<b\> & 50 % of\_it" in section
    assert r"splits: synthetic\_city every-nth." in section
    assert r"1. Printed by \<nobody\>." in section and "2. cited: tarvainen2017" in section


class Cells(HTMLParser):
    """Rows of all tables, cells as lists of lines; and whether the tags close in order."""

    VOID = ("meta", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[list[tuple[str, list[str]]]] = []
        self.links: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag not in self.VOID:
            self.open.append(tag)
        self.ids += [values["id"] or ""] if "id" in values else []
        self.links += [values[name] or "" for name in ("href", "src", "data", "srcset") if name in values]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append((values.get("class") or "", [""]))
        if tag == "div" and "tr" in self.open:
            self.rows[-1][-1][1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, (tag, self.open)

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.open) and "sup" not in self.open:
            self.rows[-1][-1][1][-1] += data


def test_page_is_whole_and_needs_nothing_else(grids: list[Grid], summary: Summary) -> None:
    extra = Extra("figures", "Figures & more", Markup("<p>drawn</p>"))
    text = page(grids, summary, "torch 2.9.0 <cpu>\nray 2.50", [extra])
    parser = Cells()
    parser.feed(text)
    parser.close()
    assert parser.open == []
    assert len(set(parser.ids)) == len(parser.ids)
    # Only links within the page, and all of them lead somewhere.
    assert parser.links and all(link.startswith("#") and link[1:] in parser.ids for link in parser.links)
    assert not re.search(r"https?:|//|url\(|@import|<script|<link|<img|\son\w+=", text)
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in text
    assert "prefers-color-scheme: dark" in text
    # The main table once more on the first screen.
    assert text.count("<table>") == text.count('<div class="scroll"') == 5
    assert "torch 2.9.0 &lt;cpu&gt;\nray 2.50" in text and "Figures &amp; more" in text
    assert "Street scenes &amp; 100 % of_them | made up" in text
    assert "4 of 9 runs done, 1 failed; 3:20 of training in total; 3 cells pending" in text
    assert "1 win, 1 loss, 0 ties" in text
    assert "Scale little: its numbers do not measure" in text and "They cannot show gains in mIoU" in text


def test_the_first_screen(grids: list[Grid], summary: Summary) -> None:
    picture = Markup('<figure id="method">drawn</figure>')
    text = page(grids, summary, picture=picture)
    first, _, rest = text.partition('<div class="scale">')
    verdict = (
        "At scale little FPL beats its baseline in 1 of 2 comparisons (mean difference +0.12 points); "
        "no number of this scale measures what the paper&#39;s do."
    )
    places = [first.index(part) for part in ("<h1>", verdict, str(picture), '<a href="#main">', "<table>")]
    assert places == sorted(places) and "<table>" in rest and picture not in rest
    parser = Cells()
    parser.feed(first)
    # FPL and its baselines, as they stand below: nothing cited, no control, no note.
    body = {"".join(row[0][1]): [list(filter(None, lines)) for _, lines in row[1:]] for row in parser.rows[2:]}
    assert body == {name: EXPECTED[name] for name in ("CPS", "FPL+CPS", "FPL+AEL")}
    assert "<sup>" not in first
    # One table alone is not shown twice, and without runs there is nothing to say.
    alone = page(grids[:1], summarize(grids[:1], None))
    assert alone.count("<table>") == 1


def test_without_runs_the_verdict_says_so(tmp_path: Path) -> None:
    world = World(tmp_path, "little")
    assert summarize(build_grids(world.campaign, None), None).verdict == (
        "No comparison of FPL is measured yet at scale little."
    )


def test_page_cells(grids: list[Grid], summary: Summary) -> None:
    parser = Cells()
    parser.feed(page(grids[:1], summary))
    body = parser.rows[2:]
    found = {"".join(row[0][1]): [list(filter(None, lines)) for _, lines in row[1:]] for row in body}
    dashes = {label: [["-"] if lines == ["–"] else lines for lines in cells] for label, cells in found.items()}
    assert dashes == EXPECTED
    states = {"".join(row[0][1]): [kind for kind, _ in row[1:]] for row in body}
    assert states["Mean_Teacher"] == ["cited", "cited", "dash"]
    assert states["CPS"] == ["measured", "measured", "failed"]
    assert states["FPL+AEL"] == ["pending"] * 3
    # Cited and measured numbers never look alike.
    assert "td.cited" in page(grids[:1], summary)


def test_latex_structure(grids: list[Grid]) -> None:
    text = latex(grids)
    opened: list[str] = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if kind == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert opened == []
    assert text.count(r"\begin{table}") == text.count(r"\toprule") == text.count(r"\bottomrule") == 4
    assert text.isascii() or set(re.findall(r"[^\x00-\x7f]", text)) <= set("àéöü")
    plain = re.sub(r"\\[\\{}$&#%_]", "", text)
    assert plain.count("{") == plain.count("}") and plain.count("$") % 2 == 0
    for body, columns in re.findall(r"\\begin\{tabular\}\{@\{\}(l+)@\{\}\}(.*?)\\end\{tabular\}", text, re.S):
        for row in re.findall(r"^(.*?)\s*\\\\(?:\[2pt\])?$", columns, re.M):
            ampersands = len(re.findall(r"(?<!\\)&", row))
            spanned = sum(int(count) - 1 for count in re.findall(r"\\multicolumn\{(\d+)\}", row))
            assert ampersands + spanned == len(body) - 1, row


def test_latex_cells_and_escapes(grids: list[Grid]) -> None:
    text = latex(grids[:1])
    assert r"\textit{Mean\_Teacher\textsuperscript{2}} & \textit{66.14} & \textit{72.03} & -- \\" in text
    assert (
        r"FPL+CPS\textsuperscript{3} & 23.75 $\uparrow$0.75 $\checkmark$ & 24.50 $\downarrow$0.50 $\times$ & not run"
        in text
    )
    assert r"\quad paper & \textbf{61.00} $\uparrow$1.00 & 65.50 $\uparrow$0.50 & 66.25 $\uparrow$0.25 \\[2pt]" in text
    assert r"FPL+AEL & pending & pending & pending \\" in text
    assert r"Street scenes \& 100 \% of\_them $|$ made up (the paper's Table 1)" in text
    assert r"failed: ValueError: $<$b$>$ \& 50 \% of\_it" in text
    assert latex_escape("a\\b{c}$^~#<é≥漢") == (
        r"a\textbackslash{}b\{c\}\$\textasciicircum{}\textasciitilde{}\#$<$é$\geq$?"
    )


def test_csv_is_long_and_complete(world: World, grids: list[Grid]) -> None:
    rows = list(csv.DictReader(io.StringIO(longform(grids))))
    fields = ["table", "row", "column", "printed", "ours", "std", "n", "wanted", "difference"]
    fields += ["arrow_printed", "arrow_ours", "arrow_low", "arrow_high", "arrow_n", "verdict", "reason", "run_ids"]
    assert list(rows[0]) == fields
    assert len(rows) == 5 * 3 + 2 + 3 + 2
    by_name = {(row["table"], row["row"], row["column"]): row for row in rows}
    fpl = by_name["main", "fpl_cps", "small_16"]
    assert fpl == {
        "table": "main",
        "row": "fpl_cps",
        "column": "small_16",
        "printed": "61",
        "ours": "23.75",
        "std": "",
        "n": "1",
        "wanted": "1",
        "difference": "-37.25",
        "arrow_printed": "1",
        "arrow_ours": "0.75",
        "arrow_low": "",
        "arrow_high": "",
        "arrow_n": "1",
        "verdict": "same sign as the paper",
        "reason": "",
        "run_ids": grids[0].lines[2].entries[0].runs[0],
    }
    assert fpl["run_ids"] in set(world.results.runs["run_id"])
    failed = by_name["main", "cps", "large_8"]
    assert (failed["ours"], failed["n"], failed["wanted"]) == ("", "0", "1")
    assert failed["verdict"] == f"not run: {failed['reason']}"
    assert failed["reason"] == "failed: ValueError: <b> & 50 % of_it (logs/main.cps.large_8.txt)"
    # A cited number is never ours.
    assert by_name["main", "teacher", "small_16"]["ours"] == ""
    setting = by_name["settings", "t", "z"]
    assert (setting["ours"], setting["n"], setting["verdict"]) == ("0.85", "0", "another T")


def test_a_cited_system_that_is_run_has_its_number_marked_beside_ours(tmp_path: Path) -> None:
    cited = 'role = "cited"\n'
    edit = {"tables/main.toml": (cited, cited + 'recipe = "cps"\nset = { method = { weight = 3.0 } }\n')}
    world = World(tmp_path, "little", edit)
    world.run("main.teacher.small_16", 21.0)
    grids = build_grids(world.campaign, world.results)
    expected = [["21.00", "cited 66.14"], ["not run", "cited 72.03"], ["-"]]
    assert [entry.state for entry in grids[0].lines[0].entries] == ["measured", "missing", "dash"]
    text = console_text(grids, None, 120)
    (label, *_) = (number for number, line in enumerate(text.splitlines()) if "Mean_Teacher" in line)
    first, second = text.splitlines()[label : label + 2]
    assert first.split()[-4:] == ["21.00", "not", "run", "-"] and second.split() == ["cited", "66.14", "cited", "72.03"]
    (row,) = (line for line in markdown(grids).splitlines() if line.startswith("|") and "Mean\\_Teacher" in line)
    assert [cell.strip() for cell in row.split("|")[2:5]] == ["21.00<br>*cited 66.14*", "not run<br>*cited 72.03*", "-"]
    assert expected[0][1] in page(grids[:1], summarize(grids, world.results)).replace('<div class="paper">', "")
    lines = latex(grids).splitlines()
    (number,) = (place for place, line in enumerate(lines) if r"Mean\_Teacher" in line and "&" in line)
    assert "21.00 & not run & --" in lines[number] and "\\quad cited" in lines[number + 1]
    assert r"\textit{66.14} & \textit{72.03}" in lines[number + 1]
    # No part of what FPL is compared with.
    assert not any("Mean_Teacher" in duel.line for duel in summarize(grids, world.results).duels)


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_terminal_fits_its_width(grids: list[Grid], summary: Summary, width: int) -> None:
    text = console_text(grids, summary, width)
    assert max(len(line) for line in text.splitlines()) <= width
    for cells in EXPECTED.values():
        for line in (line for lines in cells for line in lines):
            assert line in text
    assert text.count("paper 66.25") == 1


def test_terminal_blocks_are_even_and_keep_groups(tmp_path: Path) -> None:
    columns = "".join(
        f'[[columns]]\nkey = "{group}{number}"\nheader = "{number}"\ngroup = "{group}"\n'
        for group in "ab"
        for number in range(4)
    )
    many = f"""
[table]
recipe = "cps"
name = "main"
number = "1"
caption = "wide"
dataset = "city"
{columns}
[[rows]]
key = "cps"
label = "CPS"
role = "baseline"
values = [1, 2, 3, 4, 5, 6, 7, 8]
"""
    world = World(tmp_path, "little", {"tables/main.toml": (MAIN, many)}, names=["main"])
    grid = build_grids(world.campaign, None)[0]
    # Labels take 12, each cell "paper 1.00" 10 and a gap of 2, the edges 4.
    assert blocks(grid, 200) == [range(8)]
    assert blocks(grid, 12 + 4 + 12 * 4) == [range(4), range(4, 8)]
    # Three would fit: two and two look better than three and one.
    assert blocks(grid, 12 + 4 + 12 * 3) == [range(2), range(2, 4), range(4, 6), range(6, 8)]
    assert blocks(grid, 10) == [range(number, number + 1) for number in range(8)]


def test_partial_means_are_marked_in_every_format(tmp_path: Path) -> None:
    world = World(tmp_path, "full", names=["main.cps.small_16"])
    world.run("main.cps.small_16", 60.0, 0)
    world.run("main.cps.small_16", 60.5, 2)
    grids = build_grids(world.campaign, world.results)
    summary = summarize(grids, world.results)
    for text in (console_text(grids), markdown(grids), latex(grids), page(grids, summary)):
        assert "2 of 3 seeds" in text and "60.25" in text
        assert "fewer than 3 seeds" in text
    # 60 and 60.5: one more run would be within 12.7 * 0.3536 * 1.22 = 5.5 of 60.25.
    assert "60.25 ±0.35 ≈*" in console_text(grids)
    assert legend(grids) == ["≈ within noise of the paper's number", "* provisional: fewer than 3 seeds"]
    assert "≈\\*" in markdown(grids)


def test_files_are_written(tmp_path: Path, grids: list[Grid], summary: Summary) -> None:
    written = write_tables(tmp_path / "report", grids, summary)
    names = [path.relative_to(tmp_path / "report").as_posix() for path in written]
    assert names == ["tables.md", "tables.tex", "tables.csv", *(f"tables/{grid.name}.tex" for grid in grids)]
    assert written[0].read_text() == markdown(grids, summary)


def test_latex_has_a_fragment_per_table(tmp_path: Path, grids: list[Grid], summary: Summary) -> None:
    write_tables(tmp_path, grids, summary)
    document = (tmp_path / "tables.tex").read_text()
    for grid in grids:
        assert document.count(f"\\input{{tables/{grid.name}}}") == 1
        document = document.replace(f"\\input{{tables/{grid.name}}}", latex_table(grid))
        fragment = (tmp_path / "tables" / f"{grid.name}.tex").read_text()
        assert fragment.startswith(r"\begin{table}") and fragment.endswith("\\end{table}\n")
        assert "documentclass" not in fragment and fragment.count(r"\begin{table}") == 1
    # With its tables put in, it is what `fpl tables --format tex` prints.
    assert document == latex(grids) and r"\usepackage{lmodern}" in document
    # A table that is no longer shown leaves nothing behind.
    write_tables(tmp_path, grids[:1], summary)
    assert [path.name for path in (tmp_path / "tables").iterdir()] == [f"{grids[0].name}.tex"]


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX here")
def test_latex_compiles_with_outlines_for_fonts(tmp_path: Path, grids: list[Grid], summary: Summary) -> None:
    write_tables(tmp_path, grids, summary)
    packages = r"\usepackage{booktabs,amssymb}"
    one = rf"\documentclass{{article}}{packages}\begin{{document}}\input{{tables/{grids[0].name}}}\end{{document}}"
    (tmp_path / "one.tex").write_text(one)
    for name in ("tables", "one"):
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", f"{name}.tex"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:]
    # Bitmap fonts are of type 3.
    assert b"/Type3" not in (tmp_path / "tables.pdf").read_bytes()
    log = (tmp_path / "tables.log").read_text()
    assert "lmr10" in log or "lmodern" in log


def test_number_texts() -> None:
    assert number_text(23.456, "miou") == "23.46"
    assert [number_text(value, "seconds_per_epoch") for value in (730.2, 12.34, 0.567)] == ["730", "12.3", "0.57"]
    assert number_text(0.9, "threshold") == "0.9"
    assert [arrow_text(value, "miou") for value in (0.516, -0.25, 0.0)] == ["↑0.52", "↓0.25", "→0"]
    assert [probability_text(value) for value in (0.0703125, 1.0, 7.46e-9)] == ["0.07", "1", "7.5e-09"]
    assert Shown().lines == ["-"]


def test_more_points_are_better_and_more_seconds_are_not(grids: list[Grid]) -> None:
    entry = next(entry for grid in grids for entry in grid.every.values() if entry.arrow)
    assert show(entry).way == ("up" if (entry.arrow or 0.0) > 0 else "down")
    table = entry.cell.experiment.table.model_copy(update={"metric": "seconds_per_epoch"})
    experiment = entry.cell.experiment.model_copy(update={"table": table})
    seconds = show(replace(entry, cell=replace(entry.cell, experiment=experiment)))
    assert seconds.arrow[0] == show(entry).arrow[0] and seconds.way == ""
