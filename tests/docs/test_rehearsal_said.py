"""What docs/rehearse.md says of the committed rehearsal is what its rows give."""

from __future__ import annotations

from pathlib import Path

import pytest

from fpl.sweep.rehearsal.rows import Row, read

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return read(ROOT / "results" / "rehearsal")


@pytest.fixture(scope="module")
def text() -> str:
    return " ".join((ROOT / "docs" / "rehearse.md").read_text().split())


def span(values: list[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"


def test_what_was_exercised(rows: list[Row], text: str) -> None:
    single = [row for row in rows if row.processes == 1]
    whole = sum(row.whole for row in single)
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert f"{len(single)} runs of ten rows of Tables 1 and 2 on a CPU, {whole} of them with whole crops" in readme
    assert len({row.cell.rpartition(".")[0] for row in single}) == 10
    assert f"{whole} of them (ResNet-101) with whole crops and {len(single) - whole} (ResNet-50) with crops" in text
    assert {row.backbone for row in single if row.whole} == {"resnet101"}
    assert f"{len(single)} runs, each killed at step 1, continued, validated and predicted with" in text
    assert {row.checked for row in single} == {"killed at step 1, continued, validated, predicted"}
    assert f"`results/rehearsal`, commit {rows[0].commit}" in text
    bf16 = [row for row in rows if row.precision == "bf16"]
    assert {(row.dataset, row.backbone, row.whole) for row in bf16} == {("cityscapes", "resnet101", True)}
    peak = max(row.peak_bytes for row in bf16) / 1e9
    assert f"these {len(bf16)} runs are in bf16, and took at most {peak:.0f} GB" in text


def test_memory_and_time_against_the_plan(rows: list[Row], text: str) -> None:
    memory = [(row.peak_at(row.paper_workers) or 0) / row.planned_bytes for row in rows if row.peak_at(1)]
    assert f"as measured, {span(memory)} of what `fpl plan` says ({len(memory)} runs)" in text
    for precision in ("float32", "bf16"):
        seconds = [row.step_seconds / row.planned_step_seconds for row in rows if row.precision == precision]
        assert f"{span(seconds)} in {precision}" in text
