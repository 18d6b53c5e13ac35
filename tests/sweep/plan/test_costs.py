"""The file of costs beside the store: what is counted when, and what one count answers for."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from fpl.config.compose import validate
from fpl.config.schema import RunConfig
from fpl.sweep.plan import costs as module
from fpl.sweep.plan.cost import Cost, Memory, Work
from fpl.sweep.plan.costs import COSTS, COSTS_SCHEMA, Costs, cost_key, step_key
from fpl.sweep.plan.rows import read_rows, write_rows

AEL = {"name": "ael", "paste_excluded": [0, 1]}
COST = Cost(Work(100, 10.0, 1.0, 8), Work(30, 2.0), weights=1000, optimizer=600, memory=Memory(70, 40, 5, 400, 9))


def changed(config: RunConfig, **sections: dict[str, object]) -> RunConfig:
    tree = config.model_dump(mode="json")
    for section, values in sections.items():
        tree[section] = values if section == "method" else tree[section] | values
    return validate(tree)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[RunConfig]:
    """What was counted, in place of counting it."""
    found: list[RunConfig] = []

    def count(key: str, config: RunConfig) -> Cost:
        found.append(config)
        return COST

    monkeypatch.setattr(module, "_count", count)
    return found


def test_a_new_kind_is_counted_once_and_kept(config: RunConfig, tmp_path: Path, counted: list[RunConfig]) -> None:
    ce = changed(config, loss={"kind": "ce"})
    seeded = config.model_copy(update={"seed": 7})
    first = Costs(tmp_path)
    first.learn([config, seeded, ce, config])
    assert counted == [config, ce]
    assert first.of(config) == COST and len(counted) == 2
    # Another process has only the file.
    second = Costs(tmp_path)
    assert second.of(config) == second.of(ce) == COST and len(counted) == 2
    other = changed(config, data={"crop": [48, 48]})
    assert second.of(other) == COST and counted[2:] == [other]
    assert set(Costs(tmp_path).known) == {cost_key(each) for each in (config, ce, other)}


def test_what_came_with_published_results_is_not_counted_again(
    config: RunConfig, tmp_path: Path, counted: list[RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    Costs(tmp_path / "results" / "mini").learn([config])
    monkeypatch.setattr(module, "PUBLISHED", tmp_path / "results")
    fresh = Costs(tmp_path / "runs" / "mini")
    assert fresh.of(config) == COST and counted == [config] and not (tmp_path / "runs").exists()
    # Of another name, nothing is known.
    assert Costs(tmp_path / "runs" / "other").of(config) == COST and len(counted) == 2


def test_without_a_store_nothing_is_written(config: RunConfig, tmp_path: Path, counted: list[RunConfig]) -> None:
    assert Costs().of(config) == COST and counted == [config]
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_read_or_written_is_counted_again(
    config: RunConfig, tmp_path: Path, counted: list[RunConfig]
) -> None:
    (tmp_path / COSTS).write_bytes(b"PAR1")
    assert Costs(tmp_path).of(config) == COST and len(counted) == 1
    assert Costs(tmp_path).of(config) == COST and len(counted) == 1
    (tmp_path / "file").touch()
    assert Costs(tmp_path / "file").of(config) == COST and len(counted) == 2


def test_a_file_that_knows_no_memory_is_counted_again(
    config: RunConfig, tmp_path: Path, counted: list[RunConfig]
) -> None:
    Costs(tmp_path).learn([config])
    older = pa.schema([item for item in COSTS_SCHEMA if not item.name.startswith("memory_")])
    rows = read_rows(tmp_path / COSTS, COSTS_SCHEMA, "")
    write_rows(tmp_path / COSTS, [{name: row[name] for name in older.names} for row in rows], older)
    assert Costs(tmp_path).known == {}
    assert Costs(tmp_path).of(config) == COST and len(counted) == 2
    assert Costs(tmp_path).of(config) == COST and len(counted) == 2


def test_counting_that_takes_longer_is_told(
    config: RunConfig, counted: list[RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = [changed(config, data={"crop": [side, side]}) for side in (40, 48, 64)]
    lines: list[str] = []
    Costs(say=lines.append).learn(kinds)
    assert not lines
    monkeypatch.setattr(module, "PATIENCE", -1.0)
    Costs(say=lines.append).learn(kinds)
    assert [line.partition(", once for each kind: ")[2] for line in lines] == [
        "0 of 3, ? left", "1 of 3, 0 s left", "2 of 3, 0 s left"
    ]  # fmt: skip


def test_what_decides_a_cost(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    others = [
        changed(config, loss={"kind": "ce"}),
        changed(config, loss={"stride": 4}),
        changed(config, loss={"supervised": "ohem"}),
        changed(config, data={"crop": [48, 48]}),
        changed(config, data={"labeled_batch": 8}),
        changed(config, model={"tiny_depth": 2}),
        changed(config, model={"network": "ael"}),
        changed(config, train={"concatenate": True}),
        changed(config, eval={"protocol": "center"}),
        changed(config, method={"name": "supervised"}),
        changed(config, method=AEL),
    ]
    assert len({cost_key(each) for each in [config, *others]}) == len(others) + 1
    same = [
        changed(config, loss={"threshold": 0.5}),
        changed(config, optim={"lr": 1.0}),
        changed(config, train={"steps": 100, "precision": "bf16"}),
        changed(config, data={"split": {"fraction": "1/8"}}),
        changed(config, model={"pretrained": "imagenet"}),
        config.model_copy(update={"seed": 5}),
    ]
    assert {cost_key(each) for each in same} == {cost_key(config)}
    # Other code may count otherwise.
    before = cost_key(config)
    monkeypatch.setattr(module, "source_digest", lambda *parts, libraries: "other")
    cost_key.cache_clear()
    assert cost_key(config) != before
    cost_key.cache_clear()


def test_kinds_of_steps_differ_where_their_time_does(config: RunConfig) -> None:
    others = [
        changed(config, loss={"kind": "ce"}),
        changed(config, loss={"stride": 4}),
        changed(config, data={"crop": [48, 48]}),
        changed(config, model={"tiny_depth": 2}),
        changed(config, train={"precision": "bf16"}),
        changed(config, train={"channels_last": True}),
        changed(config, method={"name": "supervised"}),
        changed(config, method={"name": "cps", "weight": 1.0, "cutmix": False}),
        changed(config, model={"network": "ael"}),
        changed(config, method=AEL),
        changed(config, method=AEL, loss={"kind": "ce"}),
    ]
    assert len({step_key(each) for each in [config, *others]}) == len(others) + 1
    same = [
        changed(config, data={"labeled_batch": 8}),
        changed(config, loss={"threshold": 0.5}),
        changed(config, optim={"lr": 1.0}),
        changed(config, method={"name": "cps", "weight": 2.0, "cutmix": True}),
        config.model_copy(update={"seed": 5}),
    ]
    assert {step_key(each) for each in same} == {step_key(config)}
