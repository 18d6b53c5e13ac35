"""Optuna's view of a study that goes on: a row becomes Optuna's record once, and again only after it has changed.

Optuna's own studies copy and check every trial that they are told: at two thousand trials that takes longer than what
its samplers do with them.
"""

from __future__ import annotations

import copy
from collections.abc import Container, Sequence

import optuna
from optuna.trial import FrozenTrial, TrialState

from fpl.config.search import DIRECTIONS, Objective, Parameter
from fpl.store.as_optuna import STATES, distribution, frozen
from fpl.store.trials import TrialRow


class KeptTrials:
    """The records of a study's rows, kept from one proposal to the next. They are a function of the rows alone.

    Args:
        space: The search's parameters.
        objectives: Of the study.
    """

    def __init__(self, space: Sequence[Parameter], objectives: Sequence[Objective]) -> None:
        self.objectives = objectives
        self._distributions = {parameter.key: distribution(parameter) for parameter in space}
        self._kept: dict[int, tuple[tuple[object, ...], FrozenTrial]] = {}

    def study(self, rows: Sequence[TrialRow], sampler: optuna.samplers.BaseSampler) -> optuna.Study:
        """A study for a single `ask`: it holds what the rows say, by number.

        Args:
            rows: In any order; one that is given twice counts twice.
            sampler: What proposes.
        """
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        ordered = sorted(rows, key=lambda row: row.number)
        storage = _Given([self._record(row) for row in ordered if row.state in STATES])
        directions = [DIRECTIONS[name] for name in self.objectives]
        return optuna.create_study(storage=storage, directions=directions, sampler=sampler)

    def _record(self, row: TrialRow) -> FrozenTrial:
        # All that is in a record and ever changes; a row is given another state when it is given another last value.
        says = (row.state, row.step, len(row.values), len(row.run_scores), row.cost)
        held = self._kept.get(row.number)
        if held is None or held[0] != says:
            record = frozen(row, self.objectives, self._distributions)
            # The trial that is asked for is the first of its storage: it has number 0, and samplers tell it by that.
            record.number = row.number + 1
            held = self._kept[row.number] = says, record
        return held[1]


class _Given(optuna.storages.InMemoryStorage):
    """A storage that has some finished and running trials from the start. They stay as they are."""

    def __init__(self, given: list[FrozenTrial]) -> None:
        super().__init__()
        self.given = given

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """Those, and after them what the study has been asked for or told since."""
        own = super().get_all_trials(study_id, deepcopy, states)
        given = [trial for trial in self.given if states is None or trial.state in states]
        return [*(copy.deepcopy(given) if deepcopy else given), *own]
