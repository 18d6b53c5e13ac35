"""Banks against lists in plain Python, and where their buffers are kept."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fpl.config.compose import load_config
from fpl.data.batches import Batch
from fpl.methods.banks import EMPTY, ClassBank, QueueBank
from fpl.methods.base import Clock, Losses
from fpl.methods.supervised.method import Supervised
from fpl.methods.supervised.options import SupervisedOptions
from fpl.sweep.places import Places
from fpl.train.checkpoint import CheckpointFolder, load
from fpl.train.runtime import Workers
from fpl.train.trained import load_trained
from tests.methods.support import build
from tests.train.runs import run, weights


class Two(Workers):
    """Both workers' shares at once: what `concatenate` gives is handed over ready."""

    def concatenate(self, value: Tensor) -> Tensor:
        assert value.ndim
        return value


def rows(bank: QueueBank) -> list[tuple[float, ...]]:
    kept = zip(bank.features.tolist(), bank.labels.tolist(), strict=True)
    return sorted((*feature, label) for feature, label in kept if label != EMPTY)


@pytest.mark.parametrize("sizes", [(3, 3, 3, 3), (7, 2, 9, 1), (20, 4, 7)])
def test_queue_holds_the_last_ones(sizes: tuple[int, ...]) -> None:
    generator, bank, expected = torch.Generator().manual_seed(0), QueueBank(7, 2), deque(maxlen=7)  # type: ignore[var-annotated]
    assert (bank.labels == EMPTY).all()
    for size in sizes:
        features = torch.randn(size, 2, generator=generator, requires_grad=True)
        labels = torch.randint(0, 5, (size,), generator=generator)
        bank.push(features, labels, Workers())
        expected.extend(zip(features.tolist(), labels.tolist(), strict=True))
        assert rows(bank) == sorted((*feature, label) for feature, label in expected)
    assert not bank.features.requires_grad


def test_queues_by_class_hold_the_last_ones_of_each() -> None:
    generator, bank = torch.Generator().manual_seed(0), ClassBank((4, 7, 5), 2)
    expected: list[deque[list[float]]] = [deque(maxlen=capacity) for capacity in (4, 7, 5)]
    begin = (0, 4, 11)
    for size in (4, 6, 1, 30, 3):
        # Whole numbers, which float16 holds exactly; a feature may go to several classes, and to none.
        features = torch.randint(-99, 99, (size, 2), generator=generator).float()
        member = torch.rand(size, 3, generator=generator) < torch.tensor([0.0, 0.3, 0.9])
        bank.push(features, member, Workers())
        for number, queue in enumerate(expected):
            queue.extend(features[member[:, number]].tolist())
            assert bank.counts[number].item() == len(queue)
            assert sorted(bank.features[begin[number] :][: len(queue)].tolist()) == sorted(queue)
    assert bank.counts.tolist() == [0, 7, 5]


def test_two_workers_remember_what_one_does() -> None:
    features, labels = torch.randn(6, 2), torch.arange(6)
    member = torch.rand(6, 3) < 0.5

    class Share(Two):
        """Gives both shares for either worker's one."""

        def concatenate(self, value: Tensor) -> Tensor:
            whole = {2: features, 1: labels}[value.ndim] if value.dtype != torch.uint8 else member.to(torch.uint8)
            assert len(value) == 3
            return whole.to(value.dtype)

    one, other = QueueBank(5, 2), QueueBank(5, 2)
    one.push(features, labels, Workers())
    other.push(features[3:], labels[3:], Share(1, 2))
    assert rows(one) == rows(other)
    many, few = ClassBank((5, 3, 4), 2), ClassBank((5, 3, 4), 2)
    many.push(features, member, Workers())
    few.push(features[:3], member[:3], Share(0, 2))
    for name, value in many.state_dict().items():
        assert torch.equal(value, few.state_dict()[name])


def test_samples_are_uniform_over_what_a_class_has() -> None:
    bank = ClassBank((6, 9, 8), 1)
    bank.push(
        torch.arange(12.0).unsqueeze(1), torch.tensor([[False, True, False]] * 3 + [[False, False, True]] * 9), Two()
    )
    wanted = torch.tensor([[1, 2], [2, 1]])
    uniform = torch.rand(2, 2, 4000, generator=torch.Generator().manual_seed(0))
    found = bank.sample(wanted, uniform)
    assert found.shape == (2, 2, 4000, 1) and found.dtype == torch.float32
    for place, number in (((0, 0), 1), ((0, 1), 2), ((1, 0), 2), ((1, 1), 1)):
        values, counts = found[place].flatten().unique(return_counts=True)
        assert values.tolist() == ([0.0, 1.0, 2.0] if number == 1 else [float(value) for value in range(4, 12)])
        share = 1 / len(values)
        assert ((counts / 4000 - share).abs() < 5 * (share * (1 - share) / 4000) ** 0.5).all()
    edge = torch.tensor([[[0.0, 1 - 2**-24]] * 2] * 2)
    assert bank.sample(wanted, edge)[0, 0].flatten().tolist() == [0.0, 2.0]
    assert bank.sample(torch.tensor([0]), torch.zeros(1, 2)).eq(0).all()


class Remembering(Supervised):
    """Trains as ever, and remembers a number per step."""

    def __init__(self, *args, **keys) -> None:
        super().__init__(*args, **keys)
        self.bank = QueueBank(3, 1)

    def losses(self, batch: Batch, clock: Clock) -> Losses:
        self.bank.push(torch.full((1, 1), float(clock.step)), torch.zeros(1, dtype=torch.int64), self.workers)
        return super().losses(batch, clock)


def test_checkpoints_hold_a_bank_and_kept_weights_do_not(
    run_file: Path, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SupervisedOptions, "implementation", f"{__name__}:Remembering")
    saved: list[dict[str, Tensor]] = []
    original = CheckpointFolder.save_step

    def save_step(self: CheckpointFolder, step: int, state: dict) -> Path:
        path = original(self, step, state)
        saved.append(load(path)["method"])
        return path

    monkeypatch.setattr(CheckpointFolder, "save_step", save_step)
    overrides = ["train.steps=2", "train.evaluate_every=2", "method={name='supervised'}"]
    run(load_config(run_file, overrides=overrides), places)
    assert sorted(saved[-1]["bank.features"].flatten().tolist()) == [0.0, 0.0, 1.0]
    kept = weights(places)
    assert saved[-1].keys() - kept.keys() == {"bank.features", "bank.labels", "bank.position"}
    assert all(torch.equal(value, saved[-1][name]) for name, value in kept.items())
    (path,) = (places.out / "checkpoints").glob("*/last.pt")
    trained = load_trained(path, torch.device("cpu"))
    for name, value in trained.method.network.state_dict().items():
        assert torch.equal(value, kept[f"network.{name}"])


def test_ael_keeps_its_banks_in_both(run_file: Path) -> None:
    overrides = ["method={name='ael'}", "model.network='ael'"]
    method = build(load_config(run_file, overrides=overrides))
    assert list(method.kept_state()) == list(method.state_dict())
    assert {"confidence_bank.confidence", "image_bank.bits"} <= method.kept_state().keys()
