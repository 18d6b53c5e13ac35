"""What fits into a terminal of 80 columns, and what is said of the rest."""

from __future__ import annotations

import io

import pandas as pd
from rich.console import Console
from rich.table import Table

from fpl.cli.planning import print_table
from fpl.report import results

RUN = "synthetic_city-cpscutmix-fpl-tiny-1_16-s0-93e1fac5"


def terminal(width: int) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)


def test_a_run_id_is_never_cut_and_columns_go_from_the_right() -> None:
    frame = pd.DataFrame({"run_id": [RUN], "miou_whole_last": [9.38], "data.split.fraction": ["1/16"], "seed": [0]})
    console = terminal(80)
    # 50 + 6 + 9 letters, three for each column and one more: the last would need 7.
    assert results._fitting(frame, console) == ["run_id", "miou_whole_last", "data.split.fraction"]
    assert results._fitting(frame, terminal(60)) == ["run_id"]
    assert results._fitting(frame, terminal(20)) == ["run_id"]
    assert results._fitting(frame, terminal(200)) == list(frame)
    console.print(results._table(frame[results._fitting(frame, console)], folded=True))
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert RUN in printed and "9.38" in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_a_plan_that_is_too_wide_becomes_paragraphs(capsys) -> None:  # type: ignore[no-untyped-def]
    table = Table(show_footer=True)
    for name in ("study", *(f"column {number}" for number in range(12))):
        table.add_column(name, footer="all" if name == "study" else "7")
    table.add_row("table4.fpl_cps.t090", *map(str, range(12)))
    print_table(terminal(80), table)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    text = " ".join(" ".join(lines).split())
    assert text.startswith("table4.fpl_cps.t090: column 0 0, column 1 1,") and "all: column 0 7," in text
    print_table(terminal(300), table)
    header = capsys.readouterr().out.splitlines()[1]
    assert "column 11" in header
