"""Configurations of any text: experiment files, scales, searches, figures, tables, and overrides."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpl.config.compose import leaves, load_config
from fpl.config.experiment import load_experiments
from fpl.config.figure import load_figures
from fpl.config.identity import canonical
from fpl.config.scale import apply_scale, read_scale
from fpl.config.schema import RunConfig
from fpl.config.search import load_search
from fpl.errors import FplError
from tests.conftest import RUN
from tests.fuzz.outcome import files_in, result_or_error

EXPERIMENTS = Path(__file__).parents[2] / "experiments"

# Texts after `key = `, of every kind and beyond what any kind allows.
VALUES = st.one_of(
    st.sampled_from(
        [
            *(
                "5",
                "-1",
                "0",
                "true",
                '""',
                "[]",
                "{}",
                "[[1]]",
                "nan",
                "inf",
                "-inf",
                "1e999",
                "1979-05-27",
                "07:32:00",
            ),
            *("9" * 5000, "0x" + "f" * 5000, "9" * 19, "[" * 3000 + "]" * 3000, "{a=" * 500 + "1" + "}" * 500),
            *(
                '"a\\u0000b"',
                '"../../x"',
                '"é\\u202e"',
                "'''",
                '"\\ud800"',
                "\0",
                "{a = 1, a = 2}",
                '["a", 5]',
                '"1/0"',
            ),
        ]
    ),
    st.integers().map(str),
    st.floats().map(str),
    st.text(max_size=12),
    st.text(max_size=12).map(lambda text: "'" + text.replace("'", "") + "'"),
)
KEYS = st.one_of(
    st.sampled_from([*leaves(), "inherit", "about", "scale", "launch", "where", "scale.seeds", "scale.name", "data"]),
    st.sampled_from(
        ["method", "loss", "search", "space", "table", "rows", "columns", "series", "about.order", "x." * 400]
    ),
    st.text(st.characters(codec="utf-8"), max_size=8),
)
LINES = st.lists(st.tuples(KEYS, VALUES).map(" = ".join), max_size=3).map("\n".join)


@st.composite
def edited(draw: Callable[[Any], Any], text: str) -> bytes:
    """A valid file with lines of it replaced, dropped, repeated or put before it, sometimes as odd bytes."""
    lines = text.splitlines()
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(lines) - 1))
        key = lines[at].partition("=")[0]
        lines[at : at + 1] = draw(st.sampled_from([[], [lines[at]] * 2, [f"{key}= {draw(VALUES)}"], [draw(LINES)]]))
    whole = (draw(LINES) + "\n" + "\n".join(lines)).encode("utf-8", "surrogatepass")
    mark = draw(st.sampled_from([b"", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe"]))
    return mark + whole.replace(b"\n", draw(st.sampled_from([b"\n", b"\r\n", b"\r"])))


@given(content=edited(RUN))
def test_run_files(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.toml"
        path.write_bytes(content)
        found = result_or_error(lambda: load_config(path), folder)
        assert files_in(Path(folder)) == {path}
    if isinstance(found, RunConfig):
        assert RunConfig.model_validate_json(found.model_dump_json()) == found
        assert canonical(found)


@given(keys=st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=3))
def test_overrides(run_file: Path, keys: list[tuple[str, str]]) -> None:
    texts = [f"{key}={value}" for key, value in keys]
    found = result_or_error(lambda: load_config(run_file, overrides=texts), "override", run_file, *leaves())
    assert isinstance(found, RunConfig | FplError)


@given(content=edited((EXPERIMENTS / "scale" / "mini.toml").read_text()))
def test_scales(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "odd.toml"
        path.write_bytes(content)
        result_or_error(lambda: apply_scale({"data": {"dataset": "voc"}}, read_scale(path)), folder)


FILES = {
    "tables": (EXPERIMENTS / "tables" / "table4.toml", lambda folder: load_experiments(folder / "tables")),
    "figures": (EXPERIMENTS / "figures" / "figure_4.toml", load_figures),
    "search": (EXPERIMENTS / "search" / "joint.toml", lambda folder: load_search(folder, "odd")),
}


@pytest.mark.parametrize("kind", FILES)
@given(data=st.data())
def test_experiment_files(kind: str, data: st.DataObject) -> None:
    source, read = FILES[kind]
    content = data.draw(edited(source.read_text()))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / kind / "odd.toml"
        path.parent.mkdir()
        path.write_bytes(content)
        result_or_error(lambda: read(Path(folder)), folder, "override")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("inherit = 5", "inherit = 5"),
        ('inherit = ["a", 5]', "inherit = "),
        # Control characters are replaced when a file is read.
        ('inherit = "a\\u0000b"', "cannot read"),
        ("seed = " + "9" * 5000, "thousands of digits"),
        ("seed = 0x" + "f" * 5000, "seed is beyond 64 bits"),
        ("seed = " + "[" * 3000 + "]" * 3000, "deep in each other"),
        ("a." * 300 + "b = 1", "deep in each other"),
        ("seed = \0", "not valid TOML"),
    ],
)
def test_what_once_was_a_traceback(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "run.toml"
    path.write_text(text)
    with pytest.raises(FplError, match=message) as caught:
        load_config(path)
    assert str(path) in caught.value.message


@pytest.mark.parametrize("text", ["scale = 5", "launch = 5", "where = 5", "where = [5]", "[scale]\nseeds = 'x'"])
def test_scales_of_another_form(tmp_path: Path, text: str) -> None:
    path = tmp_path / "odd.toml"
    path.write_text(text)
    with pytest.raises(FplError, match=str(path)):
        read_scale(path)


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 3000 + "]" * 3000, "0x" + "f" * 5000])
def test_overrides_beyond_everything(run_file: Path, value: str) -> None:
    with pytest.raises(FplError, match="override seed"):
        load_config(run_file, overrides=[f"seed={value}"])


def test_r70_a_byte_order_mark_is_read(tmp_path: Path, run_file: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(b"\xef\xbb\xbf" + run_file.read_bytes())
    assert load_config(path) == load_config(run_file)
