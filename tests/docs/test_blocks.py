"""Every block of code in README and docs: run where it says so, and where it is not, marked why and read for mistakes.

The line above a block is `<!-- run -->` or `<!-- not run: REASON -->`, which readers do not see.
"""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from typer import Context
from typer.main import get_command

from fpl.cli.main import app
from fpl.config.shipped import experiment_file
from tests import warm

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^(<!-- ([^\n]+) -->\n)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    page: str
    line: int
    marker: str
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text()
        for found in BLOCK.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            yield Block(page.name, line, found[2] or "", found[3], found[4])


BLOCKS = list(blocks())
RUN = [block for block in BLOCKS if block.marker == "run"]
# What stands on two pages is run once.
DIFFERENT = list({block.text: block for block in reversed(RUN)}.values())[::-1]


def commands(block: Block) -> Iterator[list[str]]:
    """The `fpl` commands of a block, without the name of the program."""
    for line in block.text.splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["fpl"]:
            yield words[1:]


def test_every_fence_is_read() -> None:
    assert sum(page.read_text().count("\n```") for page in PAGES) == 2 * len(BLOCKS)


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_is_run_or_says_why_not(block: Block) -> None:
    assert block.marker == "run" or re.fullmatch(r"not run: .{5,}", block.marker), f"{block}: {block.marker!r}"
    for named in re.findall(r"\btests/[\w/.]+", block.marker):
        assert (ROOT / named).exists(), f"{block}: {named}"


@pytest.mark.parametrize("block", [block for block in BLOCKS if block not in RUN], ids=str)
def test_what_is_not_run_can_be_read(block: Block) -> None:
    if block.language == "python":
        ast.parse(block.text)
    if block.language == "toml":
        tomllib.loads(block.text)
    for arguments in commands(block):
        command, context = get_command(app), Context(get_command(app), info_name="fpl")
        words = list(arguments)
        # Groups resolve their command; the last one reads its arguments, of which none is carried out.
        while hasattr(command, "resolve_command"):
            _, command, words = command.resolve_command(context, words)
        command.make_context(" ".join(arguments), words)
        for word in arguments:
            assert not word.startswith("experiments/") or (ROOT / word).is_file(), f"{block}: {word}"
        if arguments[0] == "train" and not is_made_on_its_page(block, arguments[1]):
            experiment_file(Path(arguments[1]))


def is_made_on_its_page(block: Block, recipe: str) -> bool:
    page = next(page for page in PAGES if page.name == block.page)
    return f"`experiments/base/{recipe}.toml`, with" in page.read_text()


@pytest.mark.parametrize("block", DIFFERENT, ids=str)
def test_what_is_run_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("experiments", "results"):
        # A command looks there without being told.
        if block.language == "python" and name not in block.text:
            continue
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("splits", "local", "try"))
    if block.language == "python":
        script = tmp_path / "block.py"
        script.write_text(block.text)
        calls = [[str(script)]]
    else:
        calls = [["-m", "fpl", *arguments] for arguments in commands(block)]
    assert calls, f"{block}: nothing to run"
    for call in calls:
        code, _, said = warm.run(call, _environment())
        assert code == 0, f"{block}: {' '.join(call)}\n{said}"
        assert "Warning" not in said, said


def _environment() -> dict[str, str]:
    import os

    kept = {name: value for name, value in os.environ.items() if not name.startswith("FPL_")}
    return kept | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
