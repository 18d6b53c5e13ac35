"""The committed page in headless Chromium, at the widths of a phone and of a desk, light and dark."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "results" / "mini" / "index.html"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# What the page says of itself; a frame has the wanted width, where a window has a least one.
MEASURE = """<script>
const top_of = name => document.querySelector(name).getBoundingClientRect().top;
const color_of = (name, part) => getComputedStyle(document.querySelector(name))[part];
parent.postMessage({wide: document.documentElement.scrollWidth, picture: top_of("figure.strip svg"),
  table: top_of("table"), scale: top_of(".scale"), back: color_of("body", "backgroundColor"),
  text: color_of("body", "color"), requests: performance.getEntriesByType("resource").length}, "*");
</script></body>"""
WRAPPER = """<body><iframe src="page.html" style="border: 0; width: {}px; height: {}px"></iframe><script>
onmessage = event => {{ document.body.textContent = JSON.stringify(event.data); }};
</script></body>"""


def measure(folder: Path, width: int, height: int, scheme: int) -> dict[str, Any]:
    (folder / "page.html").write_text(PAGE.read_text().replace("</body>", MEASURE))
    (folder / "wrapper.html").write_text(WRAPPER.format(width, height))
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    options += [f"--blink-settings=preferredColorScheme={scheme}", "--virtual-time-budget=10000", "--dump-dom"]
    command = [str(BROWSER), *options, f"file://{folder / 'wrapper.html'}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    found = re.search(r"<body>(\{.*?\})</body>", done.stdout, flags=re.DOTALL)
    assert found, done.stdout[-500:] + done.stderr[-500:]
    shown: dict[str, Any] = json.loads(html.unescape(found[1]))
    return shown


def lightness(color: str) -> float:
    return sum(map(int, re.findall(r"\d+", color)[:3])) / 3


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
@pytest.mark.parametrize(("width", "height"), [(390, 844), (1280, 800)])
@pytest.mark.parametrize(("scheme", "dark"), [(0, True), (1, False)], ids=["dark", "light"])
def test_the_first_screen(tmp_path: Path, width: int, height: int, scheme: int, dark: bool) -> None:
    found = measure(tmp_path, width, height, scheme)
    # Nothing makes the whole page scroll sideways; what is too wide scrolls in a box of its own.
    assert found["wide"] <= width
    # The picture and the beginning of the main table are seen at once, the long text is not before them.
    assert found["picture"] < found["table"] < height and found["table"] < found["scale"]
    assert (lightness(found["back"]) < lightness(found["text"])) == dark
    # One file: nothing is fetched.
    assert found["requests"] == 0
