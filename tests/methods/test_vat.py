"""VAT against the published rule in plain float64 PyTorch, and its direction against what it is to be."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fpl.config.compose import load_config
from fpl.config.schema import RunConfig
from fpl.data.batches import Batch
from fpl.methods.base import Clock
from fpl.methods.vat.method import Vat
from fpl.methods.vat.perturbation import adaptive_radius, adversarial_direction, fixed_radius, unit_length
from fpl.train.runtime import autocast
from fpl.train.step import take_step
from tests.methods.support import CLOCK, batch_for, build, disturb

CPU = torch.device("cpu")
# Colours are changed in float32, and most of these tests compute in float64.
NATIVE = ["method.name=vat", "loss.kind=soft", "method.strong_colours=false", "data.groups=1"]
# An untrained network is sure of no more than this of a part of its pixels.
LOW = "method.confidence_gate=0.1"


def configure(run_file: Path, *more: str) -> RunConfig:
    return load_config(run_file, overrides=[*NATIVE, *more])


def made(config: RunConfig) -> Vat:
    """A method in float64 whose teacher is no copy of the student any more."""
    method = build(config)
    assert isinstance(method, Vat)
    generator = disturb(method.teacher)
    with torch.no_grad():
        for part in (method.network, method.teacher):
            for buffer in part.buffers():
                if buffer.is_floating_point():
                    buffer.mul_(0.9 + 0.2 * torch.rand(buffer.shape, generator=generator))
    return method.double().train()


def drawn(config: RunConfig, dtype: torch.dtype = torch.float64) -> Batch:
    batch = batch_for(config, 1)
    batch.image = batch.image.to(dtype)
    (draw,) = batch.unlabeled
    draw.valid = draw.valid.clone()
    draw.valid[1:3, :, :7] = False
    draw.image = draw.image.to(dtype).masked_fill(~draw.valid[:, None], 0.0)
    return batch


def enlarged(network: nn.Module, image: Tensor) -> Tensor:
    small = network.classifier(network.decode(network.encode(image)))  # type: ignore[operator]
    return F.interpolate(small, size=image.shape[-2:], mode="bilinear", align_corners=True)


def divided(change: Tensor) -> Tensor:
    return torch.stack([image / (image.pow(2).sum().sqrt() + 1e-12) for image in change])


def published(method: Vat, batch: Batch, noise: Tensor, weight: float, threshold: float) -> Tensor:
    """The loss of one step as the released training loop has it; the student is in train mode again afterwards."""
    options = method.options
    supervised = F.cross_entropy(enlarged(method.network, batch.image), batch.label, ignore_index=255)
    (draw,) = batch.unlabeled
    finder = method.network if options.direction == "student" else method.teacher
    method.teacher.eval()
    finder.eval()
    height, width = draw.image.shape[-2:]
    start = (divided(noise.double()) * (options.start * 1.0e-6 * height * width / 1000)).requires_grad_()
    with torch.no_grad():
        target = enlarged(finder, draw.image).softmax(1)
    moved = F.kl_div(enlarged(finder, draw.image + start).log_softmax(1), target, reduction="none").sum()
    (gradient,) = torch.autograd.grad(moved, start)
    lengths = []
    for image in draw.image:
        if options.adaptive_radius:
            down, right = (torch.diff(image, dim=axis) for axis in (1, 2))
            # The sum of two neighbouring differences spans two pixels.
            down, right = down[:, 1:] + down[:, :-1], right[..., 1:] + right[..., :-1]
            lengths.append(options.radius * 0.5 * (down.pow(2).sum() + right.pow(2).sum()).sqrt())
        else:
            lengths.append(torch.tensor(options.radius * math.sqrt(3 * height * width)))
    change = divided(gradient) * torch.stack(lengths).view(-1, 1, 1, 1)
    with torch.no_grad():
        target = enlarged(method.teacher, draw.image).softmax(1)
    finder.train(finder is method.network)
    student = enlarged(method.network, draw.image + change)
    sure = (target.max(1).values >= threshold).double().mean()
    assert 0 < sure < 1
    divergence = F.kl_div(student.log_softmax(1), target, reduction="none").sum(1)
    return supervised + weight * (divergence * (draw.valid * sure)).mean()


@pytest.mark.parametrize("direction", ["teacher", "student"])
@pytest.mark.parametrize("radius", [["method.radius=0.8"], ["method.adaptive_radius=false", "method.radius=0.1"]])
def test_a_step_is_the_published_one(run_file: Path, direction: str, radius: list[str]) -> None:
    """Value, gradients and running statistics, in float64: the inner pass leaves no trace.

    From a start that is larger than the published one, which even float64 leaves half of its digits.
    """
    radius = [*radius, "method.start=1e5"]
    config = configure(run_file, LOW, "method.weight=0.7", f"method.direction={direction}", *radius)
    method = made(config)
    other = copy.deepcopy(method)
    batch = drawn(config)
    torch.manual_seed(5)
    noise = torch.randn(batch.unlabeled[0].image.shape)
    torch.manual_seed(5)
    found = method.losses(batch, CLOCK)
    assert all(parameter.grad is None for parameter in method.parameters())
    found.objectives["main"].backward()  # type: ignore[no-untyped-call]
    expected = published(other, batch, noise, 0.7, 0.1)
    expected.backward()  # type: ignore[no-untyped-call]
    # The weights of pixels are float32.
    torch.testing.assert_close(found.objectives["main"], expected, rtol=1e-6, atol=0.0)
    for (name, ours), theirs in zip(method.network.named_parameters(), other.network.parameters(), strict=True):
        assert ours.grad is not None and theirs.grad is not None
        largest = float(theirs.grad.abs().max())
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-6 * largest, msg=name)
    for (name, ours), theirs in zip(method.named_buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-9, msg=name)
    assert all(parameter.grad is None for parameter in method.teacher.parameters())


def test_the_direction_moves_the_output_more_than_any_drawn_one(run_file: Path) -> None:
    method = made(configure(run_file))
    image = drawn(method.config).unlabeled[0].image[:1]
    generator = torch.Generator().manual_seed(0)
    directions = unit_length(torch.randn(21, *image.shape[1:], generator=generator, dtype=torch.float64))
    network = method.teacher.eval()
    with torch.no_grad():
        target = network(image)

    def moved(direction: Tensor) -> float:
        with torch.no_grad():
            logits = network(image + 0.05 * direction)
            return float(F.kl_div(logits.log_softmax(1), target.softmax(1), reduction="none").sum())

    found = adversarial_direction(network, target, image, directions[:1] * 1e-3)
    assert float(found.norm()) == pytest.approx(1.0, rel=1e-6)
    # One power iteration multiplies each part of the start by its eigenvalue of the Hessian, so what it finds is moved
    # by a multiple of what a drawn direction is.
    assert moved(found) > 3 * max(moved(each[None]) for each in directions[1:])
    again = adversarial_direction(network, target, image, found * 1e-3)
    assert moved(again) > moved(found)


def test_the_direction_is_the_gradient_by_the_change(run_file: Path) -> None:
    """Against a quadratic form: of a linear map J the KL near 0 is d'Hd / 2 with H = J'(diag q - qq')J, so it is Hd."""
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(5, 12, generator=generator, dtype=torch.float64)
    image = torch.randn(1, 3, 2, 2, generator=generator, dtype=torch.float64)
    start = 1e-6 * unit_length(torch.randn(1, 3, 2, 2, generator=generator, dtype=torch.float64))

    def logits(images: Tensor) -> Tensor:
        return images.flatten(1) @ matrix.T

    probabilities = logits(image)[0].softmax(0)
    hessian = matrix.T @ (probabilities.diag() - probabilities.outer(probabilities)) @ matrix
    expected = hessian @ start.flatten()
    found = adversarial_direction(logits, logits(image), image, start)
    torch.testing.assert_close(found.flatten(), expected / expected.norm(), rtol=1e-4, atol=1e-5)


def test_radii_by_hand() -> None:
    ramp = torch.arange(5.0).expand(1, 2, 4, 5)
    images = torch.cat([ramp, 3 * ramp, ramp.flip(-1)])
    # Differences over two columns are 2, over rows 0: 2 channels, 4 rows, 3 columns of them.
    expected = 0.7 * 0.5 * math.sqrt(2 * 4 * 3 * 2**2)
    assert adaptive_radius(images, 0.7).flatten().tolist() == pytest.approx([expected, 3 * expected, expected])
    assert adaptive_radius(images.transpose(2, 3), 0.7).shape == (3, 1, 1, 1)
    torch.testing.assert_close(adaptive_radius(images.transpose(2, 3), 0.7), adaptive_radius(images, 0.7))
    assert fixed_radius(images, 0.5) == pytest.approx(0.5 * math.sqrt(2 * 4 * 5))
    lengths = unit_length(images).flatten(1).norm(dim=1)
    torch.testing.assert_close(lengths, torch.ones(3))
    assert torch.equal(unit_length(torch.zeros(1, 1, 2, 2)), torch.zeros(1, 1, 2, 2))


def test_the_inner_pass_is_float32_under_bf16_and_touches_no_gradient(run_file: Path) -> None:
    config = configure(run_file, "method.strong_colours=true", "train.precision=bf16", LOW)
    method = build(config).train()
    assert isinstance(method, Vat)
    kinds: dict[str, list[torch.dtype]] = {"network": [], "teacher": []}
    for name, seen in kinds.items():
        part = getattr(method, name).classifier
        part.register_forward_hook(lambda module, inputs, output, seen=seen: seen.append(output.dtype))
    for parameter in method.network.parameters():
        parameter.grad = torch.full_like(parameter, 7.0)
    with autocast(config.train, CPU):
        found = method.losses(drawn(config, torch.float32), CLOCK)
    assert kinds == {"network": [torch.bfloat16] * 2, "teacher": [torch.float32] * 2}
    assert all(bool((parameter.grad == 7.0).all()) for parameter in method.network.parameters())  # type: ignore[union-attr]
    assert all(parameter.grad is None for parameter in method.teacher.parameters())
    assert found.objectives["main"].isfinite()


def test_statistics_move_by_the_two_passes_of_training_alone(run_file: Path) -> None:
    for direction in ("teacher", "student"):
        config = configure(run_file, f"method.direction={direction}")
        method = made(config)
        before = copy.deepcopy(method.state_dict())
        method.losses(drawn(config), CLOCK)
        for name, value in method.state_dict().items():
            if name.endswith("num_batches_tracked"):
                assert value - before[name] == (2 if name.startswith("network") else 0), name
        assert all(part.training for part in method.network.modules())
        assert not any(part.training for part in method.teacher.modules())


def test_the_teacher_is_the_average_with_statistics(run_file: Path) -> None:
    config = configure(run_file, "method.ema_decay=0.8")
    method = made(config)
    first = copy.deepcopy(method.teacher.state_dict())
    optimizers, students = method.optimizers(), []
    for step in range(3):
        take_step(method, optimizers, drawn(config), Clock(step, 3), config.train, CPU)
        students.append(copy.deepcopy(method.network.state_dict()))
    for name, value in method.teacher.state_dict().items():
        if value.is_floating_point():
            parts = [0.2 * 0.8 ** (2 - step) * student[name] for step, student in enumerate(students)]
            torch.testing.assert_close(value, 0.8**3 * first[name] + sum(parts), rtol=1e-9, atol=1e-12, msg=name)
    image = drawn(config).image
    method.eval()
    with torch.no_grad():
        assert torch.equal(method.predict(image), method.teacher(image))


def test_padding_has_no_part_in_the_consistency(run_file: Path) -> None:
    config = configure(run_file, LOW)
    method = made(config)
    (draw,) = drawn(config).unlabeled
    generator = torch.Generator().manual_seed(0)
    student, teacher = (torch.randn(4, 19, 40, 40, generator=generator, dtype=torch.float64) for _ in range(2))
    student.requires_grad_()
    term, rate = method.consistency(student, teacher, draw)
    term.value.backward()  # type: ignore[no-untyped-call]
    assert student.grad is not None and 0 < rate <= 1
    touched = student.grad.abs().sum(1) > 0
    assert torch.equal(touched, draw.valid) and not bool(draw.valid.all())


def test_colours_change_before_the_perturbation(run_file: Path) -> None:
    """Both the direction and the student start from the recoloured image; the target is of the plain one."""
    config = configure(run_file, "method.strong_colours=true", "method.radius=1e-6")
    method = build(config).train()
    assert isinstance(method, Vat)
    batch = drawn(config, torch.float32)
    seen: dict[str, list[Tensor]] = {"network": [], "teacher": []}
    for name, images in seen.items():
        part = getattr(method, name).backbone
        part.register_forward_hook(lambda module, inputs, output, images=images: images.append(inputs[0].detach()))
    method.losses(batch, CLOCK)
    recoloured = method.recoloured(batch.unlabeled[0]).image
    assert not torch.equal(recoloured, batch.unlabeled[0].image)
    plain, perturbed = seen["teacher"]
    assert torch.equal(plain, batch.unlabeled[0].image)
    for image in (perturbed, seen["network"][1]):
        torch.testing.assert_close(image, recoloured, rtol=0, atol=1e-5)


def cosine_to_float64(method: Vat, start: float) -> float:
    """Of the direction that float32 finds to that of float64, on equal colours."""
    image = torch.randn(1, 3, 40, 40, generator=torch.Generator().manual_seed(2))
    noise = unit_length(torch.randn(1, 3, 40, 40, generator=torch.Generator().manual_seed(4)))
    directions = []
    for dtype in (torch.float64, torch.float32):
        network = copy.deepcopy(method.teacher).to(dtype).eval()
        with torch.no_grad():
            target = network(image.to(dtype))
        length = start * 1e-9 * 40 * 40
        directions.append(adversarial_direction(network, target, image.to(dtype), noise.to(dtype) * length).double())
    return float((directions[0] * directions[1]).sum())


def test_a_start_that_float32_cannot_see_is_warned_of(run_file: Path) -> None:
    """The published constant gives noise where the colours are equal; the least that is suggested does not."""
    config = configure(run_file)
    (found,) = [line for line in config.method.warnings(config) if "method.start" in line]
    suggested = float(found.split("method.start = ")[2].split()[0])
    method = made(config)
    assert cosine_to_float64(method, 1.0) < 0.5
    assert cosine_to_float64(method, suggested) > 0.9
    for fine in ([f"method.start={2 * suggested}"], ["method.strong_colours=true"]):
        config = configure(run_file, *fine)
        assert not any("method.start" in line for line in config.method.warnings(config))


def test_warnings_of_the_gate_and_of_the_kind(run_file: Path) -> None:
    for kind, expected in (("soft", False), ("fpl", False), ("ce", False), ("mse", True)):
        config = configure(run_file, f"loss.kind={kind}")
        assert any("another scale" in line for line in config.method.warnings(config)) is expected
    gated = configure(run_file, "loss.kind=fpl")
    assert any("weighed by the share" in line for line in gated.method.warnings(gated))
    pixel = configure(run_file, "loss.kind=fpl", "method.gate_kind=pixel")
    assert any("nothing but weighted cross-entropy" in line for line in pixel.method.warnings(pixel))
