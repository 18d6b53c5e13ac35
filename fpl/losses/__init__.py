"""Losses of Fuzzy Positive Learning and those it is compared with; this package needs torch and nothing else."""

from __future__ import annotations

from fpl.losses.assignment import assign, class_rank
from fpl.losses.fuzzy import (
    REDUCTIONS,
    FuzzyPositiveLoss,
    FuzzyTerms,
    fuzzy_positive_gradient,
    fuzzy_positive_loss,
    fuzzy_positive_terms,
)
from fpl.losses.pixel import KINDS, PixelLoss
from fpl.losses.pixel_term import PixelTerm
from fpl.losses.rules import FIDELITIES, STRATEGIES, WEIGHTS
from fpl.losses.supervised import cross_entropy, ohem_cross_entropy
from fpl.losses.weight import adaptive_weight

__all__ = [
    "FIDELITIES",
    "KINDS",
    "REDUCTIONS",
    "STRATEGIES",
    "WEIGHTS",
    "FuzzyPositiveLoss",
    "FuzzyTerms",
    "PixelLoss",
    "PixelTerm",
    "adaptive_weight",
    "assign",
    "class_rank",
    "cross_entropy",
    "fuzzy_positive_gradient",
    "fuzzy_positive_loss",
    "fuzzy_positive_terms",
    "ohem_cross_entropy",
]
