"""Diagnostics against hand-checked pixels, and against loops over pixels with gradients from autograd."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fpl.losses import diagnostics
from fpl.losses.diagnostics import diagnose, diagnose_maps
from fpl.losses.rules import Rules

from .reference import normal
from .reference_diagnostics import add_up, one_pixel, scene

EIGHT = [
    [0.96, 0.02, 0.01, 0.005, 0.003, 0.002],
    [0.60, 0.35, 0.02, 0.015, 0.01, 0.005],
    [0.50, 0.30, 0.15, 0.03, 0.015, 0.005],
    [0.40, 0.25, 0.15, 0.12, 0.05, 0.03],
    [0.30, 0.20, 0.18, 0.14, 0.10, 0.08],
    [1 / 6] * 6,
    [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.03125],
    [0.46, 0.45, 0.03, 0.03, 0.02, 0.01],
]
# The third of them, student = teacher, K = 2; by true class: case, R^v, R^f, norm of G^f, norm of G^ide.
BY_TRUTH = {
    0: (1, 1.0, 0.375, 0.546829, 0.603034),
    1: (2, -0.6, 0.625, 0.546829, 0.873871),
    2: (3, -0.3, -0.75, 0.546829, 1.031334),
    3: (3, -0.06, -0.15, 0.546829, 1.141775),
}


def pixels(*probs: list[float]) -> Tensor:
    """Float64 logits [1, C, N]."""
    return torch.tensor(probs, dtype=torch.float64).log().T.unsqueeze(0).contiguous()


@pytest.mark.parametrize("truth", BY_TRUTH)
def test_hand_checked_scores(truth: int) -> None:
    logits = pixels(EIGHT[2])
    ground_truth = torch.full((1, 1), truth, dtype=torch.uint8)
    case, vanilla, fuzzy, norm_fuzzy, norm_ideal = BY_TRUTH[truth]
    found = diagnose(logits, logits, ground_truth=ground_truth)
    assert found["case_pixels"].tolist() == [int(number == case) for number in (1, 2, 3)]
    place = case - 1
    assert found["vanilla_score_sum"][place].item() == pytest.approx(vanilla, abs=1e-12)
    assert found["fuzzy_score_sum"][place].item() == pytest.approx(fuzzy, abs=1e-12)
    assert found["vanilla_score_square_sum"][place].item() == pytest.approx(vanilla**2, abs=1e-12)
    assert found["fuzzy_score_square_sum"][place].item() == pytest.approx(fuzzy**2, abs=1e-12)
    assert found["norm_fuzzy_sum_all"].item() == pytest.approx(norm_fuzzy, abs=6e-7)
    assert found["norm_ideal_sum_all"].item() == pytest.approx(norm_ideal, abs=6e-7)
    maps = diagnose_maps(logits, logits, ground_truth=ground_truth, rules=Rules())
    assert (maps["k"].item(), maps["case"].item()) == (2, case)
    assert maps["vanilla_score"].item() == pytest.approx(vanilla, abs=1e-12)
    assert maps["fuzzy_score"].item() == pytest.approx(fuzzy, abs=1e-12)


def test_hand_checked_cosines() -> None:
    found = diagnose(pixels(EIGHT[2]), pixels(EIGHT[2]), ground_truth=torch.ones(1, 1, dtype=torch.uint8))
    assert found["cosine_fuzzy_sum"].item() == pytest.approx(0.397743, abs=6e-7)
    assert found["cosine_vanilla_sum"].item() == pytest.approx(-0.828030, abs=6e-7)
    assert found["cosine_fuzzy_positive"].item() == 1
    assert found["norm_fuzzy_sum"].item() == pytest.approx(0.546829, abs=6e-7)
    assert found["norm_ideal_sum"].item() == pytest.approx(0.873871, abs=6e-7)


def test_hand_checked_sums() -> None:
    """All eight pixels, student = teacher. The seventh is left at T = 0.9: K = 3 in both."""
    logits = pixels(*EIGHT)
    paper = diagnose(logits, logits)
    assert paper["k_histogram"].tolist() == [3, 1, 2, 1, 1, 0]
    assert paper["k_histogram_uncapped"].tolist() == [3, 1, 2, 1, 1, 0]
    losses = [0.040822, 0.510826, 0.725937, 1.290151, 1.565635, 1.791759, 1.011601, 0.776529]
    assert paper["loss_sum"].item() == pytest.approx(sum(losses), abs=4e-6)
    weighted = [0.040606, 0.387165, 0.620586, 1.027369, 1.185421, 0, 0.929157, 0.099072]
    assert paper["weighted_loss_sum"].item() == pytest.approx(sum(weighted), abs=4e-6)
    weights = [0.994702, 0.757921, 0.854876, 0.796317, 0.757150, 0, 0.918501, 0.127583]
    assert paper["weight_sum"].item() == pytest.approx(sum(weights), abs=4e-6)
    entropy = [0.040822, 0.510826, 0.693147, 0.916291, 1.203973, 1.791759, 0.693147, 0.776529]
    assert paper["cross_entropy_sum"].item() == pytest.approx(sum(entropy), abs=4e-6)
    assert "case_pixels" not in paper
    released = diagnose(logits, logits, rules=Rules(fidelity="released", weight="convex"))
    assert released["k_histogram"].tolist() == [3, 1, 4, 0, 0, 0]
    assert released["k_histogram_uncapped"].tolist() == [3, 1, 2, 1, 1, 0]


def test_soft_k_counts_as_the_nearest() -> None:
    """0.5 + 0.3 + two thirds of 0.15 is T = 0.9: K is 2.67, and the third class a positive from one half on."""
    logits = pixels(EIGHT[2])
    for truth, case in ((0, 1), (1, 2), (2, 2), (3, 3)):
        ground_truth = torch.full((1, 1), truth, dtype=torch.uint8)
        maps = diagnose_maps(logits, logits, ground_truth=ground_truth, rules=Rules(strategy="soft"))
        assert (maps["k"].item(), maps["case"].item()) == (3, case)
        found = diagnose(logits, logits, ground_truth=ground_truth, rules=Rules(strategy="soft"))
        assert found["k_histogram"].tolist() == [0, 0, 1, 0, 0, 0]
        assert found["k_histogram_uncapped"].tolist() == [0, 1, 0, 0, 0, 0]
        assert found["case_pixels"][case - 1] == 1


def test_hand_checked_gradient_sums() -> None:
    for strategy in ("n-1", "n", "fixed"):
        found = diagnose(pixels(EIGHT[2]), pixels(EIGHT[2]), rules=Rules(strategy=strategy, fixed_k=1))
        assert found["gradient_sum_n_minus_1"].item() == pytest.approx(0.516129, abs=6e-7)
        assert found["gradient_sum_n"].item() == pytest.approx(0.375, abs=6e-7)


@pytest.mark.parametrize("classes", [2, 3, 6, 19])
@pytest.mark.parametrize(
    ("strategy", "fidelity"), [("n-1", "paper"), ("n-1", "released"), ("n", "paper"), ("soft", "paper")]
)
def test_sums_over_loops_with_autograd(classes: int, strategy: str, fidelity: str) -> None:
    student, teacher, truth = scene(classes)
    counted = torch.arange(truth.numel()).reshape(truth.shape) % 7 != 0
    found = diagnose(
        student,
        teacher,
        ground_truth=truth,
        counted=counted,
        rules=Rules(strategy=strategy, fidelity=fidelity, weight="concave"),
    )
    pixels = [
        one_pixel(student[b, :, i], teacher[b, :, i], int(truth[b, i]), strategy, fidelity)
        for b, i in counted.nonzero().tolist()
    ]
    expected = add_up(pixels, set().union(*pixels))
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert found[name].tolist() == pytest.approx(value.tolist(), rel=1e-10, abs=1e-10), name
        assert found[name].dtype == (torch.float64 if "sum" in name else torch.int64), name
    assert classes < 6 or all(number > 0 for number in expected["case_pixels"].tolist())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tensors_of_less_precision(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FPL_LOSS", "tensor")
    student, teacher, truth = scene(19)
    found = diagnose(student.to(dtype), teacher.to(dtype), ground_truth=truth)
    expected = diagnose(student.to(dtype).double(), teacher.to(dtype).double(), ground_truth=truth)
    for name, value in expected.items():
        assert found[name].tolist() == pytest.approx(value.tolist(), rel=1e-5, abs=1e-6), name


def test_images_are_looked_at_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    student, teacher, truth = scene(6)
    counted = truth != 3
    whole = diagnose(student, teacher, ground_truth=truth, counted=counted)
    monkeypatch.setattr(diagnostics, "CHUNK", 1)
    for name, value in diagnose(student, teacher, ground_truth=truth, counted=counted).items():
        assert value.tolist() == pytest.approx(whole[name].tolist(), rel=1e-12), name


@pytest.mark.parametrize("unknown", [255, -1, 6, 10**12])
def test_unknown_truth_adds_to_nothing_but_the_general_sums(unknown: int) -> None:
    student, teacher, truth = scene(6)
    none = diagnose(student, teacher, ground_truth=torch.full_like(truth, unknown))
    assert none["pixels"].item() == truth.numel()
    assert none["labeled_pixels"].item() == 0
    assert all(none[name].abs().sum().item() == 0 for name in none if "case" in name or "norm" in name)
    maps = diagnose_maps(student, teacher, ground_truth=torch.full_like(truth, unknown), rules=Rules())
    assert (maps["case"] == 0).all()
    assert maps["vanilla_score"].isnan().all()
    assert maps["fuzzy_score"].isnan().all()


def test_maps_add_up_to_the_sums() -> None:
    student, teacher, truth = (values.reshape(*values.shape[:-1], 5, 8) for values in scene(6))
    maps = diagnose_maps(student, teacher, ground_truth=truth, rules=Rules())
    sums = diagnose(student, teacher, ground_truth=truth)
    assert all(values.shape == (2, 5, 8) for values in maps.values())
    assert torch.equal(torch.bincount(maps["k"].flatten() - 1, minlength=6), sums["k_histogram"])
    for place in range(3):
        inside = maps["case"] == place + 1
        assert inside.sum() == sums["case_pixels"][place] > 0
        for name in ("vanilla_score", "fuzzy_score"):
            total = sums[f"{name}_sum"][place].item()
            assert maps[name][inside].sum().item() == pytest.approx(total, rel=1e-12)


def test_no_negatives() -> None:
    """A flat pixel under strategy n: K = C, no gradient, no pair."""
    logits = torch.zeros(1, 4, 1, dtype=torch.float64)
    found = diagnose(logits, logits, ground_truth=torch.full((1, 1), 2), rules=Rules(strategy="n"))
    assert found["k_histogram"].tolist() == [0, 0, 0, 1]
    assert found["k_histogram_uncapped"].tolist() == [0, 0, 1, 0]
    assert found["case_pixels"].tolist() == [0, 1, 0]
    for name in ("loss_sum", "gradient_sum_n", "norm_fuzzy_sum", "cosine_fuzzy_sum", "cosine_fuzzy_positive"):
        assert found[name].item() == 0, name
    # Three positives against one negative: 3 / (1 + 3).
    assert found["gradient_sum_n_minus_1"].item() == pytest.approx(0.75)
    assert found["fuzzy_score_sum"][1].item() == pytest.approx(0.25)
    assert found["entropy_sum_by_k"].tolist() == pytest.approx([0, 0, 0, math.log(4)])


@pytest.mark.parametrize("size", [20.0, 100.0, 1e4])
def test_scores_of_a_certain_student(size: float) -> None:
    """1 - p of the pseudo label is far below the precision, and below the smallest float32."""
    student = torch.tensor([size, 1.0, 0.0, -1.0]).view(1, 4, 1)
    teacher = torch.tensor([0.45, 0.4, 0.1, 0.05]).log().view(1, 4, 1)
    e = [math.exp(value) for value in (1.0, 0.0, -1.0)]
    for truth in (1, 2, 3):
        for precise in (False, True):
            z = student.double() if precise else student
            found = diagnose(
                z, teacher.to(z.dtype), ground_truth=torch.full((1, 1), truth), rules=Rules(strategy="fixed", fixed_k=2)
            )
            case = 1 if truth == 1 else 2
            assert found["vanilla_score_sum"][case].item() == pytest.approx(-e[truth - 1] / sum(e), rel=1e-5)
    # Its gradient is that of the truth upside down, but for the truth's own component.
    agreed = diagnose(student, teacher, ground_truth=torch.zeros(1, 1, dtype=torch.uint8))
    assert agreed["norm_ideal_sum_all"].item() == pytest.approx(
        math.exp(math.log(sum(e)) - size) * math.sqrt(1 + sum(x * x for x in e) / sum(e) ** 2), rel=1e-5
    )


@pytest.mark.parametrize("who", ["student", "teacher", "infinite teacher"])
def test_a_broken_pixel_is_seen_where_it_counts(who: str) -> None:
    student, teacher, truth = scene(6)
    (student if who == "student" else teacher)[1, 2, 5] = torch.inf if "infinite" in who else torch.nan
    assert truth[1, 5] < 6
    found = diagnose(student, teacher, ground_truth=truth)
    assert found["pixels"].item() == truth.numel() == found["k_histogram"].sum().item()
    for name in ("loss_sum", "cross_entropy_sum", "gradient_sum_n_minus_1", "gradient_sum_n", "norm_fuzzy_sum_all"):
        assert found[name].isnan().item(), name
    for name in ("vanilla_score_sum", "fuzzy_score_sum"):
        assert found[name].isnan().sum().item() == 1, name
    assert found["entropy_sum_by_k"].isnan().sum().item() == (who != "student")
    assert found["weight_sum"].isnan().item() == (who != "student")
    counted = torch.ones_like(truth, dtype=torch.bool)
    counted[1, 5] = False
    without = diagnose(student, teacher, ground_truth=truth, counted=counted)
    assert not any(value.isnan().any().item() for value in without.values())


def test_low_resolution_and_two_teachers() -> None:
    student, teacher, second = (normal(2, 5, 4, 3, seed=seed) * 3 for seed in range(3))
    truth = torch.randint(0, 5, (2, 9, 7), generator=torch.Generator().manual_seed(0))
    inside = truth % 2 == 0
    found = diagnose(student, teacher, ground_truth=truth, second=second, inside=inside, size=(9, 7))

    def large(logits: Tensor) -> Tensor:
        return F.interpolate(logits, size=(9, 7), mode="bilinear", align_corners=True)

    mixed = large(teacher) * ~inside.unsqueeze(1) + large(second) * inside.unsqueeze(1)
    expected = diagnose(large(student), mixed, ground_truth=truth)
    assert found["pixels"].item() == 126
    for name, value in expected.items():
        assert found[name].tolist() == pytest.approx(value.tolist(), rel=1e-9), name


def test_bad_arguments() -> None:
    student, teacher, truth = scene(3)
    with pytest.raises(ValueError, match=r"ground_truth has dtype torch.int32; allowed: torch.uint8, torch.int64"):
        diagnose(student, teacher, ground_truth=truth.int())
    with pytest.raises(ValueError, match="ground_truth has shape"):
        diagnose(student, teacher, ground_truth=truth[:1])
    with pytest.raises(ValueError, match=r"counted has dtype torch\.int64; allowed: torch\.bool"):
        diagnose(student, teacher, counted=truth)
    with pytest.raises(ValueError, match="threshold is 0; allowed"):
        diagnose(student, teacher, rules=Rules(threshold=0))
    with pytest.raises(ValueError, match="fixed_k is 3; allowed: 1 <= fixed_k <= C - 1 = 2"):
        diagnose(student, teacher, rules=Rules(strategy="fixed", fixed_k=3))
    with pytest.raises(ValueError, match="second and inside go together"):
        diagnose(student, teacher, second=teacher)
