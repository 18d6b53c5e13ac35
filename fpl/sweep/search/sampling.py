"""What is tried next: a function of the study, of what its rows say so far, and of the number of the next trial.

Nothing is remembered beside the rows but what was made of them: whoever continues a search after a kill proposes what
the killed process would have. With several trials at once the order in which they end is part of what the rows say.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence

import optuna

from fpl.config.defaults import Sampler
from fpl.config.search import Value
from fpl.config.study import Study
from fpl.store.trials import TrialRow
from fpl.sweep.search.kept import KeptTrials
from fpl.sweep.search.tpe import GroupedTPE

# Trials that are drawn at random before the samplers that learn begin to; the paper's settings count.
STARTUP_TRIALS = 10
# A sampler that proposes what was tried is asked again so often, and then chance in its place.
ATTEMPTS, BLIND_ATTEMPTS = 30, 100


def make_sampler(name: Sampler, seed: int, number: int, attempt: int = 0) -> optuna.samplers.BaseSampler:
    """The sampler of one trial. It is seeded by the trial's number: one that is made anew must not repeat itself."""
    derived = int.from_bytes(hashlib.sha256(f"{seed}/{number}/{attempt}".encode()).digest()[:4])
    if attempt >= ATTEMPTS:
        return optuna.samplers.RandomSampler(seed=derived)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        if name == "tpe":
            return GroupedTPE(derived, STARTUP_TRIALS)
        if name == "gp":
            # What is not there in every trial, it draws at random.
            return optuna.samplers.GPSampler(
                seed=derived, n_startup_trials=STARTUP_TRIALS, warn_independent_sampling=False
            )
    return optuna.samplers.RandomSampler(seed=derived)


class Proposals:
    """What a study tries next.

    Args:
        study: What is searched.
    """

    def __init__(self, study: Study) -> None:
        self.study = study
        self._kept = KeptTrials(study.search.space, study.head.objectives)

    def propose(
        self, rows: Sequence[TrialRow], number: int, wanted: Mapping[str, Value] | None = None, attempt: int = 0
    ) -> dict[str, Value]:
        """The parameters of trial `number`, from Optuna's `ask`.

        Args:
            rows: Trials so far, in any order, without the one that is asked for.
            number: Of the trial that is asked for.
            wanted: Its parameters where they are known: a setting of the paper.
            attempt: How often it was asked for and found to repeat another.
        """
        sampler = make_sampler(self.study.head.sampler, self.study.seed, number, attempt)
        found = self._kept.study(rows, sampler)
        if wanted is not None:
            found.enqueue_trial(dict(wanted))
        return self.study.suggest(found.ask())
