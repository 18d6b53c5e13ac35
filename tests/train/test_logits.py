"""Logits that cannot be scored: not finite, or the same everywhere."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fpl.config.schema import RunConfig
from fpl.methods.cps.method import Cps
from fpl.sweep.places import Places
from fpl.train.logits import WatchedLogits
from fpl.train.runtime import TrainingError, Workers
from tests.train.runs import run


class TwoWorkers(Workers):
    """The other worker's value beside the own one."""

    def __init__(self, other: Tensor | None) -> None:
        object.__setattr__(self, "other", other)

    def gather(self, value: Tensor) -> list[Tensor | None]:
        return [value, self.other]  # type: ignore[attr-defined]


def problem(*batches: Tensor) -> str:
    given = iter(batches)
    watched = WatchedLogits(lambda image: next(given))
    for batch in batches:
        assert watched(torch.zeros(1)) is batch
    return watched.problem(Workers())


def test_what_can_be_scored() -> None:
    one_class = torch.zeros(2, 3, 4, 5)
    one_class[:, 1] = 10 + torch.rand(2, 4, 5)  # class 1 everywhere, by varying margins
    assert problem(one_class) == ""
    constant = torch.tensor([1.0, 2.0]).view(1, 2, 1, 1).expand(1, 2, 3, 3)
    assert problem(constant, torch.nextafter(constant, torch.tensor(9.0))) == ""  # by one bit, in another image
    assert WatchedLogits(lambda image: image).problem(Workers()) == ""  # a worker without an image


def test_what_cannot() -> None:
    constant = torch.tensor([1.0, 2.0]).view(1, 2, 1, 1).expand(1, 2, 3, 3)
    assert "same at every pixel" in problem(constant, constant)
    for value in (float("nan"), float("inf"), -float("inf")):
        bad = torch.rand(1, 4, 3, 3)
        bad[0, 2, 1, 1] = value
        assert problem(torch.rand(1, 4, 3, 3), bad, torch.rand(1, 4, 3, 3)) == (
            "the logits of 1 of 4 classes are not finite (first: class 2)"
        )


def test_all_workers_hear_of_it() -> None:
    watched = WatchedLogits(lambda image: image)
    watched(torch.ones(1, 2, 3, 3))
    same, other = torch.ones(2, 2), torch.zeros(2, 2)
    assert "same at every pixel" in watched.problem(TwoWorkers(same))
    assert watched.problem(TwoWorkers(other)) == ""
    assert "not finite" in watched.problem(TwoWorkers(same * float("nan")))
    assert "same at every pixel" in watched.problem(TwoWorkers(None))


@pytest.mark.parametrize(("factor", "words"), [(0.0, "same at every pixel"), (float("nan"), "not finite")])
def test_such_a_run_has_failed(
    config: RunConfig, places: Places, monkeypatch: pytest.MonkeyPatch, factor: float, words: str
) -> None:
    original = Cps.predict
    monkeypatch.setattr(Cps, "predict", lambda self, image: original(self, image) * factor)
    with pytest.raises(TrainingError, match=f"validation of step 3 .*{words}") as caught:
        run(config, places)
    assert caught.value.exit_code == 1
    assert not list(places.out.glob("runs/*"))
