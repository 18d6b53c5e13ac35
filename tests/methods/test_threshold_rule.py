"""`loss.threshold_rule = "labeled"` in training: every method with a pixel loss, checkpoints, configuration."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

import fpl
from fpl.config.compose import load_config
from fpl.config.gates import gate_warnings
from fpl.config.registry import all_options
from fpl.methods.labeled_threshold import LabeledThreshold, gathered_probability
from fpl.sweep.places import Places
from tests.methods.examples import EXAMPLES, Example
from tests.methods.test_contract import Training
from tests.train.runs import assert_equal_results, elsewhere, killed, run

RULE = ("loss.kind=fpl", "loss.threshold_rule=labeled")
WITH_PIXEL_LOSS = [item for item in EXAMPLES if all_options()[item.method].unlabeled]


@pytest.mark.parametrize("example", WITH_PIXEL_LOSS, ids=str)
def test_every_method_takes_it(
    example: Example, run_file: Path, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(example.config(run_file, *RULE), places)
    shown: list[tuple[Tensor, Tensor]] = []
    observe = LabeledThreshold.observe

    def remember(self: LabeledThreshold, logits: Tensor, label: Tensor) -> None:
        shown.append(gathered_probability(logits, label))
        observe(self, logits, label)

    monkeypatch.setattr(LabeledThreshold, "observe", remember)
    first, second = training.step(0), training.method.labeled_threshold
    assert float(first.terms["threshold"]) == pytest.approx(training.config.loss.threshold)
    # One pass over the labeled images for each network that is trained on them.
    assert len(shown) == len(training.method.networks())
    expected = float(sum(total for total, _ in shown) / sum(count for _, count in shown))
    assert second is not None and second.value == pytest.approx(expected)
    assert float(training.step(1).terms["threshold"]) == pytest.approx(expected)
    assert training.method.pixel_loss.threshold == pytest.approx(expected)


def test_a_killed_run_goes_on_with_the_same_t(run_file: Path, places: Places) -> None:
    example = next(item for item in EXAMPLES if item.method == "cps")
    other = elsewhere(places, "killed")
    run(example.config(run_file, *RULE), places)
    killed(example.config(run_file, *RULE), other, after=2)
    run(example.config(run_file, *RULE), other)
    assert_equal_results(places, other)
    thresholds = fpl.load_results(places.out).history["threshold"].dropna()
    assert thresholds.between(0, 1).all() and thresholds.nunique() > 1


def test_only_where_t_matters_is_it_part_of_a_run(run_file: Path) -> None:
    plain = load_config(run_file)
    assert "threshold_rule" not in plain.model_dump()["loss"]
    assert load_config(run_file, overrides=["loss.threshold_rule=labeled"]).loss != plain.loss
    for without in (["loss.kind=ce"], ["loss.strategy=fixed"], ["loss.strategy=step"]):
        ruled = load_config(run_file, overrides=[*without, "loss.threshold_rule=labeled"])
        assert ruled == load_config(run_file, overrides=without)


def test_a_gate_is_no_reason_to_warn_where_t_is_not_known(run_file: Path) -> None:
    for rule, said in (("hand", 1), ("labeled", 0)):
        loss = load_config(run_file, overrides=[f"loss.threshold_rule={rule}"]).loss
        assert len(gate_warnings("method.confidence_gate", 0.95, loss)) == said


def test_a_number_that_is_not_finite_is_found_by_the_loop(run_file: Path, places: Places) -> None:
    training = Training(next(item for item in EXAMPLES if item.method == "cps").config(run_file, *RULE), places)
    with torch.no_grad():
        training.method.networks()[0].classifier.bias.fill_(float("nan"))
    assert not bool(training.step(0).objectives["main"].isfinite())
