"""What one step does to the parameters of a method with several objectives."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fpl.config.compose import load_config
from fpl.config.schema import RunConfig
from fpl.data.batches import Batch
from fpl.errors import FplError
from fpl.methods.base import Clock, Losses, Method
from fpl.methods.optimizers import OptimizerSpec, Scheduled, make_optimizer
from fpl.models import SegmentationNetwork, build_network
from fpl.train.runtime import Workers
from fpl.train.step import take_step

CPU = torch.device("cpu")


class TwoNetworks(Method):
    """Each of two networks has an objective of its own; the second one is trained at odd steps alone."""

    def __init__(self, config: RunConfig, build: object, workers: Workers) -> None:
        super().__init__(config, build, workers)  # type: ignore[arg-type]
        self.second = build_network(config.model, config.data.num_classes)
        self.seen: list[str] = []

    def optimizers(self) -> dict[str, Scheduled]:
        spec = OptimizerSpec(0.1, schedule="constant", momentum=0.0)
        return {
            name: make_optimizer(spec, [network])
            for name, network in (("first", self.network), ("second", self.second))
        }

    def losses(self, batch: Batch, clock: Clock) -> Losses:
        self.seen.append("losses")
        first, second = (self._mean(network, batch.image) for network in (self.network, self.second))
        # What one objective has of the other's network must not reach that network.
        objectives = {"first": first + second}
        if clock.step % 2:
            objectives["second"] = second
        return Losses(objectives, supervised=first)

    def _mean(self, network: SegmentationNetwork, image: Tensor) -> Tensor:
        return network.raw(image).logits.square().mean()

    def after_step(self, clock: Clock) -> None:
        assert not torch.is_grad_enabled()
        self.seen.append(f"after {clock.step}")


@pytest.fixture
def method(run_file: Path) -> TwoNetworks:
    torch.manual_seed(0)
    config = load_config(run_file, overrides=["model.network=ael"])
    return TwoNetworks(config, lambda: build_network(config.model, config.data.num_classes), Workers())


def values(network: SegmentationNetwork) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in network.parameters()]


def drawn(number: int) -> Batch:
    torch.manual_seed(number)
    image = torch.randint(0, 256, (2, 3, 40, 40), dtype=torch.uint8)
    label = torch.zeros(2, 40, 40, dtype=torch.uint8)
    return Batch(image, label, label == 0, [], number)


def step(method: TwoNetworks, number: int, optimizers: dict[str, torch.optim.Optimizer]) -> Losses:
    clock, train = Clock(number, 10), method.config.train
    look = method.seen.append
    return take_step(method, optimizers, drawn(number), clock, train, CPU, before_backward=lambda losses: look("look"))


def test_an_objective_without_an_optimizer_is_refused(method: TwoNetworks, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name with a typing error would train nothing, and look like a run."""
    losses = method.losses
    monkeypatch.setattr(
        method, "losses", lambda *given: Losses({"frist": losses(*given).objectives["first"]}, torch.zeros(()))
    )
    before = values(method.network)
    with pytest.raises(FplError, match=r"objective frist.*\n  -> there are: first, second"):
        step(method, 0, method.optimizers())
    assert all(map(torch.equal, values(method.network), before))


def test_an_absent_objective_moves_nothing(method: TwoNetworks) -> None:
    optimizers = method.optimizers()
    before = values(method.network), values(method.second)
    step(method, 0, optimizers)
    assert method.seen == ["losses", "look", "after 0"]
    assert all(map(torch.equal, before[1], values(method.second)))
    assert not torch.equal(before[0][0], values(method.network)[0])
    assert method.pixel_loss.progress == 0.0
    step(method, 1, optimizers)
    assert not torch.equal(before[1][0], values(method.second)[0])
    assert method.pixel_loss.progress == 0.1


def test_every_objective_reaches_its_own_parameters_alone(method: TwoNetworks) -> None:
    """Both objectives hold the second network's term; its gradient is that of one of them."""
    twin = copy.deepcopy(method)
    step(method, 1, method.optimizers())
    batch = drawn(1).to(CPU)
    # Dropout draws for both networks, one after the other.
    _, term = (twin.train()._mean(network, batch.image) for network in (twin.network, twin.second))
    (expected,) = torch.autograd.grad(term, [twin.second.classifier.weight])
    torch.testing.assert_close(method.second.classifier.weight.grad, expected)


def test_unreached_parameters_stay_without_a_gradient(method: TwoNetworks) -> None:
    optimizers = method.optimizers()
    auxiliary = method.network.auxiliary
    assert auxiliary is not None
    before = [parameter.detach().clone() for parameter in auxiliary.parameters()]
    step(method, 0, optimizers)
    assert all(parameter.grad is None for parameter in auxiliary.parameters())
    assert all(map(torch.equal, before, auxiliary.parameters()))
