"""The contrast of unreliable pixels against loops in float64, and what is remembered of it."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from fpl.config.compose import load_config
from fpl.config.contrast import ContrastOptions
from fpl.errors import FplError
from fpl.methods.contrast import Contrast, Evidence, representation_head
from fpl.methods.teacher import Ema
from fpl.train.runtime import Workers
from tests.methods.contrast_loops import Loops, entropies, pixels_of

CLASSES, CHANNELS, ANCHORS, NEGATIVES = 6, 5, 7, 4
SMALL = {"anchors": ANCHORS, "negatives": NEGATIVES, "channels": CHANNELS, "queue": 9, "first_queue": 14}


def contrast(**options: object) -> Contrast:
    torch.manual_seed(0)
    return Contrast(ContrastOptions(**{**SMALL, **options}), 3, CLASSES, Workers())  # type: ignore[arg-type]


def evidence(seed: int, groups: int, absent: tuple[int, ...] = (), kind: tuple[int, int] = (2, 1)) -> Evidence:
    """Of groups of so many labeled and unlabeled images, everything at one resolution."""
    generator = torch.Generator().manual_seed(seed)
    labeled, unlabeled, side = kind[0] * groups, kind[1] * groups, 4

    def normal(count: int, channels: int) -> Tensor:
        return torch.randn(count, channels, side, side, generator=generator, dtype=torch.float64)

    logits = normal(labeled + unlabeled, CLASSES) * 2
    label = torch.randint(0, CLASSES, (labeled, side, side), generator=generator)
    for number in absent:
        logits[:, number] -= 9.0
        label[label == number] = CLASSES - 1
    # Half of the labels are what the teacher predicts, so that some anchors are sure.
    chunks = zip(logits.chunk(groups), label.chunk(groups), strict=True)
    guessed = [own[: kind[0]].argmax(1) for own, _ in chunks]
    label = torch.where(torch.rand(label.shape, generator=generator) < 0.5, torch.cat(guessed), label)
    label[:, 0] = 255
    pseudo = [own[kind[0] :] for own in logits.chunk(groups)]
    # The look that pseudo-labels are from is not the one that entropies are from.
    noisy = torch.cat(pseudo) + normal(unlabeled, CLASSES)
    for number in absent:
        noisy[:, number] -= 20.0
    student, teacher = normal(labeled + unlabeled, CHANNELS), normal(labeled + unlabeled, CHANNELS)
    entropy = torch.from_numpy(entropies(torch.cat(pseudo)))
    return Evidence(student.requires_grad_(), teacher, logits, label, noisy.argmax(1), entropy)


def by_loops(loops: Loops, seen: Evidence, groups: int, share: float) -> Tensor:
    """The numbers drawn are those of torch's generator: anchors first."""
    anchors = torch.rand(groups, CLASSES, ANCHORS)
    negatives = torch.rand(groups, CLASSES, ANCHORS, NEGATIVES)
    pools = []
    for student, teacher, logits, label, pseudo, entropy in zip(*(part.chunk(groups) for part in seen), strict=True):
        whole = torch.cat([label, pseudo])
        pools.append(pixels_of(student, teacher, logits, whole, len(label), entropy.numpy()))
    entropy = [own.numpy() for own in seen.entropy.chunk(groups)]
    return loops.loss(pools, entropy, share, anchors, negatives)


@pytest.mark.parametrize("definition", ["paper", "released"])
@pytest.mark.parametrize(("groups", "absent"), [(1, ()), (2, ()), (1, (1,)), (2, (1, 3))])
def test_losses_and_gradients_are_those_of_loops(definition: str, groups: int, absent: tuple[int, ...]) -> None:
    """Over steps in which queues fill, run over, and are drawn from."""
    method = contrast(definition=definition, unreliable=0.6)
    loops = Loops((14, 9, 9, 9, 9, 9), definition)
    values = []
    for step, progress in enumerate((0.0, 0.3, 0.6)):
        seen = evidence(step, groups, absent, kind=(2, 3))
        again = seen._replace(student=seen.student.detach().clone().requires_grad_())
        torch.manual_seed(step)
        found = method.loss(seen, groups, progress)
        torch.manual_seed(step)
        expected = by_loops(loops, again, groups, 0.6 * (1 - progress))
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(
            torch.autograd.grad(found, seen.student)[0],
            torch.autograd.grad(expected, again.student)[0],
            rtol=1e-8,
            atol=1e-12,
        )
        values.append(found.item())
        for number, queue in enumerate(loops.queues):
            count, start = int(method.bank.counts[number]), int(method.bank.starts[number])
            assert count == len(queue.vectors)
            kept = method.bank.features[start : start + count].double()
            assert kept.tolist() == [vector.tolist() for vector in queue.vectors]
    assert values[-1] > 0
    if definition == "paper":
        assert int(method.bank.counts.min()) > 0 and int(method.bank.counts[1]) == 9
    else:
        # No queue of a class that is not there, and nothing from labeled images.
        assert method.bank.counts[list(absent)].eq(0).all() and int(method.bank.counts.max()) > 0


def test_the_released_pairs_of_anchors_and_queues_are_of_one_class_while_none_is_absent() -> None:
    """With a class before it absent, the anchors of a class meet the queue of the next one that is there."""
    queues = torch.eye(CLASSES).half()[:, :CHANNELS]
    found = {}
    for absent in ((), (0,)):
        for definition in ("paper", "released"):
            method = contrast(definition=definition, negatives=1)
            seen = evidence(3, 1, absent)
            # Only labels count: every unlabeled pixel is unsure, and none has a label.
            seen = seen._replace(pseudo_label=torch.full_like(seen.pseudo_label, 255))
            seen = seen._replace(
                logits=10.0
                * torch.nn.functional.one_hot(
                    torch.cat([seen.label.clamp_max(CLASSES - 1), torch.zeros_like(seen.pseudo_label)]), CLASSES
                )
                .movedim(-1, 1)
                .double()
            )
            method.bank.push = lambda *_: None  # type: ignore[method-assign]
            for number in range(CLASSES):
                method.bank.features[method.bank.starts[number]] = queues[number]
            method.bank.counts.fill_(1)
            torch.manual_seed(0)
            found[absent, definition] = method.loss(seen, 1, 0.0).item()
    assert found[(), "paper"] == pytest.approx(found[(), "released"], rel=1e-12)
    assert abs(found[(0,), "paper"] - found[(0,), "released"]) > 1e-3


def test_masks_are_thinned_to_the_representations() -> None:
    """Labels and entropies may lie closer than representations: the nearest one of each counts."""
    method, other = contrast(), contrast()
    seen = evidence(5, 1)

    def spread(values: Tensor) -> Tensor:
        """The same values three places apart, with others between them."""
        wide = torch.zeros(len(values), 10, 10, dtype=values.dtype)
        wide[:, ::3, ::3] = values
        return wide

    # So that percentiles are equal, too, the values between are those of the pixels themselves.
    between = seen.entropy.repeat_interleave(3, 1).repeat_interleave(3, 2)[:, 1:11, 1:11]
    between[:, ::3, ::3] = seen.entropy
    wide = seen._replace(label=spread(seen.label), pseudo_label=spread(seen.pseudo_label), entropy=between)
    roles = method._roles(wide, 0.5)
    limit = np.percentile(between.numpy(), 50)
    expected = other._roles(seen, 0.5)
    assert torch.equal(roles[0][:2], expected[0][:2]) and torch.equal(roles[2][:2], expected[2][:2])
    shown = torch.nn.functional.one_hot(seen.pseudo_label[0], CLASSES).bool() & (seen.entropy[0] <= limit)[..., None]
    assert torch.equal(roles[0][2], shown.movedim(-1, 0))


def test_one_class_alone_has_nothing_to_differ_from() -> None:
    method = contrast()
    seen = evidence(0, 1)
    seen = seen._replace(label=torch.full_like(seen.label, 2), pseudo_label=torch.full_like(seen.pseudo_label, 2))
    found = method.loss(seen, 1, 0.0)
    assert found.item() == 0.0
    assert torch.autograd.grad(found, seen.student)[0].eq(0).all()


def test_empty_queues_and_missing_anchors_are_finite() -> None:
    method = contrast(anchor_confidence=1.0)
    seen = evidence(0, 2)
    found = method.loss(seen, 2, 0.0)
    assert found.item() == 0.0
    assert torch.autograd.grad(found, seen.student)[0].eq(0).all()


def test_bfloat16_representations_are_contrasted_in_float32() -> None:
    method, seen = contrast(), evidence(1, 1)
    rough = seen._replace(
        student=seen.student.detach().bfloat16(), teacher=seen.teacher.bfloat16(), logits=seen.logits.float()
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.manual_seed(0)
        found = method.loss(rough, 1, 0.0)
    same = contrast()
    torch.manual_seed(0)
    expected = same.loss(rough._replace(student=rough.student.float(), teacher=rough.teacher.float()), 1, 0.0)
    assert found.dtype == torch.float32 and torch.equal(found, expected)


def test_share_falls_or_stays() -> None:
    assert [ContrastOptions().share_unreliable(progress) for progress in (0.0, 0.5, 0.75)] == [0.2, 0.1, 0.05]
    assert ContrastOptions(falling=False).share_unreliable(0.75) == 0.2


def test_representation_head_has_the_published_size() -> None:
    head = representation_head(512, 256, 0.1)
    convolutions = (512 * 9 * 256 + 256) + (256 * 9 * 256 + 256) + (256 * 256 + 256)
    assert sum(parameter.numel() for parameter in head.parameters()) == convolutions + 4 * 256
    assert head(torch.randn(2, 512, 5, 6)).shape == (2, 256, 5, 6)
    assert [part.p for part in head.modules() if hasattr(part, "p")] == [0.1, 0.1]


def test_the_teachers_head_is_the_average_of_the_students() -> None:
    method = contrast()
    assert not any(parameter.requires_grad for parameter in method.teacher_head.parameters())
    first = copy.deepcopy(method.head.state_dict())
    with torch.no_grad():
        for parameter in method.head.parameters():
            parameter.add_(1.0)
    method.follow(Ema(0.75), 5)
    for name, parameter in method.teacher_head.named_parameters():
        torch.testing.assert_close(parameter, first[name] + 0.25)
    method.follow(Ema(0.75), 5, overwrite=True)
    for name, parameter in method.teacher_head.named_parameters():
        assert torch.equal(parameter, method.head.state_dict()[name])


def test_queues_have_the_sizes_asked_for() -> None:
    assert ContrastOptions().capacities(3) == (50_000, 30_000, 30_000)
    assert ContrastOptions(queue=6).capacities(3) == (10, 6, 6)
    bank = contrast().bank
    assert bank.features.dtype == torch.float16 and bank.features.shape == (14 + 5 * 9, CHANNELS)


def test_options_that_nothing_reads_make_no_other_run() -> None:
    assert ContrastOptions(weight=0.0, queue=5, definition="released") == ContrastOptions(weight=0.0)
    assert ContrastOptions(unreliable=0.0, falling=False) == ContrastOptions(unreliable=0.0)
    assert ContrastOptions(first_queue=50_000) == ContrastOptions()


def test_problems_and_warnings_name_the_key(run_file: Path) -> None:
    with pytest.raises(ValueError, match="low_rank = 20 is not below high_rank = 20"):
        ContrastOptions(low_rank=20)
    with pytest.raises(
        FplError, match=r"method.contrast.low_rank = 19 is no rank among data.num_classes = 19.*1 to 18"
    ):
        load_config(run_file, overrides=["method.name=u2pl", "loss.kind=ce", "method.contrast.low_rank=19"])
    load_config(
        run_file,
        overrides=["method.name=u2pl", "loss.kind=ce", "data.num_classes=3", "method.contrast.weight=0"],
    )
    assert ContrastOptions(start=1.0).warnings("here.contrast")[0].startswith("here.contrast.start = 1")
    assert "here.contrast.unreliable = 0" in ContrastOptions(unreliable=0.0).warnings("here.contrast")[0]
    assert not ContrastOptions().warnings("x") and not ContrastOptions(weight=0.0).warnings("x")
