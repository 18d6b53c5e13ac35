"""Which parameters mattered, as Optuna judges it from the rows of a study."""

from __future__ import annotations

import warnings

import pandas as pd

from fpl.report.search.studies import StudyView, short

# Fewer complete trials than these say little about importance.
ENOUGH_TRIALS = 20
# And fewer among the best than Optuna's documentation advises are a hint.
ENOUGH_BEST = 5
# PED-ANOVA looks at how the best tenth differs from all.
QUANTILE = 0.1


def importances(study: StudyView) -> pd.DataFrame:
    """Optuna's PED-ANOVA importances (condPED-ANOVA where parameters are conditional), over complete trials.

    Source: Watanabe et al., PED-ANOVA, IJCAI 2023; Optuna's default evaluator.

    Returns:
        `objective`, `parameter`, `importance` (0 to 1, sums to 1 per objective), `trials` (complete ones where the
        parameter means something: among those it is judged), `of` (complete trials), `reliable` (whether these are at
        least `ENOUGH_TRIALS`); the most important first. No rows for fewer than two complete trials.
    """
    columns = ["objective", "parameter", "importance", "trials", "of", "reliable"]
    done = study.complete
    if len(done) < 2:
        return pd.DataFrame(columns=columns)
    # Imported here: the tables do without Optuna.
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    rows = []
    for objective in study.objectives:
        # One objective at a time: importance for the front of two is nothing a reader can check.
        rebuilt = study.rebuilt([objective])
        with warnings.catch_warnings():
            # Optuna warns of few trials; so does the page, in words.
            warnings.simplefilter("ignore", UserWarning)
            found = get_param_importances(rebuilt, evaluator=PedAnovaImportanceEvaluator(target_quantile=QUANTILE))
        # Optuna's order of equal ones changes from process to process.
        order = sorted(found, key=lambda key: (-found[key], study.keys.index(key)))
        rows += [
            {
                "objective": objective,
                "parameter": key,
                "importance": found[key],
                "trials": int(done[key].notna().sum()),
                "of": len(done),
                "reliable": len(done) >= ENOUGH_TRIALS,
            }
            for key in order
        ]
    return pd.DataFrame(rows, columns=columns)


def conditions(study: StudyView) -> dict[str, str]:
    """Beside what a conditional parameter means something: key -> `strategy n-1, n or ratio`."""
    return {
        parameter.key: " and ".join(
            f"{short(key, study.keys)} {' or '.join(map(str, values))}" for key, values in parameter.when.items()
        )
        for parameter in study.space
        if parameter.when
    }
