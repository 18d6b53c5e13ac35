"""What a confidence gate does to fuzzy positives."""

from __future__ import annotations

from typing import Literal

from fpl.config.sections import LossConfig


def gate_warnings(key: str, gate: float, loss: LossConfig, kind: Literal["pixel", "mean"] = "pixel") -> list[str]:
    """Say that a gate leaves FPL nothing to do, or little; empty where it does not.

    Of a pixel whose highest probability is T or more the first class alone exceeds T, so it has one positive.

    Args:
        key: Name of the gate in the configuration, such as `method.gate`.
        gate: Least highest probability of a pixel that teaches, 0..1.
        loss: The pixel loss.
        kind: Of the gate: on single pixels, or their share as the weight of all (`fpl.methods.gates.gate`).
    """
    if loss.kind != "fpl" or loss.strategy not in ("n-1", "n", "ratio", "soft") or gate < loss.threshold:
        return []
    if loss.threshold_rule != "hand":
        # Nobody knows it before the run; the shares of K in the results tell.
        return []
    if kind == "mean":
        return [
            f"{key} = {gate:g} is not below loss.threshold = {loss.threshold:g}: all pixels are weighed by the share "
            "of those that pass, which have K = 1, so a batch weighs the less the more FPL has to choose in it, and "
            f"nothing before the teacher is sure; for FPL set {key} = 0"
        ]
    return [
        f"{key} = {gate:g} is not below loss.threshold = {loss.threshold:g}: every pixel that "
        "passes has K = 1, so FPL is nothing but weighted cross-entropy here; lower the gate, or raise T"
    ]
