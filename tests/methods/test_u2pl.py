"""U2PL against its published rule, written down a second time, and its phases."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fpl.config.compose import load_config
from fpl.config.schema import RunConfig
from fpl.data.batches import Batch
from fpl.errors import FplError
from fpl.losses.kernels import use
from fpl.methods.base import Clock
from fpl.methods.u2pl.method import U2pl
from fpl.methods.u2pl.options import U2plOptions
from fpl.train.step import take_step
from tests.losses.reference import columns, k_of, naive_losses, weight_of
from tests.methods.contrast_loops import Loops, entropies, pixels_of
from tests.methods.support import batch_for, build, disturb

CPU = torch.device("cpu")
CLASSES, ANCHORS, NEGATIVES = 5, 6, 3
# Dropout is off where a second computation has to give the same numbers; everything is as small as it can be.
PLAIN = [
    *("method.name=u2pl", "loss.kind=ce", "data.groups=2", "data.crop=[33,33]", "model.network=ael"),
    *(f"data.num_classes={CLASSES}", "model.dropout=0.0", "model.head_channels=8", "method.contrast.dropout=0"),
    *(f"method.contrast.anchors={ANCHORS}", f"method.contrast.negatives={NEGATIVES}", "method.contrast.channels=4"),
    *("method.contrast.queue=30", "method.contrast.first_queue=40", "loss.stride=4"),
]
# A quarter of training is over.
QUARTER = Clock(step=25, total=100)


def configured(run_file: Path, *more: str) -> RunConfig:
    return load_config(run_file, overrides=[*PLAIN, *more])


def made(config: RunConfig) -> U2pl:
    """In float64, with a teacher that differs from the student, and both sure of something."""
    method = build(config).double().train()
    assert isinstance(method, U2pl)
    if method.contrast is not None:
        # Queues stay in half precision.
        method.contrast.bank.half()
    disturb(method.teacher)
    for network in (method.network, method.teacher):
        with torch.no_grad():
            network.classifier.weight *= 8.0
    return method


def batch_of(config: RunConfig) -> Batch:
    batch = batch_for(config, 1)
    batch.image, batch.unlabeled[0].image = batch.image.double(), batch.unlabeled[0].image.double()
    return batch


# The published rule.


class Rule(NamedTuple):
    supervised: Tensor
    pseudo_label: Tensor
    contrast: Tensor


def looks(network: torch.nn.Module, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, fused and middle features of images; the first two at a quarter of their size."""
    features = network.backbone(image)  # type: ignore[operator]
    fused = network.fuse(features)  # type: ignore[operator]
    return network.classifier(network.decoder(fused)), fused, features.middle  # type: ignore[operator]


def rule(method: U2pl, batch: Batch, boxes: Tensor, progress: float, kind: str, loops: Loops) -> Rule:
    """One iteration of `train_semi.py` on two processes, each with half of the images.

    Everything is looked at one pixel in four of each axis, where representations are. Drawn numbers are those of
    torch's generator.
    """
    draw, places = batch.unlabeled[0], torch.arange(0, 33, 4)
    method.teacher.eval()
    with torch.no_grad():
        first = looks(method.teacher, draw.image)[0]
    method.teacher.train()
    mixed, labels, groups = torch.empty_like(draw.image), torch.empty_like(first), ((0, 1), (2, 3))
    for own in groups:
        for image in own:
            other = own[(own.index(image) + 1) % 2]
            inside = boxes[image]
            mixed[image] = draw.image[image] * ~inside + draw.image[other] * inside
            thin = inside[places][:, places]
            labels[image] = first[image] * ~thin + first[other] * thin
    # Both processes look at once: batch norm is over all of them.
    whole = torch.cat([torch.cat([batch.image[list(own)], mixed[list(own)]]) for own in groups])
    student, fused, middle = looks(method.network, whole)
    # The auxiliary head looks at labeled images alone.
    auxiliary = method.network.auxiliary(middle[[0, 1, 4, 5]])  # type: ignore[misc]
    auxiliary = F.interpolate(auxiliary, size=(9, 9), mode="bilinear", align_corners=True)
    with torch.no_grad():
        teacher, fused_teacher, _ = looks(method.teacher, whole)
        represented_teacher = method.contrast.teacher_head(fused_teacher)  # type: ignore[union-attr]
    represented = method.contrast.head(fused)  # type: ignore[union-attr]
    label = batch.label[:, places][:, :, places]
    share = 0.2 * (1 - progress)
    supervised, taught, pools, found = [], [], [], []
    for number, own in enumerate(groups):
        labeled, unlabeled = slice(4 * number, 4 * number + 2), slice(4 * number + 2, 4 * number + 4)
        target = label[list(own)]
        supervised.append(
            F.cross_entropy(student[labeled], target, ignore_index=255)
            + 0.4 * F.cross_entropy(auxiliary[2 * number : 2 * number + 2], target, ignore_index=255)
        )
        entropy = entropies(teacher[unlabeled])
        kept = torch.from_numpy(entropy <= np.percentile(entropy, 100 - 100 * share))
        rows = student[unlabeled].movedim(1, -1)[kept]
        targets = labels[list(own)].movedim(1, -1)[kept]
        taught.append(kept.numel() / kept.sum() * pixel_losses(rows, targets, kind).mean())
        both = slice(4 * number, 4 * number + 4)
        pseudo = torch.cat([target, labels[list(own)].argmax(1)])
        pools.append(pixels_of(represented[both], represented_teacher[both], teacher[both], pseudo, 2, entropy))
        found.append(entropy)
    anchors = torch.rand(2, CLASSES, ANCHORS)
    contrast = loops.loss(pools, found, share, anchors, torch.rand(2, CLASSES, ANCHORS, NEGATIVES))
    return Rule(torch.stack(supervised).mean(), torch.stack(taught).mean(), contrast)


def pixel_losses(logits: Tensor, teacher: Tensor, kind: str) -> Tensor:
    """Losses [N] of logits [N, C]: cross-entropy with the teacher's class, or FPL with T = 0.9, concave."""
    if kind == "ce":
        return F.cross_entropy(logits, teacher.argmax(1), reduction="none")
    probabilities = columns(teacher.softmax(1).T[None])
    ks = [k_of(row, 0.9) for row in probabilities]
    weights = torch.tensor([weight_of(row, k, "concave") for row, k in zip(probabilities, ks, strict=True)]).double()
    return weights * naive_losses(logits, teacher, torch.tensor(ks))


@pytest.mark.parametrize(("kind", "definition"), [("ce", "paper"), ("ce", "released"), ("fpl", "paper")])
@pytest.mark.parametrize("mixed", [True, False])
def test_losses_and_gradients_are_those_of_the_published_rule(
    run_file: Path, kind: str, definition: str, mixed: bool
) -> None:
    config = configured(
        run_file,
        f"loss.kind={kind}",
        f"method.contrast.definition={definition}",
        f"method.cutmix_probability={int(mixed)}",
        "method.weight=0.7",
        "method.contrast.weight=0.6",
        "method.contrast.divisor=4",
    )
    method, batch = made(config), batch_of(config)
    twin = copy.deepcopy(method)
    boxes = boxes_of(method, batch)
    assert bool(boxes.any()) == mixed
    loops = Loops((40, 30, 30, 30, 30), definition)
    with use("tensor"):
        for seed in range(2):
            for each in (method, twin):
                each.zero_grad()
            torch.manual_seed(seed)
            found = method.losses(batch, QUARTER)
            torch.manual_seed(seed)
            expected = rule(twin, batch, boxes, 0.25, kind, loops)
            for name, value in expected._asdict().items():
                # The pixel loss takes its weights in float32.
                exact = 1e-7 if name == "pseudo_label" else 1e-9
                torch.testing.assert_close(
                    found.terms[name], value, rtol=exact, atol=1e-11, msg=lambda text, name=name: f"{name}: {text}"
                )
            total = expected.supervised + 0.7 * expected.pseudo_label + 0.6 / 4 * expected.contrast
            torch.testing.assert_close(found.objectives["main"], total, rtol=1e-7, atol=1e-11)
            assert found.unsupervised is not None
            torch.testing.assert_close(found.supervised + found.unsupervised, total, rtol=1e-7, atol=1e-11)
            found.objectives["main"].backward()
            total.backward()
            assert method.contrast is not None and twin.contrast is not None
            pairs = [(method.network, twin.network), (method.contrast.head, twin.contrast.head)]
            for ours, theirs in pairs:
                for (name, one), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
                    torch.testing.assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-7, msg=name)
    assert float(expected.contrast) > 0
    # Running statistics went the same way, the teacher's too.
    for (name, one), other in zip(method.named_buffers(), twin.buffers(), strict=True):
        if "bank" not in name:
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12, msg=name)


def boxes_of(method: U2pl, batch: Batch) -> Tensor:
    """Where the method pastes, found by mixing images that are numbers."""
    draw = copy.deepcopy(batch.unlabeled[0])
    draw.image = torch.arange(4.0).view(4, 1, 1, 1).expand(4, 3, 33, 33).double()
    mixed, _ = method._mix(draw, torch.zeros(4, 1, 9, 9, dtype=torch.float64))
    return (mixed.image != draw.image)[:, 0]


# What is mixed.


def test_a_group_is_mixed_as_a_whole_half_of_the_time(run_file: Path) -> None:
    config = configured(run_file)
    method, batch = made(config), batch_of(config)
    draw = batch.unlabeled[0]
    drawn = []
    for step in range(300):
        draw.position = torch.arange(4) + 4 * step
        boxes = boxes_of(method, batch)
        whole = boxes.flatten(1).any(1)
        assert whole[0] == whole[1] and whole[2] == whole[3]
        drawn.append([bool(whole[0]), bool(whole[2])])
        areas = boxes[whole].float().mean((1, 2))
        assert ((areas - 0.5).abs() < 0.03).all()
    chances = np.array(drawn, dtype=float)
    assert (np.abs(chances.mean(0) - 0.5) < 5 * 0.5 / math.sqrt(300)).all()
    # The groups are independent.
    assert abs(np.corrcoef(chances.T)[0, 1]) < 5 / math.sqrt(300)


def test_the_next_image_of_the_group_is_pasted_with_its_mask_and_truth(run_file: Path) -> None:
    config = configured(run_file, "method.cutmix_probability=1", "data.groups=1")
    method, batch = made(config), batch_of(config)
    draw = batch.unlabeled[0]
    draw.valid = torch.ones(4, 33, 33, dtype=torch.bool)
    draw.valid[2] = False
    draw.truth = torch.arange(4, dtype=torch.uint8).view(4, 1, 1).expand(4, 33, 33).contiguous()
    logits = torch.arange(4.0).view(4, 1, 1, 1).expand(4, 2, 9, 9)
    mixed, teacher = method._mix(draw, logits)
    assert mixed.truth is not None
    for image, other in ((0, 1), (1, 2), (2, 3), (3, 0)):
        inside = mixed.truth[image] == other
        assert 0.4 < inside.float().mean() < 0.6 and (mixed.truth[image][~inside] == image).all()
        expected = torch.where(inside, draw.image[other], draw.image[image])
        assert torch.equal(mixed.image[image], expected)
        assert torch.equal(mixed.valid[image], torch.where(inside, draw.valid[other], draw.valid[image]))
        assert torch.equal(teacher[image, 0], torch.where(inside[::4, ::4], float(other), float(image)))


# What is dropped.


@pytest.mark.parametrize(("step", "share"), [(0, 0.2), (50, 0.1), (99, 0.002)])
def test_the_share_that_is_dropped_falls_and_the_others_weigh_more(run_file: Path, step: int, share: float) -> None:
    config = configured(run_file, "loss.stride=1")
    method = made(config)
    generator = torch.Generator().manual_seed(0)
    student, teacher = (torch.randn(4, CLASSES, 33, 33, generator=generator, dtype=torch.float64) for _ in range(2))
    entropy = torch.rand(4, 33, 33, generator=generator, dtype=torch.float64)
    term = method._taught(student, teacher, entropy, None, Clock(step, 100))
    losses = F.cross_entropy(student, teacher.argmax(1), reduction="none")
    values = []
    for own in (slice(0, 2), slice(2, 4)):
        dropped = math.ceil(share * (2 * 33 * 33 - 1))
        kept = losses[own].flatten()[entropy[own].flatten().argsort()[: 2 * 33 * 33 - dropped]]
        values.append(2 * 33 * 33 / len(kept) * kept.mean())
    assert term.value.item() == pytest.approx(float(sum(values) / 2), rel=1e-6)


def test_nothing_is_dropped_where_the_share_is_none(run_file: Path) -> None:
    method = made(configured(run_file, "method.unreliable=0", "loss.stride=1"))
    student, teacher = (torch.randn(4, CLASSES, 5, 5, dtype=torch.float64) for _ in range(2))
    term = method._taught(student, teacher, torch.rand(4, 5, 5, dtype=torch.float64), None, QUARTER)
    assert term.value.item() == pytest.approx(F.cross_entropy(student, teacher.argmax(1)).item(), rel=1e-12)


# Phases.


def test_phases_of_the_student_and_the_teacher(run_file: Path) -> None:
    """Of 10 steps 2 on labels alone, 3 with copies, then an average that counts from the end of the first phase."""
    config = configured(
        run_file, "method.warm_up=0.2", "method.teacher_copies=0.3", "method.ema_decay=0.7", "train.steps=10"
    )
    method = build(config).train()
    assert isinstance(method, U2pl) and method.contrast is not None
    optimizers, batch = method.optimizers(), batch_for(config, 1)
    pairs = [(method.network, method.teacher), (method.contrast.head, method.contrast.teacher_head)]
    for step in range(10):
        before = copy.deepcopy([list(teacher.parameters()) for _, teacher in pairs])
        heads = copy.deepcopy(list(method.contrast.head.parameters()))
        found = take_step(method, optimizers, batch, Clock(step, 10), config.train, CPU)
        assert list(found.terms) == ["supervised", "pseudo_label", "contrast"]
        warm = step < 2
        assert (found.terms["pseudo_label"] == 0) == warm and bool(found.pixel_terms) != warm
        moved = any(not torch.equal(*pair) for pair in zip(heads, method.contrast.head.parameters(), strict=True))
        assert moved != warm
        # One training pass of each a step: the look for pseudo-labels leaves no trace.
        for network in (method.network, method.teacher):
            counts = {int(value) for name, value in network.named_buffers() if name.endswith("num_batches_tracked")}
            assert counts <= {step + 1, 0} and step + 1 in counts
        decay = 0.0 if step < 5 else min(1 - 1 / (step - 2 + 1), 0.7)
        for (student, teacher), olds in zip(pairs, before, strict=True):
            for old, new, own in zip(olds, teacher.parameters(), student.parameters(), strict=True):
                torch.testing.assert_close(new, decay * old + (1 - decay) * own, rtol=1e-5, atol=1e-7)
    weight = next(iter(method.network.parameters()))
    assert not torch.equal(weight, next(iter(method.teacher.parameters())))


def test_the_warm_up_is_training_on_labels(run_file: Path) -> None:
    config = configured(run_file, "method.warm_up=0.5")
    method, batch = made(config), batch_of(config)
    twin = copy.deepcopy(method)
    found = method.losses(batch, QUARTER)
    _, expected = twin.labeled_loss(twin.network, twin.network.raw(batch.image), batch.label)
    assert torch.equal(found.objectives["main"], expected)
    assert found.unsupervised is not None and found.unsupervised.item() == 0.0
    # What shares of the gradient are taken of needs a way back to the classifier.
    torch.autograd.grad(found.unsupervised, method.probe_parameters())


def test_the_contrast_begins_with_its_start(run_file: Path) -> None:
    config = configured(run_file, "method.contrast.start=0.25")
    method, batch = made(config), batch_of(config)
    assert method.contrast is not None
    early = method.losses(batch, Clock(24, 100))
    assert early.terms["contrast"].item() == 0.0 and int(method.contrast.bank.counts.sum()) == 0
    assert method.losses(batch, QUARTER).terms["contrast"].item() > 0


def test_without_weight_there_is_no_contrast(run_file: Path) -> None:
    config = configured(run_file, "method.contrast.weight=0")
    method = made(config)
    assert method.contrast is None and not any("contrast" in name for name in method.state_dict())
    found = method.losses(batch_of(config), QUARTER)
    assert list(found.terms) == ["supervised", "pseudo_label"]
    # Of all its keys none makes another run.
    assert config == configured(run_file, "method.contrast.weight=0", "method.contrast.channels=9")


def test_the_teacher_is_evaluated(run_file: Path) -> None:
    config = configured(run_file)
    method = made(config).eval()
    image = batch_of(config).image
    with torch.no_grad():
        assert torch.equal(method.predict(image), method.teacher(image))


# What is remembered.


def test_queues_are_in_checkpoints_and_not_in_the_weights_that_are_kept(run_file: Path) -> None:
    """So that a resumed run draws the same negatives; that it does to the bit is a test of all methods."""
    config = configured(run_file)
    method, batch = made(config), batch_of(config)
    torch.manual_seed(0)
    method.losses(batch, QUARTER)
    state = {name for name in method.state_dict() if ".bank." in name}
    assert state == {f"contrast.bank.{name}" for name in ("features", "counts", "positions")}
    assert set(method.state_dict()) - set(method.kept_state()) == state
    other = made(config)
    other.load_state_dict(copy.deepcopy(method.state_dict()))
    values = []
    for each in (method, other):
        torch.manual_seed(1)
        values.append(each.losses(batch, QUARTER).objectives["main"].item())
    assert values[0] == values[1]
    # Without them the next step is another one.
    empty = made(config)
    empty.load_state_dict(copy.deepcopy(method.kept_state()), strict=False)
    torch.manual_seed(1)
    assert empty.losses(batch, QUARTER).terms["contrast"].item() != values[0]


def test_the_heads_are_trained_at_the_rate_of_heads(run_file: Path) -> None:
    method = made(configured(run_file, "optim.head_lr_multiplier=10"))
    optimizer = method.optimizers()["main"]
    assert method.contrast is not None
    heads = {id(parameter) for parameter in method.contrast.head.parameters()}
    rates = {
        group["lr_multiplier"] for group in optimizer.param_groups for item in group["params"] if id(item) in heads
    }
    owned = {id(item) for group in optimizer.param_groups for item in group["params"]}
    assert rates == {10.0} and heads <= owned
    assert not owned & {id(parameter) for parameter in method.contrast.teacher_head.parameters()}


# Options.


def test_defaults_are_the_published_ones(run_file: Path) -> None:
    options = load_config(run_file, overrides=["method.name=u2pl", "loss.kind=ce"]).method
    assert isinstance(options, U2plOptions)
    assert (options.weight, options.unreliable, options.ema_decay, options.cutmix_probability) == (1.0, 0.2, 0.99, 0.5)
    contrast = options.contrast
    assert (contrast.anchors, contrast.negatives, contrast.temperature) == (256, 50, 0.5)
    assert (contrast.low_rank, contrast.high_rank, contrast.anchor_confidence) == (3, 20, 0.3)
    assert (contrast.queue, contrast.first_queue, contrast.channels, contrast.weight) == (30_000, 50_000, 256, 0.1)
    overrides = ["method.name=u2pl", "loss.kind=ce", "data.groups=2"]
    assert not options.warnings(load_config(run_file, overrides=overrides))


def test_problems_and_warnings(run_file: Path) -> None:
    with pytest.raises(FplError, match=r"warm_up = 1 is all of training.*supervised"):
        configured(run_file, "method.warm_up=1.0")
    with pytest.raises(FplError, match=r"method\.contrast\.low_rank = 5 is no rank"):
        configured(run_file, "method.contrast.low_rank=5")
    with pytest.raises(FplError, match=r"unknown key method\.contrast\.queues"):
        configured(run_file, "method.contrast.queues=5")
    config = configured(run_file, "loss.kind=fpl")
    assert "method.unreliable = 0 leaves them to FPL" in "\n".join(config.method.warnings(config))
    config = configured(run_file, "loss.kind=fpl", "method.unreliable=0", "method.contrast.start=1.0")
    (found,) = config.method.warnings(config)
    assert found.startswith("method.contrast.start = 1")


@pytest.mark.parametrize("groups", [(), ("data.groups=4",)], ids=["unset", "4"])
def test_one_unlabeled_image_in_a_group_is_not_mixed(run_file: Path, groups: tuple[str, ...]) -> None:
    overrides = ["method.name=u2pl", "loss.kind=ce", *groups]
    config = load_config(run_file, overrides=overrides)
    (found,) = config.method.warnings(config)
    assert found.startswith("method.cutmix_probability = 0.5 does nothing: each of data.groups = 4 has one of")
    # What it says is so: nothing is mixed.
    method = build(load_config(run_file, overrides=[*overrides, "method.cutmix_probability=1.0"]))
    assert isinstance(method, U2pl)
    draw = batch_for(config, 1).unlabeled[0]
    assert torch.equal(method._mix(draw, torch.zeros(4, 19, 40, 40))[0].image, draw.image)
    config = load_config(run_file, overrides=[*overrides, "method.cutmix_probability=0"])
    assert not config.method.warnings(config)
