"""From counted bytes to a GPU: what is added, what fits, and what is said where it does not."""

from __future__ import annotations

import pytest
import torch

from fpl.config.compose import validate
from fpl.config.schema import RunConfig
from fpl.errors import FplError
from fpl.sweep.device import check_memory
from fpl.sweep.plan.cost import Cost, Memory, Work
from fpl.sweep.plan.costs import Costs
from fpl.sweep.plan.memory import memory_problem, needed, parse_memory
from fpl.train.runtime import Workers

MEMORY = Memory(step=40 * 10**9, step_bf16=20 * 10**9, copies_bf16=10**9, gradients=3 * 10**8, look=0)
COST = Cost(Work(), Work(), weights=6 * 10**8, optimizer=3 * 10**8, memory=MEMORY)


def changed(config: RunConfig, **sections: dict[str, object]) -> RunConfig:
    tree = config.model_dump(mode="json")
    for section, values in sections.items():
        tree[section] = tree[section] | values
    return validate(tree)


@pytest.fixture
def shared(config: RunConfig) -> RunConfig:
    """A run that 1, 2 or 4 workers can share."""
    return changed(config, data={"labeled_batch": 4, "unlabeled_batch": 4, "groups": 4})


def test_memory_by_hand(shared: RunConfig) -> None:
    alone, four = needed(COST, shared), needed(COST, shared, 4)
    assert alone.held == 6e8 + 3e8 + 3e8 and alone.computed == 40e9
    # Averaged gradients have a buffer of their own.
    assert four.held == 6e8 + 3e8 + 2 * 3e8 and four.computed == 10e9
    assert four.least == 11.5e9 and four.total == pytest.approx(1.05 * 11.5e9 + 1e9)
    # Copies of weights are not shared.
    half = changed(shared, train={"precision": "bf16"})
    assert needed(COST, half, 4).computed == needed(COST, shared, 4, "bf16").computed == 20e9 / 4 + 1e9


def test_a_validation_may_take_more_than_a_step(shared: RunConfig) -> None:
    """Cityscapes: images of 1024 x 2048, two in 2^22 pixels, in windows of 800 x 800, three at a time of each."""
    data = {"dataset": "cityscapes", "crop": [800, 800]}
    sliding = changed(shared, data=data, eval={"protocol": "sliding", "stride_rate": 2 / 3})
    pixels, window = 1024 * 2048, 800 * 800
    windows = 2 * (2**22 // (2 * window))
    expected = windows * (5e8 + 4 * 19 * window) + 2 * pixels * (12 + 4 * 19)
    few = Cost(Work(), Work(), 0, 0, Memory(1, 1, 0, 0, 5 * 10**8))
    assert needed(few, sliding).computed == pytest.approx(expected)
    # Of a center crop only the crop is seen, six in 2^22 pixels by the size of the label as it is read.
    center = changed(shared, data=data, eval={"protocol": "center"})
    assert needed(few, center).computed < needed(few, sliding).computed
    # A network that takes nothing: maps of scores, predictions and counts.
    nothing = Cost(Work(), Work(), 0, 0, Memory(1, 1, 0, 0, 0))
    whole = changed(shared, data=data, eval={"protocol": "whole"})
    assert needed(nothing, whole).computed == pytest.approx(2 * pixels * (4 * 19 + 12 + 4 * 19))


def test_what_cannot_fit_is_said_with_what_would(shared: RunConfig) -> None:
    assert memory_problem(COST, shared, 1, 42e9) == ""
    text = memory_problem(COST, shared, 1, 32e9)
    assert text.startswith("41 GB of memory needed on one GPU, 32 GB there (CPS with CutMix, tiny, 40x40) -> ")
    assert text.endswith("-> --workers 2 or train.precision=bf16")
    text = memory_problem(COST, shared, 2, 12e9)
    assert "22 GB of memory needed on each of 2 GPUs, 12 GB there" in text
    # Four would take 13 GB, with CUDA's context.
    assert text.endswith("-> --workers 4 with train.precision=bf16")
    text = memory_problem(COST, shared, 4, 4e9)
    assert text.endswith("-> larger GPUs; data.groups = 4 allows at most 4 workers")
    # No remedy is what a run already does.
    half = changed(shared, train={"precision": "bf16"})
    assert memory_problem(COST, half, 1, 20e9).endswith("-> --workers 2")


def test_a_run_is_refused_before_it_is_trained(shared: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    class Small:
        total_memory = 10e9

    monkeypatch.setattr(Costs, "of", lambda self, config: COST)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Small())
    with pytest.raises(FplError) as caught:
        check_memory(shared, Workers(0, 2), torch.device("cuda:0"), Costs())
    assert caught.value.exit_code == 2 and caught.value.where == "cuda:0"
    assert "22 GB of memory needed on each of 2 GPUs, 10 GB there" in caught.value.what
    assert caught.value.hint == "--workers 4 with train.precision=bf16"
    Small.total_memory = 80e9
    check_memory(shared, Workers(0, 2), torch.device("cuda:0"), Costs())
    check_memory(shared, Workers(), torch.device("cpu"), Costs())


@pytest.mark.parametrize(
    ("text", "count"), [("24GB", 24e9), (" 32 GiB ", 32 * 2.0**30), ("1.5GB", 1.5e9), ("16000MiB", 16000 * 2.0**20)]
)
def test_an_amount_of_memory(text: str, count: float) -> None:
    assert parse_memory(text) == count


@pytest.mark.parametrize("text", ["24", "GB", "-1GB", "0GB", "24 gigabytes", "24gb"])
def test_no_amount_of_memory(text: str) -> None:
    with pytest.raises(FplError, match="no amount of memory") as caught:
        parse_memory(text)
    assert caught.value.where == "--gpu-memory" and "24GB" in (caught.value.hint or "")
