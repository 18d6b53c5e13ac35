"""The site is built without a warning, and its generated pages hold what the code has."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    told = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=told, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def words(page: Path) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page.read_text()).split())


def test_every_page_is_in_the_navigation(site: Path) -> None:
    listed = (ROOT / "mkdocs.yml").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert f"- {page.name}\n" in listed, page.name
        assert (site / ("index.html" if page.stem == "index" else f"{page.stem}/index.html")).is_file()


def test_keys_have_range_default_and_reason(site: Path) -> None:
    page = words(site / "reference" / "config" / "index.html").replace("&lt;", "<").replace("&gt;", ">")
    assert re.search(r"loss\.threshold number > 0(\.0)?, (< 1(\.0)?|<= 1(\.0)?)", page)
    assert re.search(r"data\.split\.index integer >= 0, <= \d+ 0 Which of the splits", page)
    methods = words(site / "reference" / "methods" / "index.html")
    for name in (path.parent.name for path in (ROOT / "fpl" / "methods").glob("*/options.py")):
        assert f'"{name}"' in methods.replace("&quot;", '"')


def test_columns_commands_and_the_loss_are_there(site: Path) -> None:
    assert "mean_k double classes mean number K" in words(site / "reference" / "columns" / "index.html")
    assert "printed that of the metric the paper's number" in words(site / "reference" / "columns" / "index.html")
    commands = words(site / "reference" / "commands" / "index.html")
    assert "fpl reproduce" in commands and "--budget" in commands
    assert "fuzzy_positive_loss" in words(site / "reference" / "losses" / "index.html")
    assert "load_model" in words(site / "reference" / "results" / "index.html")
    # Nothing is fetched from elsewhere when a page is read.
    for page in site.rglob("*.html"):
        for source in re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"(https?://[^\"]+)", page.read_text()):
            raise AssertionError(f"{page.relative_to(site)} fetches {source}")
