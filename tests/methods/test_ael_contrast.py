"""AEL with a contrast of unreliable pixels, as in U2PL on AEL, against a second computation; and without one."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from fpl.config.compose import load_config
from fpl.config.identity import canonical
from fpl.config.schema import RunConfig
from fpl.data.batches import Batch
from fpl.errors import FplError
from fpl.methods.ael.method import Ael
from fpl.methods.base import Clock
from fpl.train.step import take_step
from tests.methods.contrast_loops import Loops, entropies, pixels_of
from tests.methods.support import disturb
from tests.methods.test_ael import PLAIN, ael, all_random_boxes, batch_of, mixed_by_hand

BASE = Path(__file__).parents[2] / "experiments" / "base"
CLASSES, ANCHORS, NEGATIVES = 5, 6, 3
SMALL = [
    *("data.crop=[33,33]", f"data.num_classes={CLASSES}", "model.head_channels=8"),
    *("method.sampling=false", "method.copy_paste=false", "method.weight=0.7"),
]
CONTRAST = [
    *("method.contrast.dropout=0", f"method.contrast.anchors={ANCHORS}", f"method.contrast.negatives={NEGATIVES}"),
    *("method.contrast.channels=4", "method.contrast.queue=30", "method.contrast.first_queue=40"),
    *("method.contrast.weight=0.6", "method.contrast.divisor=4"),
]
QUARTER = Clock(step=25, total=100)


def made(run_file: Path, *more: str) -> tuple[RunConfig, Ael, Batch]:
    """In float64, with a teacher that differs from the student, and both sure of something."""
    config, method = ael(run_file, *SMALL, *more)
    method = method.double().train()
    disturb(method.teacher)
    for network in (method.network, method.teacher):
        with torch.no_grad():
            network.classifier.weight *= 8.0
    if method.contrast is not None:
        method.contrast.bank.half()
    batch = batch_of(config)
    batch.image, batch.unlabeled[0].image = batch.image.double(), batch.unlabeled[0].image.double()
    return config, method, batch


def by_hand(method: Ael, batch: Batch, images: Tensor, teacher_mixed: Tensor, loops: Loops, share: float) -> Tensor:
    """The contrast of `train.py` in the branch with_AEL, on two processes; the numbers drawn are torch's."""
    assert method.contrast is not None
    places = torch.arange(0, 33, 4)
    thin = teacher_mixed[..., places][..., places, :]
    # Percentiles are of every pixel, representations of one in four of each axis.
    everywhere = entropies(teacher_mixed)
    entropy = everywhere[:, places][:, :, places]
    pseudo, label = thin.argmax(1), batch.label[:, places][..., places]

    def look(network: torch.nn.Module, head: torch.nn.Module, image: Tensor) -> tuple[Tensor, Tensor]:
        fused = network.fuse(network.encode(image))  # type: ignore[operator]
        return network.classifier(network.decoder(fused)), head(fused)  # type: ignore[operator]

    student, student_mixed = (look(method.network, method.contrast.head, each)[1] for each in (batch.image, images))
    with torch.no_grad():
        logits, teacher = look(method.teacher, method.contrast.teacher_head, batch.image)
        teacher_of_mixed = look(method.teacher, method.contrast.teacher_head, images)[1]
    pools = []
    for own in (slice(0, 2), slice(2, 4)):
        pools.append(
            pixels_of(
                torch.cat([student[own], student_mixed[own]]),
                torch.cat([teacher[own], teacher_of_mixed[own]]),
                torch.cat([logits[own], thin[own]]),
                torch.cat([label[own], pseudo[own]]),
                2,
                entropy[own],
            )
        )
    anchors = torch.rand(2, CLASSES, ANCHORS)
    return loops.loss(pools, np.split(everywhere, 2), share, anchors, torch.rand(2, CLASSES, ANCHORS, NEGATIVES))


@pytest.mark.parametrize(("falling", "share"), [("false", 0.2), ("true", 0.15)])
@pytest.mark.parametrize("definition", ["paper", "released"])
def test_a_step_is_that_of_ael_and_the_contrast(
    run_file: Path, monkeypatch: pytest.MonkeyPatch, definition: str, falling: str, share: float
) -> None:
    all_random_boxes(monkeypatch)
    more = [f"method.contrast.definition={definition}", f"method.contrast.falling={falling}"]
    _, method, batch = made(run_file, *CONTRAST, *more)
    _, plain, _ = made(run_file)
    plain.load_state_dict(copy.deepcopy({k: v for k, v in method.state_dict().items() if "contrast" not in k}))
    twin = copy.deepcopy(method)
    images, teacher_mixed = mixed_by_hand(method, batch)
    torch.manual_seed(3)
    found = method.losses(batch, QUARTER)
    without = plain.losses(batch, QUARTER)
    torch.manual_seed(3)
    expected = by_hand(twin, batch, images, teacher_mixed, Loops((40, 30, 30, 30, 30), definition), share)
    if definition == "paper":
        assert float(expected.detach()) > 0
    torch.testing.assert_close(found.terms["contrast"], expected, rtol=1e-7, atol=1e-10)
    for name, value in without.terms.items():
        assert torch.equal(found.terms[name], value), name
    total = without.objectives["main"] + 0.6 / 4 * expected
    torch.testing.assert_close(found.objectives["main"], total, rtol=1e-7, atol=1e-10)
    assert method.contrast is not None and twin.contrast is not None
    ours = torch.autograd.grad(found.terms["contrast"], list(method.contrast.head.parameters()))
    theirs = torch.autograd.grad(expected, list(twin.contrast.head.parameters()))
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)


def test_before_its_start_a_step_is_that_of_ael(run_file: Path) -> None:
    config, method, batch = made(run_file, *CONTRAST, "method.contrast.start=0.3")
    _, plain, _ = made(run_file)
    plain.load_state_dict(copy.deepcopy({k: v for k, v in method.state_dict().items() if "contrast" not in k}))
    assert method.contrast is not None
    for each in (method, plain):
        take_step(each, each.optimizers(), batch, QUARTER, config.train, torch.device("cpu"))
    for name, value in plain.state_dict().items():
        assert torch.equal(method.state_dict()[name], value), name
    assert method.contrast.bank.counts.eq(0).all()
    found = method.losses(batch, Clock(30, 100))
    assert list(found.terms) == ["supervised", "consistency_labeled", "consistency_mixed", "contrast"]
    assert method.contrast.bank.counts.sum() > 0


def test_the_teachers_head_follows_as_the_teacher_does(run_file: Path) -> None:
    config, method, batch = made(run_file, *CONTRAST, "method.ema_decay=0.7")
    assert method.contrast is not None
    before = copy.deepcopy(dict(method.contrast.teacher_head.named_parameters()))
    take_step(method, method.optimizers(), batch, QUARTER, config.train, torch.device("cpu"))
    moved = dict(method.contrast.head.named_parameters())
    for name, parameter in method.contrast.teacher_head.named_parameters():
        torch.testing.assert_close(parameter, 0.7 * before[name] + 0.3 * moved[name])
        assert not torch.equal(moved[name], before[name]) or name.endswith("bias")


def test_without_a_contrast_nothing_of_it_is_there(run_file: Path) -> None:
    config, method = ael(run_file)
    assert method.contrast is None and "contrast" not in canonical(config)
    assert not any("contrast" in name for name in method.state_dict())
    assert load_config(run_file, overrides=[*PLAIN, "method.contrast.weight=0"]) == config
    with_one = load_config(run_file, overrides=[*PLAIN, "method.contrast.weight=0.1"])
    assert '"contrast":{"anchor_confidence":0.3' in canonical(with_one)
    assert config.method.label == "AEL" != with_one.method.label


def test_problems_and_warnings_of_the_contrast_are_told(run_file: Path) -> None:
    with pytest.raises(FplError, match=r"method\.contrast\.low_rank = 19 is no rank"):
        load_config(run_file, overrides=[*PLAIN, "method.contrast.low_rank=19", "method.copy_paste=false"])
    config = load_config(run_file, overrides=[*PLAIN, "method.contrast.start=1.0"])
    assert any(text.startswith("method.contrast.start = 1") for text in config.method.warnings(config))


def test_the_recipe_is_that_of_ael_and_the_published_contrast() -> None:
    whole, plain = (load_config(BASE / f"cityscapes_{name}.toml") for name in ("ael_u2pl", "ael"))
    assert whole.model_copy(update={"method": plain.method}) == plain
    contrast = whole.method.contrast  # type: ignore[attr-defined]
    assert (contrast.weight, contrast.divisor, contrast.start, contrast.falling) == (0.1, 8, 0.1, False)
    assert whole.method.model_copy(update={"contrast": None}) == plain.method
