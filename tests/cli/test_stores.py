"""Options that name a store take URLs of object storage, and no other option does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fpl
from fpl import mirrors
from fpl.cli.main import app
from fpl.cli.options import refuse_urls, store_folder
from fpl.errors import FplError
from fpl.store.write import write_failure
from tests.store.test_store import add


@pytest.fixture(autouse=True)
def nothing_attached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("FPL_SCRATCH", str(tmp_path / "scratch"))
    yield
    mirrors._MIRRORS.clear()


@pytest.mark.parametrize(
    "arguments",
    [
        ["reproduce", "table4", "--data-root", "s3://bucket/data"],
        ["reproduce", "table4", "--data-root=s3://bucket/data", "--out", "s3://bucket/x"],
        ["predict", "run", "s3://bucket/images", "here"],
        ["rehearse", "--out", "s3://bucket/x"],
        ["results", "--csv", "gs://bucket/x.csv"],
        ["train", "s3://bucket/run.toml"],
    ],
)
def test_a_url_where_only_a_folder_can_be_is_refused(arguments: list[str]) -> None:
    with pytest.raises(FplError, match=r"is on object storage, which only stores can be") as caught:
        refuse_urls(arguments)
    # The option that has it, or the command.
    assert caught.value.where in (arguments[0], "--data-root", "--out", "--csv")


@pytest.mark.parametrize(
    "arguments",
    [
        ["reproduce", "table4", "--out", "s3://bucket/x", "--publish=gs://b/y", "--data-root", "data"],
        ["figures", "--results", "s3://bucket/x"],
        ["results", "--query", "seed == 0"],
        ["reproduce", "table4", "--address", "ray://head:10001", "--out", "s3://bucket/x"],
        [],
    ],
)
def test_other_arguments_pass(arguments: list[str]) -> None:
    refuse_urls(arguments)


def test_a_store_there_is_opened_by_its_url_alone(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/there"
    row = {"run_id": "a-s0-01234567", "recipe": "x", "seed": 0, "reason": "no luck", "log": "", "failed_at": None}
    write_failure(tmp_path / "there", row)
    assert store_folder(url) == tmp_path / "scratch" / "file" / str(tmp_path).strip("/") / "there"
    assert list(fpl.load_results(url).failures["reason"]) == ["no luck"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["results", "--out"], "1 of 1 runs"),
        (["tables", "table4", "--results"], "0 of 6 runs done"),
        (["show", "table4.fpl_cps.t095", "--results"], "not yet run"),
    ],
)
@pytest.mark.parametrize("named", [False, True])
def test_what_shows_a_store_there_keeps_it_in_the_scratch_folder(
    tmp_path: Path, arguments: list[str], said: str, named: bool
) -> None:
    run = add(tmp_path / "there", "a-s0")
    scratch = tmp_path / ("named" if named else "scratch")
    asked = [*arguments, f"file://{tmp_path}/there", *(["--scratch", str(scratch)] if named else [])]
    found = CliRunner().invoke(app, asked)
    assert found.exit_code == 0 and said in found.output
    assert len(list(scratch.glob(f"file/**/there/runs/{run}.parquet"))) == 1
