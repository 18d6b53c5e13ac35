"""The sums of :func:`fpl.losses.diagnostics.diagnose` on a CPU, in one pass over both networks' logits."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from fpl.losses.kernels import available, chosen, contract
from fpl.losses.kernels.cpu_library import KINDS, address, addressable, as_map, c_settings, describe, library, reference

# What one column of the kernel's result holds; the names of `fpl.losses.diagnostics.diagnose`.
COLUMNS = (
    "pixels",
    "weight_sum",
    "loss_sum",
    "weighted_loss_sum",
    "cross_entropy_sum",
    "gradient_sum_n_minus_1",
    "gradient_sum_n",
)
LABELED_COLUMNS = (
    "labeled_pixels",
    "case_1_k1_pixels",
    "cosine_fuzzy_sum",
    "cosine_vanilla_sum",
    "cosine_fuzzy_positive",
    "norm_fuzzy_sum",
    "norm_ideal_sum",
    "norm_fuzzy_sum_all",
    "norm_ideal_sum_all",
)
# Three columns each, one a case.
CASE_COLUMNS = (
    "case_pixels",
    "vanilla_score_sum",
    "vanilla_score_square_sum",
    "fuzzy_score_sum",
    "fuzzy_score_square_sum",
)
# C columns each, one a K.
K_COLUMNS = ("k_histogram", "k_histogram_uncapped", "entropy_sum_by_k", "entropy_square_sum_by_k")
COUNTS = frozenset(
    {
        "pixels",
        "labeled_pixels",
        "case_1_k1_pixels",
        "cosine_fuzzy_positive",
        "case_pixels",
        "k_histogram",
        "k_histogram_uncapped",
    }
)


def usable(settings: contract.Settings, student: Tensor, teacher: Tensor) -> bool:
    """Whether the kernel knows the strategy and takes these logits, can be had, and no other was asked for."""
    if settings.soft:
        return False
    taken = all(logits.device.type == "cpu" and logits.dtype in KINDS for logits in (student, teacher))
    return taken and student.numel() > 0 and chosen() in ("auto", "cpu") and available("cpu")


def diagnose(
    settings: contract.Settings,
    student: Tensor,
    teacher: Tensor,
    ground_truth: Tensor | None,
    counted: Tensor | None,
) -> dict[str, Tensor]:
    """Compute the sums.

    Args:
        settings: Those of the loss.
        student: Logits [B, C, *spatial] on the CPU, of one of the dtypes of the contract.
        teacher: Logits of the same shape; their dtype may be another one of the contract.
        ground_truth: uint8 or int64 [B, *spatial].
        counted: bool [B, *spatial].

    Returns:
        What :func:`fpl.losses.diagnostics.diagnose` returns.
    """
    student, teacher = addressable(student), addressable(teacher)
    truth = ground_truth
    if truth is not None and truth.dtype == torch.int64:
        # Whatever is no class stays none when it gets narrower.
        truth = truth.clamp(-1, settings.classes)
    truth = as_map(truth, torch.int32)
    counted = as_map(counted, torch.bool)
    single = len(COLUMNS) + len(LABELED_COLUMNS)
    sizes = [1] * single + [3] * len(CASE_COLUMNS) + [settings.classes] * len(K_COLUMNS)
    result = torch.empty(sum(sizes), dtype=torch.float64)
    library().fpl_diagnose(
        ctypes.byref(c_settings(settings)),
        ctypes.c_int64(student.shape[0]),
        ctypes.c_int64(student[0, 0].numel()),
        reference(describe(student)),
        reference(describe(teacher)),
        address(truth),
        address(counted),
        address(result),
    )
    names = (*COLUMNS, *LABELED_COLUMNS, *CASE_COLUMNS, *K_COLUMNS)
    found = dict(zip(names, torch.split(result, sizes), strict=True))
    if ground_truth is None:
        found = {name: found[name] for name in (*COLUMNS, *K_COLUMNS)}
    found = {name: values.squeeze(0) if len(values) == 1 else values for name, values in found.items()}
    return {name: values.long() if name in COUNTS else values for name, values in found.items()}
