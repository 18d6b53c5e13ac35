"""What a confidence gate does to fuzzy positives."""

from __future__ import annotations

from fpl.config.sections import LossConfig


def gate_warnings(key: str, gate: float, loss: LossConfig) -> list[str]:
    """Say that a gate on single pixels leaves FPL nothing to do; empty where it does not.

    Of a pixel whose highest probability is T or more the first class alone exceeds T, so it has one positive.

    Args:
        key: Name of the gate in the configuration, such as `method.gate`.
        gate: Least highest probability of a pixel that teaches, 0..1.
        loss: The pixel loss.
    """
    if loss.kind != "fpl" or loss.strategy not in ("n-1", "n", "ratio") or gate < loss.threshold:
        return []
    return [
        f"{key} = {gate:g} is not below loss.threshold = {loss.threshold:g}: every pixel that "
        "passes has K = 1, so FPL is nothing but weighted cross-entropy here; lower the gate, or raise T"
    ]
