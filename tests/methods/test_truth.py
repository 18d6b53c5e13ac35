"""Diagnostics see the true classes of exactly the pixels that the student is trained on, however they were mixed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fpl.config.compose import load_config
from fpl.methods.ael.method import Ael
from tests.methods.support import CLOCK, batch_for, build

AEL = ["method.name=ael", "method.weight=1", "data.groups=2", "model.network=ael"]


class Source:
    """Images whose first channel is their truth."""

    count = 8

    def __init__(self, crop: tuple[int, int]) -> None:
        self.crop = crop

    def read(self, index: int, position: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(100 * index + position)
        image = torch.randint(0, 19, (3, *self.crop), generator=generator).to(torch.uint8)
        return image, torch.ones(self.crop, dtype=torch.bool)

    def truth(self, index: int, position: int) -> Tensor:
        return self.read(index, position)[0][0]


class Watch:
    """Remembers what the pixel loss is given and which images a network sees."""

    def __init__(self, method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.truths: list[Tensor | None] = []
        self.images: list[Tensor] = []
        forward, raw = method.pixel_loss.forward, method.network.raw

        def loss(*arguments: Any, ground_truth: Tensor | None = None, **keywords: Any) -> Any:
            self.truths.append(ground_truth)
            return forward(*arguments, ground_truth=ground_truth, **keywords)

        def network(image: Tensor) -> Any:
            self.images.append(image)
            return raw(image)

        monkeypatch.setattr(method.pixel_loss, "forward", loss)
        monkeypatch.setattr(method.network, "raw", network)


@pytest.mark.parametrize(
    ("overrides", "seen"),
    [
        # Which of the first network's passes is the student's: with CutMix the third of four.
        (["method.cutmix=true"], [2]),
        (["method.cutmix=false", "method.on_labeled=false"], [1]),
        (["method.cutmix=false", "method.on_labeled=true"], [0, 1]),
    ],
)
@pytest.mark.parametrize("kind", ["ce", "fpl"])
def test_cps(run_file: Path, monkeypatch: pytest.MonkeyPatch, overrides: list[str], seen: list[int], kind: str) -> None:
    config = load_config(run_file, overrides=[*overrides, f"loss.kind={kind}", "loss.stride=2"])
    method = build(config)
    batch = batch_for(config, method.request.draws)
    batch.image[:, 0] = batch.label
    for draw in batch.unlabeled:
        draw.truth = torch.randint(0, 19, draw.valid.shape, generator=torch.Generator().manual_seed(5)).to(torch.uint8)
        draw.truth += draw.position.to(torch.uint8)[:, None, None]
        draw.image[:, 0] = draw.truth
    watch = Watch(method, monkeypatch)
    method.losses(batch, CLOCK)
    # The images of a group, here one of each kind, follow one another.
    shown = torch.stack([method.thin(watch.images[number][:, 0]) for number in seen], dim=1).flatten(0, 1)
    shown = shown.to(torch.uint8)
    assert len(watch.truths) == 2
    for truth in watch.truths:
        assert truth is not None
        assert torch.equal(truth, shown)
    assert len(set(shown.unique().tolist())) > 10


def test_ael(run_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(run_file, overrides=[*AEL, "loss.kind=fpl", "loss.stride=2"])
    method = build(config)
    assert isinstance(method, Ael)
    method.attach(Source(config.data.crop))
    batch = batch_for(config, 1).to("cpu")
    (first,) = batch.unlabeled
    first.index = torch.arange(len(first.image))
    first.truth = torch.stack([Source(config.data.crop).truth(7, int(position)) for position in first.position])
    first.image[:, 0] = first.truth
    choose = method._choose

    def unnormalised(draw: Any) -> Any:
        second, wanted = choose(draw)
        assert second.truth is not None
        second.image[:, 0] = second.truth
        return second, wanted

    monkeypatch.setattr(method, "_choose", unnormalised)
    watch = Watch(method, monkeypatch)
    method.losses(batch, CLOCK)
    labeled, mixed = watch.truths
    assert labeled is not None
    assert mixed is not None
    # The student's passes: labeled, then mixed images.
    assert torch.equal(mixed, method.thin(watch.images[1][:, 0]).to(torch.uint8))
    assert not torch.equal(mixed, method.thin(first.truth))


def test_steps_without_truth_give_none(run_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(run_file, overrides=["method.cutmix=true"])
    method = build(config)
    watch = Watch(method, monkeypatch)
    method.losses(batch_for(config, 2), CLOCK)
    assert watch.truths == [None, None]
