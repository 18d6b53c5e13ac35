"""Text from Parquet that would be HTML, a path, a formula, LaTeX or a command to a terminal: it stays text."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fpl.config.search import Parameter
from fpl.report.page import page, write_tables
from fpl.report.search.search_page import write_search_pages
from fpl.report.search.words import search_summary_lines
from fpl.report.spreadsheet import csv_bytes
from fpl.report.tables.console import console_text
from fpl.report.tables.grid import build_grids
from fpl.report.tables.latex import escape as latex_escape
from fpl.report.tables.markdown import escape as markdown_escape
from fpl.report.tables.summary import summarize
from fpl.store.columns import SCHEMAS
from fpl.store.parts import files_of
from fpl.store.read import Results
from fpl.store.schema import KEYS
from fpl.store.write import write_table
from fpl.text import printable
from tests.report.world import World
from tests.report.world_search import T_ONLY, study, trial

HOSTILE = (
    '"><img src=x onerror=alert(1)>',
    "../../outside",
    "=cmd|' /C calc'!A0",
    "\x1b]0;owned\x07\x1b[2J[red]x[/red]",
    "$\\frac{$ \\input{/etc/passwd}\n\n\\end{document} & % _",
    "\u202eabc\ud7ff",
)


class Tags(HTMLParser):
    """Names of all tags with their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {tag} | {f"{tag} {name}" for name, _ in attrs}


def tags(folder: Path) -> set[str]:
    parser = Tags()
    for path in folder.rglob("*.html"):
        parser.feed(path.read_text())
    return parser.found


def searched(out: Path) -> Path:
    # Nothing of it is drawn, which would take most of the time.
    study(out, space=[Parameter(key="loss.fixed_k", low=1, high=4)])
    trial(out, 0, {"loss.fixed_k": 1}, 40.0)
    trial(out, 1, {"loss.fixed_k": 2}, state="failed", reason="lost")
    write_table(out / "failures" / "f.parquet", "failures", [{"run_id": "f", "recipe": "f", "reason": "r", "log": "l"}])
    return out


def injections(out: Path, tables: Iterable[str] = SCHEMAS) -> Iterator[tuple[str, Path, pa.Table]]:
    """Every text column of every file with hostile text: columns that may hold anything together, the others singly."""
    for table in tables:
        texts = [field.name for field in SCHEMAS[table] if pa.types.is_string(field.type)]
        free = [name for name in texts if name not in KEYS[table] or name in ("caption", "cell", "scale", "stop")]
        strict = [[name] for name in texts if name not in free]
        for path in (out / table / name for name in files_of(out, table)):
            whole = pq.read_table(path)
            tried = [(free, text) for text in HOSTILE if free]
            tried += [(names, HOSTILE[number % len(HOSTILE)]) for number, names in enumerate(strict)]
            for names, text in tried:
                changed = whole
                for name in names:
                    column = pa.array([text] * len(whole))
                    changed = changed.set_column(changed.schema.get_field_index(name), name, column)
                yield f"{table}.{', '.join(names)}: {text!r}", path, changed


@pytest.mark.parametrize("table", ["failures", "studies", "trials"])
def test_no_text_of_a_search_is_more_than_text(tmp_path: Path, table: str) -> None:
    out = searched(tmp_path / "in" / "deep")
    write_search_pages(out)
    ours = tags(out)
    for name, path, changed in injections(out, [table]):
        before = path.read_bytes()
        pq.write_table(changed, path)
        write_search_pages(out)
        results = Results(out)
        said = [line for each in results.searches for line in search_summary_lines(results, each)]
        said += results.warnings()
        assert tags(out) <= ours, name
        # No command to a terminal, and no file outside.
        written = "\n".join([*said, *(file.read_text() for file in out.rglob("*.csv"))])
        assert "\x1b" not in written and "\u202e" not in written and printable(written) == written, name
        assert [file.name for file in (tmp_path / "in").iterdir()] == ["deep"], name
        assert {file.name for file in tmp_path.iterdir()} == {"in"}, name
        cells = [cell for file in out.rglob("*.csv") for row in csv.reader(file.open(newline="")) for cell in row]
        assert not [cell for cell in cells if cell.startswith(("=", "+", "@"))], name
        path.write_bytes(before)


@pytest.mark.parametrize("table", ["runs", "failures", "noise"])
def test_no_text_of_a_table_is_more_than_text(tmp_path: Path, table: str) -> None:
    world = World(tmp_path, "little")
    world.run("main.cps.small_16", 23.0)
    world.run("main.fpl_cps.small_16", 23.75, warnings=["w"])
    world.fail("main.cps.large_8", "ValueError")
    world.repeat(world.cell("main.cps.small_8").recipes[0], {0: 20.0, 1: 21.0})

    def shown() -> str:
        grids = build_grids(world.campaign, world.results)
        summary = summarize(grids, world.results)
        write_tables(world.out, grids, summary)
        (world.out / "index.html").write_text(page(grids, summary))
        return console_text(grids, summary)

    shown()
    ours = tags(world.out) | {"ul", "ul class", "li", "div title", "p"}
    before_files = set(tmp_path.rglob("*"))
    for name, path, changed in injections(world.out, [table]):
        before = path.read_bytes()
        pq.write_table(changed, path)
        said = shown()
        assert tags(world.out) <= ours, name
        fragments = "".join(path.read_text() for path in (world.out / "tables").glob("*.tex"))
        text = said + fragments + "".join((world.out / f"tables.{kind}").read_text() for kind in ("md", "tex", "csv"))
        assert printable(text) == text and "\\input{" not in fragments, name
        assert set(tmp_path.rglob("*")) == before_files, name
        path.write_bytes(before)


def test_what_looks_like_a_formula_is_drawn_as_it_stands(tmp_path: Path) -> None:
    choices = ["$\\frac{$", "$x$"]
    study(tmp_path, space=[Parameter(key="loss.kind", choices=choices), *T_ONLY], scale="$\\bad{$")
    for number, choice in enumerate(choices):
        trial(tmp_path, number, {"loss.kind": choice, "loss.threshold": 0.8 + number / 10}, 40.0 + number)
    (page,) = write_search_pages(tmp_path)
    drawn = re.findall(r"<svg.*?</svg>", page.read_text(), flags=re.DOTALL)
    assert any("$\\frac{$" in picture for picture in drawn) and len(drawn) > 2


def test_a_page_is_written_and_removed_in_its_folder_alone(tmp_path: Path) -> None:
    out = searched(tmp_path / "in" / "deep")
    study(out, "demo-cccc0001", search="../../../x")
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "claim.csv").write_text("mine")
    assert [page.parent.name for page in write_search_pages(out)] == ["demo"]
    assert (tmp_path / "x" / "claim.csv").read_text() == "mine"
    assert "demo-cccc0001.parquet: search '../../../x' is no name" in "\n".join(Results(out).warnings())


@pytest.mark.parametrize("text", HOSTILE)
def test_one_door_per_medium(text: str) -> None:
    escaped = latex_escape(text)
    assert "\n" not in escaped and "\x1b" not in escaped and "\\input" not in escaped and "\\end" not in escaped
    assert "\n" not in markdown_escape(text) and "<img" not in markdown_escape(text).replace("\\<img", "")
    head, line = csv_bytes(pd.DataFrame({text.replace("\n", " "): [text.replace("\n", " ")]})).decode().splitlines()
    assert head.lstrip('"')[:1] not in ("=", "+", "-", "@")
    assert line.lstrip('"')[:1] not in ("=", "+", "-", "@")
    assert latex_escape("[x]").startswith("{}[") and latex_escape("*").startswith("{}*")


def test_numbers_stay_numbers(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [-1.5, 2.0], "b": ["-x", "y"]})
    (tmp_path / "a.csv").write_bytes(csv_bytes(frame))
    read = pd.read_csv(tmp_path / "a.csv")
    assert list(read["a"]) == [-1.5, 2.0] and list(read["b"]) == ["'-x", "y"]
