"""CutMix-Seg against the published rule, written out in plain PyTorch."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fpl.config.compose import load_config
from fpl.config.schema import RunConfig
from fpl.data.augment import cutmix_masks
from fpl.data.batches import Batch
from fpl.errors import FplError
from fpl.methods.base import Clock, Method
from fpl.methods.cutmix_seg.method import CutMixSeg
from fpl.methods.gates import gate
from fpl.train.runtime import Workers
from fpl.train.step import take_step
from tests.methods.support import CLOCK, batch_for, build, disturb

CPU = torch.device("cpu")
# Colours are changed in float32, and most of these tests compute in float64.
NATIVE = ["method.name=cutmix_seg", "loss.kind=mse", "method.strong_colours=false"]
# An untrained network is sure of no more than this of a part of its pixels.
LOW = "method.confidence_gate=0.1"


def configure(run_file: Path, *more: str) -> RunConfig:
    return load_config(run_file, overrides=[*NATIVE, *more])


def sharpened(config: RunConfig) -> CutMixSeg:
    """A method in float64 whose teacher is no copy of the student any more, with larger logits."""
    method = build(config)
    assert isinstance(method, CutMixSeg)
    disturb(method.teacher)
    return method.double().train()


def drawn(config: RunConfig, dtype: torch.dtype = torch.float64) -> Batch:
    """A random batch with padding in the unlabeled images, other in the first than in the second."""
    batch = batch_for(config, 2)
    batch.image = batch.image.to(dtype)
    for draw, edge in zip(batch.unlabeled, (slice(0, 6), slice(30, 40)), strict=True):
        draw.valid = draw.valid.clone()
        draw.valid[1:3, :, edge] = False
        draw.image = draw.image.to(dtype).masked_fill(~draw.valid[:, None], 0.0)
    return batch


def enlarged(network: nn.Module, image: Tensor) -> Tensor:
    small = network.classifier(network.decode(network.encode(image)))  # type: ignore[operator]
    return F.interpolate(small, size=image.shape[-2:], mode="bilinear", align_corners=True)


def published(method: CutMixSeg, batch: Batch, weight: float, threshold: float, per_pixel: bool) -> Tensor:
    """The loss of one step as the released training loop has it, in its order of passes; equal colours."""
    supervised = F.cross_entropy(enlarged(method.network, batch.image), batch.label, ignore_index=255)
    first, second = batch.unlabeled
    size = first.image.shape[-1]
    mask = cutmix_masks(method.config.seed, first.position, (size, size), 1, (0.5, 0.5))[:, None].double()
    with torch.no_grad():
        logits = [enlarged(method.teacher, draw.image) for draw in (first, second)]
    student = enlarged(method.network, first.image * (1 - mask) + second.image * mask)
    valid = first.valid[:, None] * (1 - mask) + second.valid[:, None] * mask
    target = (logits[0] * (1 - mask) + logits[1] * mask).softmax(1)
    sure = (target.max(1).values >= threshold).double()[:, None]
    assert 0 < sure.mean() < 1
    if not per_pixel:
        sure = sure.mean()
    errors = (student.softmax(1) - target).square().sum(1, keepdim=True)
    return supervised + weight * (errors * (valid * sure)).mean()


@pytest.mark.parametrize("kind", ["mean", "pixel"])
def test_a_step_is_the_published_one(run_file: Path, kind: str) -> None:
    """Value, gradients and running statistics, in float64; groups of one image make no difference to plain CE."""
    config = configure(run_file, LOW, f"method.gate_kind={kind}", "method.weight=0.7", "data.groups=1")
    method = sharpened(config)
    other = copy.deepcopy(method)
    batch = drawn(config)
    found = method.losses(batch, CLOCK)
    found.objectives["main"].backward()  # type: ignore[no-untyped-call]
    expected = published(other, batch, 0.7, 0.1, kind == "pixel")
    expected.backward()  # type: ignore[no-untyped-call]
    # The weights of pixels are float32.
    torch.testing.assert_close(found.objectives["main"], expected, rtol=1e-6, atol=0.0)
    for (name, ours), theirs in zip(method.network.named_parameters(), other.network.parameters(), strict=True):
        assert ours.grad is not None and theirs.grad is not None
        largest = float(theirs.grad.abs().max())
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-6 * largest, msg=name)
    for (name, ours), theirs in zip(method.named_buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9, msg=name)
    assert all(parameter.grad is None for parameter in method.teacher.parameters())


def test_squared_errors_are_summed_over_classes_and_no_other_loss_is(run_file: Path) -> None:
    def consistency(*more: str) -> float:
        config = configure(run_file, LOW, *more)
        found = sharpened(config).losses(drawn(config), CLOCK)
        assert found.unsupervised is not None
        value = found.terms["consistency"].item()
        assert found.unsupervised.item() == pytest.approx(value, rel=1e-9) and value > 0
        return value

    assert consistency() == pytest.approx(19 * consistency("method.class_sum=false"), rel=1e-6)
    for kind in ("ce", "fpl", "soft", "mse_logits"):
        config = configure(run_file, f"loss.kind={kind}", "method.class_sum=false")
        # Nothing to sum: the same run.
        assert config == configure(run_file, f"loss.kind={kind}")
        assert build(config).terms_per_pixel == 1


def test_boxes_have_the_area_the_aspect_and_the_places_of_the_published_ones() -> None:
    """Height 0.5^u of the crop's with u uniform: the logarithm of the aspect is uniform in -ln 2 .. ln 2."""
    size, count = (80, 120), 1500
    masks = cutmix_masks(5, range(count), size, 1, (0.5, 0.5)).numpy()
    heights, widths, places = [], [], []
    for mask in masks:
        rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
        height, width = rows[-1] - rows[0] + 1, columns[-1] - columns[0] + 1
        # One box inside the image, true all over; its sides are 0.5^u and 0.5^(1 - u) rounded to whole pixels.
        assert mask.sum() == height * width
        assert abs(width - 120 * 0.5 * 80 / height) <= 0.5 + 120 * 0.5 * 80 * 0.5 / height**2 + 1e-9
        assert 40 <= height <= 80 and 60 <= width <= 120
        heights.append(height / 80)
        widths.append(width / 120)
        if height < 76:
            places.append(rows[0] / (80 - height))
    areas = masks.mean((1, 2))
    assert abs(areas.mean() - 0.5) < 5e-4 and np.abs(areas - 0.5).max() < 0.009
    logarithms = np.sort(np.log(np.array(heights) / np.array(widths)) / math.log(2))
    uniform = (np.arange(count) + 0.5) / count * 2 - 1
    assert np.abs(logarithms - uniform).max() < 0.12
    assert np.abs(np.sort(places) - (np.arange(len(places)) + 0.5) / len(places)).max() < 0.07


def test_the_method_mixes_with_these_boxes(run_file: Path) -> None:
    config = configure(run_file, "data.crop=[40,56]", "method.box_area=0.25")
    method = build(config)
    assert isinstance(method, CutMixSeg)
    (draw, _) = batch_for(config, 2).unlabeled
    boxes = method._boxes(draw)
    assert boxes.shape == (4, 40, 56) and torch.allclose(boxes.float().mean((1, 2)), torch.tensor(0.25), atol=0.02)
    draw.position = draw.position.flip(0)
    assert torch.equal(method._boxes(draw), boxes.flip(0))


def test_the_student_alone_sees_other_colours(run_file: Path) -> None:
    config = configure(run_file, "method.strong_colours=true")
    method = build(config)
    assert isinstance(method, CutMixSeg)
    batch = drawn(config, torch.float32)
    seen: dict[str, list[Tensor]] = {"network": [], "teacher": []}
    for name, images in seen.items():
        part = getattr(method, name).backbone
        part.register_forward_hook(lambda module, inputs, output, images=images: images.append(inputs[0]))
    method.losses(batch, CLOCK)
    first, second = batch.unlabeled
    assert [torch.equal(*pair) for pair in zip(seen["teacher"], (first.image, second.image), strict=True)] == [True] * 2
    labeled, mixed = seen["network"]
    assert torch.equal(labeled, batch.image)
    strong = [method.recoloured(draw, stream).image for stream, draw in enumerate(batch.unlabeled)]
    assert torch.equal(mixed, torch.where(method._boxes(first)[:, None], strong[1], strong[0]))
    # 0.8 are jittered, and 0.2 grey: of these 8 views some differ, and equal images get different views.
    assert not torch.equal(mixed, torch.where(method._boxes(first)[:, None], second.image, first.image))
    assert not torch.equal(method.recoloured(first, 0).image, method.recoloured(first, 1).image)


class OneOfTwo:
    """A worker that knows the other one's share of sure pixels."""

    rank, world_size = 0, 2

    def __init__(self, other: float) -> None:
        self.other = other

    def average(self, value: Tensor) -> Tensor:
        return (value + self.other) / 2

    def concatenate(self, value: Tensor) -> Tensor:
        raise NotImplementedError


def test_the_gate_is_the_mean_over_all_workers(run_file: Path) -> None:
    """Two halves of a batch, each gated by the share of the whole, average to the whole's loss."""
    generator = torch.Generator().manual_seed(0)
    student, teacher = (torch.randn(4, 19, 8, 8, generator=generator, dtype=torch.float64) * 2 for _ in range(2))
    config = configure(run_file, "method.confidence_gate=0.5", "data.groups=2")
    method = build(config)
    assert isinstance(method, CutMixSeg)
    (draw, _) = batch_for(config, 2).unlabeled
    draw.valid = torch.rand(4, 8, 8, generator=generator) < 0.8
    whole, rate = method.consistency(student, teacher, draw)
    sure = (teacher.softmax(1).amax(1) >= 0.5).double()
    assert float(rate) == pytest.approx(float(sure.mean()), rel=1e-6)
    errors = (student.softmax(1) - teacher.softmax(1)).square().mean(1)
    assert float(whole.value) == pytest.approx(float((errors * draw.valid).mean() * sure.mean()), rel=1e-6)
    halves = []
    for own, others in ((slice(0, 2), slice(2, 4)), (slice(2, 4), slice(0, 2))):
        method.workers = OneOfTwo(float(sure[others].mean()))
        draw.valid, valid = draw.valid[own], draw.valid
        halves.append(float(method.consistency(student[own], teacher[own], draw)[0].value))
        draw.valid = valid
    assert sum(halves) / 2 == pytest.approx(float(whole.value), rel=1e-6) and sure[:2].mean() != sure[2:].mean()


def test_statistics_are_of_all_valid_pixels_unless_single_ones_are_left_out(run_file: Path) -> None:
    for kind in ("mean", "pixel"):
        config = configure(run_file, LOW, f"method.gate_kind={kind}")
        method = sharpened(config)
        method.pixel_loss.collect = True
        batch = drawn(config)
        pixels = int(method.losses(batch, CLOCK).pixel_terms["unlabeled"].statistics["pixels"])
        first, second = batch.unlabeled
        valid = torch.where(method._boxes(first), second.valid, first.valid)
        with torch.no_grad():
            teachers = [enlarged(method.teacher, draw.image) for draw in (first, second)]
        sure = gate(torch.where(method._boxes(first)[:, None], *teachers[::-1]), 0.1, "pixel", Workers()).bool()
        assert pixels == int((valid if kind == "mean" else valid & sure).sum()) < valid.numel()


def test_the_teacher_and_its_statistics_are_the_average_of_the_students(run_file: Path) -> None:
    """Closed form after n steps, of all floating entries of the state: 0.8^n of the first, 0.2 * 0.8^k of the others.

    Only with held statistics do the teacher's own passes add nothing to them.
    """
    config = configure(run_file, "method.ema_decay=0.8", "method.held_statistics=all", LOW)
    method = build(config).double().train()
    teacher = copy.deepcopy(dict(method.teacher.state_dict()))
    students = []
    batch = drawn(config)
    optimizers = method.optimizers()
    generator = torch.Generator().manual_seed(0)
    for step in range(5):
        # Statistics that move although they are held, to see that they are followed.
        for buffer in method.network.buffers():
            if buffer.is_floating_point():
                buffer.add_(torch.rand(buffer.shape, generator=generator).double() * 0.1)
        take_step(method, optimizers, batch, Clock(step, 5), config.train, CPU)
        students.append(copy.deepcopy(dict(method.network.state_dict())))
    for name, value in method.teacher.state_dict().items():
        if value.is_floating_point():
            parts = [0.2 * 0.8 ** (4 - step) * student[name] for step, student in enumerate(students)]
            torch.testing.assert_close(value, 0.8**5 * teacher[name] + sum(parts), rtol=1e-9, atol=1e-12, msg=name)
    assert not torch.equal(students[0]["classifier.weight"], students[4]["classifier.weight"])


def test_without_buffers_the_teacher_gathers_statistics_of_its_own(run_file: Path) -> None:
    config = configure(run_file, "method.ema_buffers=false", "method.ema_warm_up=true")
    method = build(config).train()
    take_step(method, method.optimizers(), drawn(config, torch.float32), Clock(0, 2), config.train, CPU)
    student, teacher = method.network.state_dict(), method.teacher.state_dict()
    name = next(name for name in student if name.endswith("running_mean"))
    assert not torch.equal(student[name], teacher[name])
    # The warm-up's first decay is 0.
    assert torch.equal(student["classifier.weight"], teacher["classifier.weight"])


@pytest.mark.parametrize("held", ["none", "backbone", "all"])
def test_held_statistics_stay_in_training(run_file: Path, held: str) -> None:
    config = configure(run_file, f"method.held_statistics={held}")
    method = build(config).eval().train()
    before = copy.deepcopy(method.state_dict())
    method.losses(drawn(config, torch.float32), CLOCK)
    for name, value in method.state_dict().items():
        if name.endswith("num_batches_tracked"):
            stays = held == "all" or (held == "backbone" and ".backbone." in f".{name}")
            assert value - before[name] == (0 if stays else 2), name
    weights = [part.weight for part in method.network.modules() if isinstance(part, nn.BatchNorm2d)]
    assert all(weight.requires_grad for weight in weights)


def test_optimizers(run_file: Path) -> None:
    """Adam of the released code: 1e-6 for the backbone and ten times that behind it, without decay or schedule."""
    rates = ["optim.lr=1e-6", "optim.head_lr_multiplier=10", "optim.weight_decay=0", "optim.poly_power=0"]
    method = build(configure(run_file, "method.optimizer=adam", *rates))
    optimizer = method.optimizers()["main"]
    assert isinstance(optimizer, torch.optim.Adam)
    backbone = {id(parameter) for parameter in method.network.backbone.parameters()}
    for step in (0, 999):
        assert optimizer.set_rate(step, 1000) == 1e-6
        for group in optimizer.param_groups:
            pretrained = id(group["params"][0]) in backbone
            assert group["lr"] == pytest.approx(1e-6 if pretrained else 1e-5) and group["weight_decay"] == 0
            assert group["betas"] == (0.9, 0.999)
    plain = build(configure(run_file)).optimizers()["main"]
    assert isinstance(plain, torch.optim.SGD) and plain.set_rate(50, 100) == pytest.approx(0.05 * 0.5**0.9)
    # Adam has no momentum, so none distinguishes runs.
    assert configure(run_file, "method.optimizer=adam", "optim.momentum=0.5") == configure(
        run_file, "method.optimizer=adam"
    )


def test_ramp_and_evaluated_network(run_file: Path) -> None:
    config = configure(run_file, LOW, "method.ramp=0.5")
    method = sharpened(config)
    found = method.losses(drawn(config), Clock(1, 8))
    assert found.unsupervised is not None
    expected = math.exp(-5 * (1 - 0.25) ** 2) * found.terms["consistency"].item()
    assert found.unsupervised.item() == pytest.approx(expected, rel=1e-9)
    method.eval()
    image = drawn(config).image
    with torch.no_grad():
        assert torch.equal(method.predict(image), method.teacher(image))
        assert not torch.equal(method.predict(image), method.network(image))


def warnings_of(config: RunConfig) -> str:
    return "\n".join(config.method.warnings(config))


def test_warnings_and_problems(run_file: Path) -> None:
    gated = warnings_of(configure(run_file, "loss.kind=fpl", "loss.threshold=0.9"))
    assert "method.confidence_gate = 0.97 is not below loss.threshold = 0.9" in gated and "K = 1" in gated
    assert "weighed by the share" in gated and "set method.confidence_gate = 0" in gated
    pixel = warnings_of(configure(run_file, "loss.kind=fpl", "method.gate_kind=pixel"))
    assert "FPL is nothing but weighted cross-entropy" in pixel
    for fine in (["loss.kind=fpl", "method.confidence_gate=0"], []):
        assert "confidence_gate" not in warnings_of(configure(run_file, *fine))
    assert "another scale" in warnings_of(configure(run_file, "loss.kind=fpl"))
    assert "optim.lr = 0.05" in warnings_of(configure(run_file, "method.optimizer=adam"))
    assert "belong to no weights" in warnings_of(configure(run_file, "method.held_statistics=all"))
    with pytest.raises(FplError, match="teacher_mode"):
        configure(run_file, "method.teacher_mode=eval", "method.ema_buffers=false")
    assert configure(run_file, "method.confidence_gate=0", "method.gate_kind=pixel") == configure(
        run_file, "method.confidence_gate=0"
    )


def test_fpl_under_the_batch_gate_is_fpl_times_the_share(run_file: Path) -> None:
    """And under the gate on pixels, at T or above, weighted cross-entropy: every K is 1."""
    generator = torch.Generator().manual_seed(0)
    student, teacher = (torch.randn(4, 19, 8, 8, generator=generator, dtype=torch.float64) * 3 for _ in range(2))

    def term(*more: str) -> tuple[Method, float, Tensor]:
        config = configure(run_file, "loss.kind=fpl", "loss.threshold=0.6", *more)
        method = build(config)
        assert isinstance(method, CutMixSeg)
        method.pixel_loss.collect = True
        (draw, _) = batch_for(config, 2).unlabeled
        draw.valid = torch.ones(4, 8, 8, dtype=torch.bool)
        found, _ = method.consistency(student, teacher, draw)
        return method, float(found.value), found.statistics["k_histogram"]

    _, plain, histogram = term("method.confidence_gate=0")
    share = float((teacher.softmax(1).amax(1) >= 0.7).double().mean())
    _, gated, also = term("method.confidence_gate=0.7")
    assert gated == pytest.approx(share * plain, rel=1e-5) and torch.equal(histogram, also) and 0 < share < 1
    assert int(histogram[1:].sum()) > 0
    _, _, closed = term("method.confidence_gate=0.7", "method.gate_kind=pixel")
    assert int(closed[0]) > 0 and int(closed[1:].sum()) == 0
