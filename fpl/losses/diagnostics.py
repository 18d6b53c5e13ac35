"""What the fuzzy positive loss does to the pixels: the quantities that the paper's figures plot (FPL, CVPR 2023).

Cases, gradients and scores are those of :mod:`fpl.losses.scores`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from fpl.losses.checks import check_mask, check_truth, poison, to_compute
from fpl.losses.kernels import cpu_diagnose
from fpl.losses.kernels.contract import make_settings
from fpl.losses.regularization import split_sums
from fpl.losses.resolution import enlarge, make_teaching
from fpl.losses.rules import DEFAULTS, Rules
from fpl.losses.scores import Order, compare, push_by
from fpl.losses.shortcut import Decision

# Logits that are looked at together: what is computed from them takes some twenty times their memory.
CHUNK = 1 << 22


def _published(rules: Rules, strategy: str) -> Rules:
    """Return the rules of the paper, without the bound of the released code, for a strategy."""
    return rules._replace(strategy=strategy, fidelity="paper")


def _slope_sum(student: Tensor, decision: Decision, total: Callable[[Tensor], Tensor]) -> Tensor:
    """Sum s = SUM over negatives of dL/dz over the pixels, for a whole K."""
    slope = split_sums(student, decision.positive).violation.sigmoid().squeeze(1)
    return total(poison(slope, decision.top))


def _sums(
    student: Tensor, teacher: Tensor, truth: Tensor | None, counted: Tensor | None, rules: Rules
) -> dict[str, Tensor]:
    """Do the work of :func:`diagnose` on tensors, logits float32 or float64 at the resolution of the loss."""
    order = Order(teacher)
    classes = student.shape[1]
    included = torch.ones_like(order.top, dtype=torch.bool) if counted is None else counted

    def total(values: Tensor, where: Tensor = included) -> Tensor:
        return torch.where(where, values, 0).sum(dtype=torch.float64)

    def by_k(k: Tensor, values: Tensor) -> Tensor:
        sums = torch.zeros(classes, dtype=torch.float64, device=student.device)
        return sums.index_add_(0, (k - 1)[included], values[included].double())

    decision, uncapped, with_n = map(order.decide, (rules, _published(rules, "n-1"), _published(rules, "n")))
    k, push = decision.k, push_by(student, decision)
    loss, weight = poison(push.loss, order.top), poison(decision.weight, order.top)
    entropy = order.entropy()
    one = torch.ones_like(entropy)
    found = {
        "pixels": included.sum(),
        "k_histogram": by_k(k, one).long(),
        "k_histogram_uncapped": by_k(uncapped.k, one).long(),
        "weight_sum": total(weight),
        "loss_sum": total(loss),
        "weighted_loss_sum": total(loss * weight),
        "cross_entropy_sum": total(poison(F.cross_entropy(student, order.label, reduction="none"), order.top)),
        "entropy_sum_by_k": by_k(k, entropy),
        "entropy_square_sum_by_k": by_k(k, entropy.square()),
        "gradient_sum_n_minus_1": _slope_sum(student, uncapped, total),
        "gradient_sum_n": _slope_sum(student, with_n, total),
    }
    if truth is None:
        return found
    seen = compare(student, order, decision.counted_positive(), push, truth)
    labeled = included & seen.known
    cases = [labeled & (seen.case == number) for number in (1, 2, 3)]

    def by_case(values: Tensor) -> Tensor:
        return torch.stack([total(values, case) for case in cases])

    return found | {
        "labeled_pixels": labeled.sum(),
        "case_pixels": torch.stack([case.sum() for case in cases]),
        "case_1_k1_pixels": (cases[0] & (k == 1)).sum(),
        "vanilla_score_sum": by_case(seen.vanilla_score),
        "vanilla_score_square_sum": by_case(seen.vanilla_score.square()),
        "fuzzy_score_sum": by_case(seen.fuzzy_score),
        "fuzzy_score_square_sum": by_case(seen.fuzzy_score.square()),
        "cosine_fuzzy_sum": total(seen.cosine_fuzzy, cases[1]),
        "cosine_vanilla_sum": total(seen.cosine_vanilla, cases[1]),
        "cosine_fuzzy_positive": (cases[1] & (seen.cosine_fuzzy > 0)).sum(),
        "norm_fuzzy_sum": total(seen.norm_fuzzy, cases[1]),
        "norm_ideal_sum": total(seen.norm_ideal, cases[1]),
        "norm_fuzzy_sum_all": total(seen.norm_fuzzy, labeled),
        "norm_ideal_sum_all": total(seen.norm_ideal, labeled),
    }


def _check(student: Tensor, truth: Tensor | None, counted: Tensor | None, size: tuple[int, int] | None) -> None:
    if truth is not None:
        check_truth(truth, student, size)
    if counted is not None:
        check_mask("counted", counted, student, size)


@torch.no_grad()
def diagnose(
    student_logits: Tensor,
    teacher_logits: Tensor,
    *,
    ground_truth: Tensor | None = None,
    counted: Tensor | None = None,
    second: Tensor | None = None,
    inside: Tensor | None = None,
    size: tuple[int, int] | None = None,
    rules: Rules = DEFAULTS,
) -> dict[str, Tensor]:
    """Measure what the paper's figures 3 to 5 and A1 to A4 show, as sums and counts over the counted pixels.

    Being sums, results of several batches, directions and workers add up; means and shares are quotients of two of
    them. The impurity, for one, is ``case_pixels[2] / labeled_pixels``.

    Args:
        student_logits: [B, C, *spatial], any floating dtype, C >= 2; or [B, C, h, w] with ``size``.
        teacher_logits: Logits of the same shape.
        ground_truth: uint8 or int64 [B, *spatial]; values outside 0 .. C - 1 are unknown.
        counted: bool [B, *spatial], the pixels to count; None is all. The others add nothing, not even if NaN.
        second: Logits of a second teacher, which teaches the pixels of ``inside``.
        inside: bool [B, *spatial].
        size: Enlarge all logits bilinearly (aligned corners) to this (H, W), the resolution of the loss.
        rules: The keywords of :func:`fpl.losses.fuzzy_positive_loss`. They decide K, Y and the weight of everything
            that is not said to have its own.

    Returns:
        Constants on the device of the logits; counts are int64, sums float64.

        Of all counted pixels: ``pixels``; ``k_histogram`` [C], of K = 1 .. C, for ``soft`` the nearest whole number;
        ``k_histogram_uncapped`` [C], the same for the published n-1; ``weight_sum``, ``loss_sum``,
        ``weighted_loss_sum``, ``cross_entropy_sum`` (with the teacher's best class); ``entropy_sum_by_k`` and
        ``entropy_square_sum_by_k`` [C], the teacher's entropy in nats of the pixels of each K;
        ``gradient_sum_n_minus_1`` and ``gradient_sum_n``: the gradient's sum over the negatives, for the published n-1
        and for n (0 where K = C), whatever the strategy is.

        Of those with a known truth, if there is a ``ground_truth``: ``labeled_pixels``; ``case_pixels`` [3];
        ``case_1_k1_pixels``, in case 1 with K = 1; of each case [3] ``vanilla_score_sum`` (R^v),
        ``vanilla_score_square_sum``, ``fuzzy_score_sum`` (R^f), ``fuzzy_score_square_sum``; of case 2 alone
        ``cosine_fuzzy_sum`` (of G^f and G^ide), ``cosine_vanilla_sum`` (of G^v and G^ide), ``cosine_fuzzy_positive``
        (how many are > 0), ``norm_fuzzy_sum`` (of G^f), ``norm_ideal_sum`` (of G^ide); of all cases
        ``norm_fuzzy_sum_all``, ``norm_ideal_sum_all``.

        A pixel with a NaN, or with an infinite best logit of the teacher, makes the sums it takes part in NaN. Where
        the teacher is to blame, K is the largest of its strategy and the case is 3.

    Raises:
        ValueError: An argument is outside its range, or a tensor has another shape or dtype.
    """
    settings = make_settings(student_logits.shape[1], rules.checked())
    teaching = make_teaching(student_logits, teacher_logits, second, inside, size)
    _check(student_logits, ground_truth, counted, size)
    student, teacher = student_logits.detach(), teaching.teacher
    if teaching.size is not None or teaching.second is not None:
        student, teacher = enlarge(to_compute(student), teaching.size), teaching.mixed()
    if cpu_diagnose.usable(settings, student, teacher):
        return cpu_diagnose.diagnose(settings, student, teacher, ground_truth, counted)
    images = max(1, CHUNK * student.shape[0] // max(student.numel(), 1))
    parts = zip(
        torch.split(student, images),
        torch.split(teacher, images),
        _split(ground_truth, images, student),
        _split(counted, images, student),
        strict=True,
    )
    found = [_sums(to_compute(z), to_compute(t), truth, chosen, rules) for z, t, truth, chosen in parts]
    return {name: torch.stack([part[name] for part in found]).sum(0) for name in found[0]}


def _split(per_pixel: Tensor | None, images: int, student: Tensor) -> tuple[Tensor | None, ...]:
    """Split [B, *spatial] as the logits are split; None as often as it takes."""
    return (None,) * len(torch.split(student, images)) if per_pixel is None else torch.split(per_pixel, images)


@torch.no_grad()
def diagnose_maps(
    student_logits: Tensor,
    teacher_logits: Tensor,
    *,
    ground_truth: Tensor,
    rules: Rules,
) -> dict[str, Tensor]:
    """Compute K, case and gradient scores of each pixel, for pictures (figures 3a, 6 and A7).

    Arguments and errors are those of :func:`diagnose`.

    Returns:
        Tensors [B, *spatial]: ``k`` (int64), ``case`` (uint8, 1 .. 3, 0 where the truth is unknown), ``vanilla_score``
        (R^v) and ``fuzzy_score`` (R^f), -1 .. 1, NaN where the truth is unknown.
    """
    make_teaching(student_logits, teacher_logits)
    _check(student_logits, ground_truth, None, None)
    student = to_compute(student_logits.detach())
    order = Order(to_compute(teacher_logits.detach()))
    decision = order.decide(rules.checked())
    seen = compare(student, order, decision.counted_positive(), push_by(student, decision), ground_truth)
    return {
        "k": decision.k,
        "case": seen.case,
        "vanilla_score": torch.where(seen.known, seen.vanilla_score, torch.nan),
        "fuzzy_score": torch.where(seen.known, seen.fuzzy_score, torch.nan),
    }
