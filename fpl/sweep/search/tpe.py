"""Optuna's TPE for a space with conditions and thousands of trials: the same proposals to the bit, with less work.

`TPESampler(group=True)` samples each group of parameters that occur together by itself. For each of them it divides all
trials anew into good and others, and it looks for the groups in all trials. Here both are done once for a trial.
What is overridden is no public part of Optuna: tests/sweep/search/test_kept.py holds it to Optuna's own sampler.
"""

from __future__ import annotations

from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers._tpe.sampler import _split_trials, default_gamma, default_gamma_multiobjective
from optuna.trial import FrozenTrial, TrialState

LEARNT_FROM = (TrialState.COMPLETE, TrialState.PRUNED)
Halves = tuple[list[FrozenTrial], list[FrozenTrial]]


class GroupedTPE(optuna.samplers.TPESampler):
    """The sampler of one trial: it takes for granted that the study stays as it is.

    Args:
        seed: Of what it draws.
        startup: Trials before which it draws at random.
    """

    def __init__(self, seed: int, startup: int) -> None:
        # `group` splits a conditional space into parts whose parameters occur together; `constant_liar` keeps trials
        # that run at the same time apart.
        super().__init__(seed=seed, n_startup_trials=startup, multivariate=True, group=True, constant_liar=True)
        self._halves: Halves | None = None

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The parameters that are sampled in groups: a set of them that an earlier trial had divides no group again."""
        first: dict[frozenset[str], FrozenTrial] = {}
        for other in study.get_trials(deepcopy=False, states=LEARNT_FROM):
            first.setdefault(frozenset(other.distributions), other)
        distinct = optuna.create_study(directions=study.directions)
        distinct.add_trials(first.values())
        return super().infer_relative_search_space(distinct, trial)

    def _sample(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if self._halves is None:
            self._halves = _divide(study, trial)
        below, above = (
            self._build_parzen_estimator(
                study, search_space, [each for each in half if search_space.keys() <= each.params.keys()], good
            )
            for half, good in zip(self._halves, (True, False), strict=True)
        )
        drawn = below.sample(self._rng.rng, self._n_ei_candidates)
        best = self._compare(drawn, self._compute_acquisition_func(drawn, below, above))
        return {name: distribution.to_external_repr(best[name]) for name, distribution in search_space.items()}


def _divide(study: optuna.Study, trial: FrozenTrial) -> Halves:
    """The good trials, and the others with those that run; without the one that is asked for."""
    known = study.get_trials(deepcopy=False, states=(*LEARNT_FROM, TrialState.RUNNING))
    known = [other for other in known if other.number != trial.number]
    gamma = default_gamma if len(study.directions) == 1 else default_gamma_multiobjective
    return _split_trials(study, known, gamma(sum(other.state in LEARNT_FROM for other in known)))
