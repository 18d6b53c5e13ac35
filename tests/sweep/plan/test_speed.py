"""Seconds of an amount of work, assumed and calibrated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fpl.config.compose import validate
from fpl.config.schema import RunConfig
from fpl.errors import FplError
from fpl.sweep.plan.cost import Work
from fpl.sweep.plan.costs import Costs, step_key
from fpl.sweep.plan.speed import (
    CPU_CORE,
    CostModel,
    Measured,
    Speed,
    measured_on,
    read_calibration,
    write_calibration,
)

COSTS = Costs()
SPEED = Speed("for tests", per_call=0.5, per_gflop=2.0, per_gigabyte=10.0, per_image=1.0, per_shared_call=0.25)


def changed(config: RunConfig, **sections: dict[str, object]) -> RunConfig:
    tree = config.model_dump(mode="json")
    for section, values in sections.items():
        tree[section] = values if section == "method" else tree[section] | values
    return validate(tree)


def test_seconds_by_hand() -> None:
    work = Work(calls=4, gflop=3, gigabytes=0.2, images=6)
    assert SPEED.seconds(work) == pytest.approx(4 * 0.5 + 3 * 2 + 0.2 * 10 + 6)
    # Three workers make all calls, wait for each other, and share the rest.
    assert SPEED.seconds(work, workers=3) == pytest.approx(4 * 0.75 + (6 + 2 + 6) / 3)


def measured(config: RunConfig, ratio: float, device: str = "here") -> Measured:
    work = replace(COSTS.of(config).step, images=0.0)
    return Measured(device, False, 1, step_key(config), 4, 4, 5, ratio * CPU_CORE.seconds(work), work)


def test_calibration_scales_what_was_counted(config: RunConfig) -> None:
    plain = CostModel(CPU_CORE)
    assert plain.step_seconds(config) == pytest.approx(CPU_CORE.seconds(COSTS.of(config).step))
    assert plain.source.startswith("assumed: ")
    ce = changed(config, loss={"kind": "ce"})
    supervised = changed(config, method={"name": "supervised"})
    unseen = changed(config, model={"tiny_depth": 2})
    model = CostModel(CPU_CORE, (measured(config, 2.0), measured(ce, 3.0), measured(supervised, 10.0)))
    assert model.source == "measured on here, 3 kinds of steps"
    reading = CPU_CORE.per_image * COSTS.of(config).step.images
    for each, ratio in ((config, 2.0), (ce, 3.0), (unseen, 3.0)):
        expected = ratio * (plain.step_seconds(each) - reading) + reading
        assert model.step_seconds(each) == pytest.approx(expected)
    # A measurement on half of the batch says as much about the whole one.
    half = changed(config, data={"labeled_batch": 2, "unlabeled_batch": 2, "groups": 2})
    assert CostModel(CPU_CORE, (measured(half, 2.0),)).step_seconds(config) == pytest.approx(model.step_seconds(config))


def test_threads_share_what_was_not_measured(config: RunConfig) -> None:
    one, four = CostModel(CPU_CORE), CostModel(CPU_CORE, threads=4)
    assert four.run_seconds(config) == pytest.approx(one.run_seconds(config) / 4)
    assert four.source == f"{one.source}, over 4 threads"
    known = (measured(config, 2.0),)
    assert CostModel(CPU_CORE, known, threads=4).run_seconds(config) == CostModel(CPU_CORE, known).run_seconds(config)


def test_calibration_survives_the_file(config: RunConfig, tmp_path: Path) -> None:
    assert read_calibration(tmp_path) == []
    ce = changed(config, loss={"kind": "ce"})
    first = [measured(config, 2.0), measured(ce, 2.0), measured(config, 4.0, device="elsewhere")]
    write_calibration(tmp_path, first)
    assert read_calibration(tmp_path) == first
    again = measured(config, 3.0)
    path = write_calibration(tmp_path, [again])
    assert read_calibration(tmp_path) == [*first[1:], again]
    path.write_bytes(b"PAR1")
    with pytest.raises(FplError, match="no calibration"):
        read_calibration(tmp_path)


def test_a_device_is_found_by_the_words_of_its_name() -> None:
    names = ("Tesla V100-SXM2-32GB", "NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB")
    entries = [Measured(name, True, 1, "key", 4, 4, 5, 0.1, Work()) for name in names]
    for name, found in (
        ("A100", [1, 3]),
        ("a100 40gb", [2]),
        ("NVIDIA A100-SXM4-40GB", [2]),
        ("V100", [0]),
        ("H100", []),
        ("", []),
    ):
        assert measured_on(name, entries) == [entries[number] for number in found]
