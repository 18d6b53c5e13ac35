"""Whether the tensors of a weights file fill a backbone, and hold what a trained network can hold."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fpl.config.weights import RESNET_FILES
from fpl.errors import FplError
from fpl.models.weights_file import STEM_NEEDED, stem_problem
from fpl.text import enumerate_briefly

# So many tensors are named in a message.
NAMED = 4


def fitting_tensors(values: Mapping[str, Any], wanted: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """The tensors of a file that a backbone has, by its names.

    Args:
        values: What the file has, under the backbone's names.
        wanted: The backbone's state dict; its values are not looked at.
        path: The file, for messages.

    Raises:
        FplError: Tensors are missing, are no plain ones, are of another network, or hold what no trained network does.
    """
    state = _plain(values, wanted, path)
    problem = stem_problem(state) if "conv1.0.weight" in wanted else None
    if problem:
        fitting = ", ".join(names[0] for names in RESNET_FILES.values()) + ", resnet50s / resnet101s.gluon_in1k of timm"
        raise FplError(f"{problem}; needed is {STEM_NEEDED}", where=str(path), hint=f"files that have it: {fitting}")
    matched = {name: state[name] for name in wanted if name in state}
    lacking = [name for name in wanted if name not in state and not is_counter(name)]
    if lacking:
        raise FplError(
            f"lacks {len(lacking)} of the backbone's {len(wanted)} tensors: {enumerate_briefly(lacking, NAMED)}",
            where=str(path),
            hint=f"it holds {len(state)} tensors: {enumerate_briefly(state, NAMED)}",
        )
    shapes = [
        f"{name} {tuple(value.shape)} instead of {tuple(wanted[name].shape)}"
        for name, value in matched.items()
        if value.shape != wanted[name].shape
    ]
    if shapes:
        raise FplError(f"has other shapes than the backbone: {enumerate_briefly(shapes, NAMED)}", where=str(path))
    blocks = [name for name in state if name not in wanted and name.startswith("layer") and not is_counter(name)]
    if blocks:
        raise FplError(
            f"holds {len(blocks)} tensors of blocks that the backbone does not have: "
            f"{enumerate_briefly(blocks, NAMED)}",
            where=str(path),
            hint="the file is of a deeper network than its name says",
        )
    problems = [f"{name} {fault}" for name, value in matched.items() if (fault := _fault(name, value, wanted[name]))]
    if problems:
        raise FplError(
            f"{len(problems)} of {len(matched)} tensors are not those of a trained network: "
            f"{enumerate_briefly(problems, NAMED)}",
            where=str(path),
            hint="the file is damaged, or of a training that failed: fetch it again",
        )
    return matched


def _plain(values: Mapping[str, Any], wanted: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """The tensors among the values of a file, none of which, and nothing that is wanted, may be an odd one."""
    state = {name: value for name, value in values.items() if isinstance(value, Tensor) or name in wanted}
    odd = [f"{name} {fault}" for name, value in state.items() if (fault := oddity(value))]
    if odd:
        raise FplError(
            f"{len(odd)} of {len(state)} values are no plain tensors: {enumerate_briefly(odd, NAMED)}",
            where=str(path),
            hint="make the file again with plain tensors of real numbers on a CPU: what is quantized is made so by "
            ".dequantize(), what is sparse by .to_dense(), a list by torch.tensor",
        )
    return state


def oddity(value: Any) -> str:
    """What keeps a value from being a plain tensor of real numbers that are there; empty if nothing does."""
    if not isinstance(value, Tensor):
        return f"is a {type(value).__name__}, no tensor"
    kind = str(value.dtype).removeprefix("torch.")
    # A nested one has no shape, and would raise an error where it is asked for it.
    if value.is_nested:
        return "is a nested tensor"
    if value.is_quantized:
        return f"is quantized ({kind})"
    if value.layout != torch.strided:
        return f"is sparse ({str(value.layout).removeprefix('torch.')})"
    if value.is_meta:
        return "has no values (it was saved on the device meta)"
    return f"is complex ({kind})" if value.is_complex() else ""


def _fault(name: str, value: Tensor, wanted: Tensor) -> str:
    """What is wrong with the values of a tensor; empty if nothing is."""
    # Numbers of one byte and less are scaled by something else than the file has.
    if value.is_floating_point() != wanted.is_floating_point() or (value.is_floating_point() and value.itemsize < 2):
        return f"is {value.dtype} instead of {wanted.dtype}"
    if not value.numel() or not value.is_floating_point():
        return ""
    # As the backbone will hold them: a number too large for that is infinite there.
    held = value.to(wanted.dtype)
    if bad := int((~held.isfinite()).sum()):
        return f"has {bad} values that are not finite"
    # A dead channel has a variance of exactly 0: EfficientNet-Lite0's published weights have some in 28 layers.
    if name.endswith("running_var") and (float(held.min()) < 0.0 or float(held.max()) <= 0.0):
        return f"has a variance of {float(held.min()):g}, which no data have, or none above 0"
    if name.endswith("weight") and not bool(held.any()):
        return "is 0 everywhere"
    return ""


def is_counter(name: str) -> bool:
    """Whether it is a batch counter, which a file may lack: it starts at 0 then."""
    return name.endswith("num_batches_tracked")
