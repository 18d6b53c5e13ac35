"""AEL's step against hand-built expectations."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fpl.config.compose import load_config
from fpl.config.schema import RunConfig
from fpl.data.augment import normalise
from fpl.data.batches import Batch, Labeled, PasteRequest
from fpl.losses import fuzzy_positive_loss
from fpl.methods.ael.bank import class_confidence
from fpl.methods.ael.method import Ael
from fpl.methods.ael.mix import pixel_weights
from fpl.methods.base import Clock
from fpl.models import build_network
from fpl.train.runtime import autocast
from tests.methods.support import CLOCK, assert_all_learn, batch_for, build

# Dropout and sampling are off where a second computation has to give the same numbers.
PLAIN = ["method.name=ael", "data.groups=2", "model.network=ael", "loss.kind=ce", "model.dropout=0.0"]


class Source:
    """Unlabeled images of which number i is i all over."""

    count = 7

    def __init__(self, crop: tuple[int, int]) -> None:
        self.crop = crop
        self.asked: list[tuple[int, int]] = []

    def read(self, index: int, position: int) -> tuple[Tensor, Tensor]:
        self.asked.append((index, position))
        image = torch.full((3, *self.crop), 30 * index, dtype=torch.uint8)
        image[:, ::2, ::3] += 20
        return image, torch.ones(self.crop, dtype=torch.bool)

    def truth(self, index: int, position: int) -> Tensor:
        return self.read(index, position)[0][0]


def ael(run_file: Path, *overrides: str) -> tuple[RunConfig, Ael]:
    config = load_config(run_file, overrides=[*PLAIN, *overrides])
    method = build(config)
    assert isinstance(method, Ael)
    method.attach(Source(config.data.crop))
    return config, method


def batch_of(config: RunConfig, *, partner: bool = False) -> Batch:
    batch = batch_for(config, 1)
    batch.unlabeled[0].index = torch.arange(config.data.unlabeled_batch)
    if partner:
        other = batch_for(config, 1)
        batch.partner = Labeled(other.image.flip(0) + 5, other.label.flip(0), other.valid)
    return batch


def all_random_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fpl.methods.ael.method.component_box", lambda *_: None)


def mixed_by_hand(method: Ael, batch: Batch) -> tuple[Tensor, Tensor]:
    """Mixed images and teacher logits, from the masks that the method itself drew."""
    first = batch.unlabeled[0]
    second, wanted = copy.deepcopy(method)._choose(first)
    teacher = copy.deepcopy(method.teacher)
    with torch.no_grad():
        teacher(batch.image)
        both = teacher(torch.cat([first.image, second.image]))
    images, logits = [], []
    for slot, (chosen, generator) in enumerate(wanted):
        del chosen
        aspect, top, left = generator.random(3)
        height, width = first.image.shape[-2:]
        rows = round(height * 0.5**aspect)
        columns = round(width * 0.5 / 0.5**aspect)
        y, x = round(top * (height - rows)), round(left * (width - columns))
        image, mixed = first.image[slot].clone(), both[slot].clone()
        image[:, y : y + rows, x : x + columns] = second.image[slot, :, y : y + rows, x : x + columns]
        other = both[len(first.image) + slot]
        mixed[:, y : y + rows, x : x + columns] = other[:, y : y + rows, x : x + columns]
        images.append(image)
        logits.append(mixed)
    return torch.stack(images), torch.stack(logits)


def weighted_mean(per_pixel: Tensor, teacher: Tensor, groups: int) -> Tensor:
    """AEL's consistency without sampling: weights confidence^2, summing to 1 in every group, mean over groups."""
    weight = teacher.softmax(1).max(1).values ** 2
    total = [
        (one * loss).sum() / one.sum() for one, loss in zip(weight.chunk(groups), per_pixel.chunk(groups), strict=True)
    ]
    return torch.stack(total).mean()


def test_a_step_by_hand(run_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    all_random_boxes(monkeypatch)
    config, method = ael(run_file, "method.sampling=false", "method.copy_paste=false", "method.weight=0.7")
    batch = batch_of(config)
    images, teacher_mixed = mixed_by_hand(method, batch)
    student, teacher = copy.deepcopy(method.network), copy.deepcopy(method.teacher)
    found = method.losses(batch, CLOCK)

    features = student.encode(batch.image)
    labeled = student.classify(student.decode(features), config.data.crop)
    auxiliary = student.classify_auxiliary(features, config.data.crop)
    supervised = F.cross_entropy(labeled, batch.label, ignore_index=255)
    supervised = supervised + 0.4 * F.cross_entropy(auxiliary, batch.label, ignore_index=255)
    mixed = student(images)
    with torch.no_grad():
        teacher_labeled = teacher(batch.image)
    expected = {"supervised": supervised}
    for name, own, other in (("labeled", labeled, teacher_labeled), ("mixed", mixed, teacher_mixed)):
        loss = F.cross_entropy(own, other.argmax(1), reduction="none")
        expected[f"consistency_{name}"] = weighted_mean(loss, other, groups=2)
    assert set(found.terms) == set(expected)
    for name, value in expected.items():
        torch.testing.assert_close(found.terms[name], value, msg=lambda text, name=name: f"{name}: {text}")
    total = supervised + 0.7 * (expected["consistency_labeled"] + expected["consistency_mixed"])
    torch.testing.assert_close(found.objectives["main"], total)


def test_pasted_images_are_what_is_trained_on(run_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    all_random_boxes(monkeypatch)
    config, method = ael(run_file, "method.sampling=false", "method.confidence_momentum=0.0")
    batch = batch_of(config, partner=True)
    image, label = method._paste(batch)
    assert 0 < (label != batch.label).float().mean() < 1
    student, teacher = copy.deepcopy(method.network), copy.deepcopy(method.teacher)
    found = method.losses(batch, CLOCK)
    features = student.encode(image)
    labeled = student.classify(student.decode(features), config.data.crop)
    auxiliary = student.classify_auxiliary(features, config.data.crop)
    supervised = F.cross_entropy(labeled, label, ignore_index=255)
    supervised = supervised + 0.4 * F.cross_entropy(auxiliary, label, ignore_index=255)
    torch.testing.assert_close(found.terms["supervised"], supervised)
    with torch.no_grad():
        other = teacher(image)
    loss = F.cross_entropy(labeled, other.argmax(1), reduction="none")
    torch.testing.assert_close(found.terms["consistency_labeled"], weighted_mean(loss, other, groups=2))
    torch.testing.assert_close(method.confidence_bank.confidence, class_confidence(labeled, label, 2))


def test_the_loader_is_asked_for_what_the_options_say(run_file: Path) -> None:
    options = ["method.paste_probability=0.3", "method.paste_scales=[0.2,1.5]", "method.paste_partner=same"]
    assert ael(run_file, *options)[1].request.paste == PasteRequest(0.3, (0.2, 1.5), "same")
    assert ael(run_file)[1].request.paste == PasteRequest(0.5, (0.1, 2.0), "other")
    assert ael(run_file, "method.copy_paste=false")[1].request.paste is None


def test_options_reach_what_they_name(run_file: Path) -> None:
    _, method = ael(
        run_file,
        *("method.bank_area=0.3", "method.component_area=0.2", "method.confidence_momentum=0.8"),
        *("method.confidence_power=3.0", "method.sampling_power=2.0", "method.ema_decay=0.25"),
    )
    assert (method.image_bank.area, method.confidence_bank.momentum) == (0.3, 0.8)
    torch.manual_seed(1)
    student, teacher = torch.randn(4, 19, 10, 10), torch.randn(4, 19, 10, 10)
    torch.manual_seed(2)
    value = method._consistency(student, teacher, None).value
    torch.manual_seed(2)
    rates = method.confidence_bank.sampling_rates(2.0)
    weights = pixel_weights(teacher, student, power=3.0, rates=rates, uniform=torch.rand(4, 10, 10), groups=2)
    loss = F.cross_entropy(student, teacher.argmax(1), reduction="none")
    torch.testing.assert_close(value, (weights * loss).sum())
    before = [parameter.clone() for parameter in method.teacher.parameters()]
    method.after_step(Clock(50, 100))
    for old, own, new in zip(before, method.network.parameters(), method.teacher.parameters(), strict=True):
        torch.testing.assert_close(new.detach(), (0.25 * old + 0.75 * own).detach())


def test_a_component_below_the_area_leaves_a_random_box(run_file: Path) -> None:
    # The class covers 100 of 1,600 pixels: more than 0.05 of them, less than 0.07.
    boxes = {}
    for area in (0.05, 0.07):
        config, method = ael(run_file, f"method.component_area={area}")
        first = batch_of(config).unlabeled[0]
        second, wanted = method._choose(first)
        teacher = torch.zeros(8, 19, 40, 40)
        for slot, (chosen, _) in enumerate(wanted):
            teacher[2 * slot + 1, (chosen + 1) % 19] = 1.0
            teacher[2 * slot + 1, chosen, 10:20, 5:15] = 2.0
        mixed, _ = method._mix(first, second, wanted, teacher)
        boxes[area] = (mixed.image == second.image).all(1).float().mean((1, 2))
    torch.testing.assert_close(boxes[0.05], torch.full((4,), 100 / 1600))
    assert bool((boxes[0.07] > 0.4).all())


def test_fpl_takes_the_place_of_cross_entropy(run_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    all_random_boxes(monkeypatch)
    config, method = ael(
        run_file, "method.sampling=false", "method.copy_paste=false", "loss.kind=fpl", "loss.threshold=0.4"
    )
    batch = batch_of(config)
    images, teacher_mixed = mixed_by_hand(method, batch)
    student = copy.deepcopy(method.network)
    found = method.losses(batch, CLOCK)
    student(batch.image)
    loss = fuzzy_positive_loss(student(images), teacher_mixed, threshold=0.4, reduction="none")
    torch.testing.assert_close(found.terms["consistency_mixed"], weighted_mean(loss, teacher_mixed, groups=2))


def test_release_balances_each_term_by_plain_means_over_all_pixels(run_file: Path) -> None:
    _, method = ael(run_file, "loss.kind=fpl", "loss.fidelity=released", "loss.threshold=0.4")
    torch.manual_seed(1)
    student, teacher = torch.randn(4, 19, 10, 10), 3 * torch.randn(4, 19, 10, 10)
    torch.manual_seed(2)
    value = method.pixel_loss.total([method._consistency(student, teacher, None)])
    torch.manual_seed(2)
    rates = method.confidence_bank.sampling_rates(1.0)
    weights = pixel_weights(teacher, student, power=2.0, rates=rates, uniform=torch.rand(4, 10, 10), groups=2)
    assert 0 < (weights == 0).float().mean() < 1
    plain = fuzzy_positive_loss(student, teacher, threshold=0.4, fidelity="released", reduction="none")
    # A factor for each group of two images, and the weights of both groups together sum to 1.
    expected = torch.zeros(())
    for group in (slice(0, 2), slice(2, 4)):
        balance = F.cross_entropy(student[group], teacher[group].argmax(1)) / plain[group].mean()
        expected = expected + (weights[group] * plain[group]).sum() * balance
    torch.testing.assert_close(value, expected)


def test_statistics_cover_all_pixels_sampled_or_not(run_file: Path) -> None:
    _, method = ael(run_file, "method.confidence_gate=0.9")
    method.pixel_loss.collect = True
    term = method._consistency(torch.randn(4, 19, 5, 5), torch.randn(4, 19, 5, 5), None)
    assert int(term.statistics["pixels"]) == 100 and float(term.value) == 0.0


def test_a_gate_of_at_least_t_makes_fpl_weighted_cross_entropy(run_file: Path) -> None:
    student, teacher = torch.randn(4, 19, 8, 8), 6 * torch.randn(4, 19, 8, 8)
    gated: dict[str, Tensor] = {}
    for kind, more in (("ce", []), ("fpl", ["loss.weight=none", "loss.threshold=0.6"])):
        _, method = ael(run_file, f"loss.kind={kind}", *more, "method.confidence_gate=0.6", "method.sampling=false")
        gated[kind] = method._consistency(student, teacher, None).value
    torch.testing.assert_close(gated["fpl"], gated["ce"])
    _, method = ael(run_file, "loss.kind=fpl", "loss.weight=none", "loss.threshold=0.6", "method.sampling=false")
    assert abs(method._consistency(student, teacher, None).value - gated["ce"]) > 1e-3


def test_pasted_pixels_are_of_the_drawn_classes(run_file: Path) -> None:
    config, method = ael(run_file, "method.paste_classes=2")
    batch = batch_of(config, partner=True)
    assert batch.partner is not None
    image, label = method._paste(batch)
    changed = (image != batch.image).any(1)
    assert torch.equal(label, torch.where(changed, batch.partner.label, batch.label))
    assert torch.equal(image, torch.where(changed.unsqueeze(1), batch.partner.image, batch.image))
    excluded = {0, 1, 2, 8, 10}
    for group in (slice(0, 2), slice(2, 4)):
        pasted = {int(value) for value in label[group][changed[group]].unique()}
        assert 1 <= len(pasted) <= 2 and not pasted & excluded
        there = torch.isin(batch.partner.label[group], torch.tensor(sorted(pasted)))
        assert torch.equal(label[group][there], batch.partner.label[group][there])
    again = method._paste(batch)
    assert torch.equal(again[1], label), "drawn for seed and step alone"


def test_unsure_classes_are_pasted_more_often(run_file: Path) -> None:
    config, method = ael(run_file, "method.paste_classes=1")
    method.confidence_bank.confidence.fill_(1.0)
    method.confidence_bank.confidence[5] = 0.0
    batch = batch_of(config, partner=True)
    assert batch.partner is not None
    # All classes everywhere: what is pasted is what was drawn.
    drawn = []
    for step in range(300):
        batch.step = step
        batch.label = torch.full_like(batch.label, 255)
        _, label = method._paste(batch)
        drawn += [int(part[part != 255][0]) for part in label.chunk(2)]
    share = drawn.count(5) / len(drawn)
    # softmax(sqrt(1 - c)) over 14 targets: e for class 5, 1 for the 13 others.
    assert abs(share - np.e / (np.e + 13)) < 0.05


def test_second_images_are_those_that_hold_the_class(run_file: Path) -> None:
    config, method = ael(run_file)
    method.confidence_bank.confidence.fill_(1.0)
    method.image_bank.bits[:, [2, 5]] = True
    source = method.source
    assert isinstance(source, Source)
    second, wanted = method._choose(batch_of(config).unlabeled[0])
    assert set(second.index.tolist()) <= {2, 5} and len(wanted) == 4
    assert source.asked == list(zip(second.index.tolist(), range(4), strict=True))
    expected = normalise(torch.full((3, 40, 40), 30 * int(second.index[0]), dtype=torch.uint8), second.valid[0])
    torch.testing.assert_close(second.image[0, :, 1::2], expected[:, 1::2])


def test_a_component_of_the_chosen_class_is_cut(run_file: Path) -> None:
    config, method = ael(run_file, "method.component_area=0.02")
    first = batch_of(config).unlabeled[0]
    second, wanted = method._choose(first)
    teacher = torch.zeros(8, 19, 40, 40)
    teacher[::2, 7] = 1.0
    for slot, (chosen, _) in enumerate(wanted):
        teacher[2 * slot + 1, (chosen + 1) % 19] = 1.0
        teacher[2 * slot + 1, chosen, 10:20, 5:15] = 2.0
    mixed, logits = method._mix(first, second, wanted, teacher)
    inside = torch.zeros(40, 40, dtype=torch.bool)
    inside[10:20, 5:15] = True
    assert torch.equal(mixed.image, torch.where(inside, second.image, first.image))
    assert torch.equal(logits, torch.where(inside, teacher[1::2], teacher[::2]))
    held: dict[int, set[int]] = {}
    for slot, ((chosen, _), index) in enumerate(zip(wanted, second.index.tolist(), strict=True)):
        held |= {slot: {7}}
        held |= {index: {chosen, (chosen + 1) % 19}}
    for index in range(7):
        found = set(method.image_bank.bits[:, index].nonzero().flatten().tolist())
        assert found == held.get(index, set())


def test_the_bank_is_updated_before_the_consistency_losses(run_file: Path) -> None:
    config, method = ael(run_file, "method.copy_paste=false", "method.confidence_momentum=0.0")
    batch = batch_of(config)
    student = copy.deepcopy(method.network)
    seen: list[Tensor] = []
    original = method._consistency

    def spy(*logits: Tensor) -> Any:
        seen.append(method.confidence_bank.confidence.clone())
        return original(*logits)

    method._consistency = spy  # type: ignore[method-assign]
    method.losses(batch, CLOCK)
    expected = class_confidence(student(batch.image), batch.label, 2)
    assert len(seen) == 2
    torch.testing.assert_close(seen[0], expected)


@pytest.mark.parametrize(("ramp", "factor"), [(0.0, 1.0), (1.0, 0.5), (0.75, 2 / 3)])
def test_ramp(run_file: Path, ramp: float, factor: float) -> None:
    config, method = ael(run_file, f"method.ramp={ramp}", "method.weight=2.0")
    found = method.losses(batch_of(config), CLOCK)
    both = found.terms["consistency_labeled"] + found.terms["consistency_mixed"]
    torch.testing.assert_close(found.unsupervised, 2.0 * factor * both)


def test_teacher_is_another_network_and_then_the_students_average(run_file: Path) -> None:
    _, method = ael(run_file)
    student, teacher = dict(method.network.named_parameters()), dict(method.teacher.named_parameters())
    assert any(not torch.equal(student[name], teacher[name]) for name in student)
    statistics = {name: value.clone() for name, value in method.teacher.named_buffers()}
    for value in student.values():
        value.data.add_(0.5)
    method.after_step(Clock(0, 10))
    assert all(torch.equal(student[name], teacher[name]) for name in student)
    assert all(torch.equal(value, statistics[name]) for name, value in method.teacher.named_buffers())
    before = {name: value.clone() for name, value in teacher.items()}
    for value in student.values():
        value.data.add_(1.0)
    method.after_step(Clock(1, 10))  # decay 1/2
    for name, value in teacher.items():
        torch.testing.assert_close(value.detach(), before[name].detach() + 0.5)


def test_two_networks_are_built_and_none_is_copied(run_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def copied(_: object) -> None:
        raise AssertionError("a copy that is thrown away")

    monkeypatch.setattr("fpl.methods.teacher.teacher_of", copied)
    config, method = ael(run_file)
    # In the order of their making: the student's numbers are drawn first.
    torch.manual_seed(0)
    for network in (method.network, method.teacher):
        drawn = build_network(config.model, config.data.num_classes).state_dict()
        assert all(torch.equal(value, drawn[name]) for name, value in network.state_dict().items())
    assert not any(parameter.requires_grad for parameter in method.teacher.parameters())


def test_teacher_trains_its_own_statistics_and_nothing_else(run_file: Path) -> None:
    config, method = ael(run_file)
    method.train()
    found = method.losses(batch_of(config), CLOCK)
    found.objectives["main"].backward()
    assert all(parameter.grad is None for parameter in method.teacher.parameters())
    assert all(parameter.grad is not None for parameter in method.network.parameters())
    counters = [int(v) for name, v in method.teacher.named_buffers() if name.endswith("num_batches_tracked")]
    # Labeled images, and both unlabeled ones together; the auxiliary head is not used.
    assert max(counters) == 2
    (optimizer,) = method.optimizers().values()
    trained = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    assert trained == {id(parameter) for parameter in method.network.parameters()}


def test_teacher_mode_eval_is_deaf_to_the_batch(run_file: Path) -> None:
    config, method = ael(run_file, "method.teacher_mode=eval", "method.ema_buffers=true")
    method.train()
    before = {name: value.clone() for name, value in method.teacher.named_buffers()}
    method.losses(batch_of(config), CLOCK)
    assert all(torch.equal(value, before[name]) for name, value in method.teacher.named_buffers())
    method.after_step(Clock(0, 10))
    own, other = dict(method.teacher.named_buffers()), dict(method.network.named_buffers())
    assert all(torch.equal(own[name], other[name]) for name in own)


def test_the_teacher_is_evaluated(run_file: Path) -> None:
    config, method = ael(run_file)
    method.eval()
    image = batch_of(config).image
    torch.testing.assert_close(method.predict(image), method.teacher(image))
    assert not torch.equal(method.predict(image), method.network(image))


@pytest.mark.parametrize("network", ["ael", "cps"])
def test_losses_may_see_every_fourth_pixel_and_either_network(run_file: Path, network: str) -> None:
    config, method = ael(run_file, "loss.stride=4", f"model.network={network}")
    found = method.losses(batch_of(config, partner=True), CLOCK)
    found.objectives["main"].backward()
    assert all(bool(p.grad.isfinite().all()) for p in method.network.parameters() if p.grad is not None)
    assert (method.network.auxiliary is None) == (network == "cps")


def test_every_parameter_learns_under_bf16(run_file: Path) -> None:
    config, method = ael(run_file, "train.precision=bf16", "loss.kind=fpl")
    with autocast(config.train, torch.device("cpu")):
        found = method.losses(batch_of(config, partner=True), CLOCK)
    found.objectives["main"].backward()
    assert_all_learn(method)
