"""What is said about a search in words: the same sentences on its page and on the terminal."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Collection, Sequence

import pandas as pd

from fpl.report.search.findings import best, early_stopping, margin_between
from fpl.report.search.importance import ENOUGH_BEST, ENOUGH_TRIALS, QUANTILE
from fpl.report.search.studies import SearchView, StudyView, count, direction_words, read_search
from fpl.report.search.threshold_claim import checks
from fpl.store.lookup import text
from fpl.store.read import Results
from fpl.store.search_frame import records
from fpl.store.trials import is_cell
from fpl.text import plural

LINE = 119
SHOWN = 3


def search_summary_lines(results: Results, name: str, only: Collection[str] = ()) -> list[str]:
    """What the terminal says of a search: per study the best settings, the paper's, what stopping saved, warnings.

    Args:
        results: Of a folder that holds the search.
        name: Of the search.
        only: Ids of the studies to speak of; empty for all.

    Returns:
        Lines of fewer than 120 columns.

    Raises:
        FplError: There is no such search in these results.
    """
    search = read_search(results, name)
    lines = [f"search {name}: {search.caption}"]
    studies = [study for study in search.studies if not only or study.about["study"] in only]
    for study in studies:
        lines.append(f"{study.title}: {counts(study)}")
        lines += [f"  {line}" for line in _rows(study)]
        told = [difference_line(study), final_line(study), stopping_line(study), failure_line(study)]
        lines += [f"  {line}" for line in told if line]
        lines += [f"  warning: {warning}" for warning in warnings(study)]
    # A search of one labeled fraction has nothing to say about the claim; its page says so.
    lines += [
        check.sentence
        for check in checks(search)
        if check.verdict != "not run" and (not only or set(check.studies) & set(only))
    ]
    if others := len(search.studies) - len(studies):
        lines.append(f"{plural(others, 'other study', 'other studies')} of this search: fpl report {name}")
    return [part for line in lines for part in _wrapped(line)]


def counts(study: StudyView) -> str:
    """`24 trials: 14 complete, 9 stopped early, 1 failed`."""
    states = study.trials["state"].value_counts()
    words = {"complete": "complete", "pruned": "stopped early", "failed": "failed", "running": "unfinished"}
    parts = [f"{states[state]} {word}" for state, word in words.items() if state in states]
    return f"{plural(searched(study), 'trial')}: {', '.join(parts)}" if parts else "no trials yet"


def searched(study: StudyView) -> int:
    """Trials of the search itself, without the final one."""
    return int((study.trials["state"] != "final").sum())


def facts(study: StudyView) -> list[str]:
    """How the study was made."""
    about = study.about
    seeds, splits = int(about["seeds"]), int(about["splits"])
    device = about["device"] if isinstance(about["device"], str) else ""
    runs = f"{plural(seeds, 'seed')} x {plural(splits, 'split')} a trial" if seeds * splits > 1 else "one run a trial"
    return [
        f"varied: {', '.join(study.keys)} of {about['cell']} at scale {about['scale']}",
        f"searched for: {' and '.join(map(direction_words, study.objectives))} ({about['metric']})",
        f"sampler {about['sampler']}, seed {about['sampler_seed']}; early stopping {about['stop']}",
        f"{runs}, {int(about['steps'])} steps; compared on {images(study)}",
        f"{hours(study)} on {device or 'an unknown device'}",
    ]


def images(study: StudyView) -> str:
    """Which images the trials were compared on."""
    if study.about["protocol"] == "holdout":
        return f"every {_ordinal(count(study.about['holdout']))} labeled image, kept from training (protocol holdout)"
    return "the validation images (protocol val)"


def hours(study: StudyView) -> str:
    """`12.5 core-hours`."""
    row = records(early_stopping(study))[0]
    return f"{row['device_hours']:.3g} {text(row, 'device_unit') or 'device'}-hours"


def score_text(row: pd.Series) -> str:
    """`45.21 ±0.30 % (n = 3)`, or `45.21 % (n = 1)`."""
    spread = "" if pd.isna(row["score_std"]) else f" ±{row['score_std']:.2f}"
    return f"{row['score']:.2f}{spread} % (n = {int(row['runs_scored'])})"


def stopping_line(study: StudyView) -> str:
    """What early stopping saved."""
    row = early_stopping(study).iloc[0]
    if row["stop"] == "none":
        return ""
    ended = int(row["complete"] + row["pruned"])
    if not ended:
        return f"early stopping ({row['stop']}): no trial has ended yet"
    return (
        f"early stopping ({row['stop']}): {row['pruned']} of {plural(ended, 'trial')} stopped; {row['steps_spent']} "
        f"steps in place of {row['steps_whole']}, {100 * row['share_saved']:.0f} % saved"
    )


def difference_line(study: StudyView) -> str:
    """The best trial against the paper's best setting, and what that difference is worth."""
    done, paper = study.complete, study.paper
    if done.empty:
        return ""
    if paper.empty:
        return "no setting of the paper is among the complete trials: nothing to compare with"
    first, base = done.iloc[0], paper.iloc[0]
    if first["number"] == base["number"]:
        return f"nothing found is better than the paper's setting of {base['origin']}"
    difference = first["score"] - base["score"]
    said = f"best against the paper's best setting ({base['origin']}): {difference:+.2f} points of mIoU"
    margin = margin_between(first, base, study.repeated)
    many = f"the best of {len(done)} is high by selection too"
    if margin is None:
        return f"{said}; from one run each nothing is known of its spread (--seeds), and {many}"
    several = min(first["runs_scored"], base["runs_scored"]) >= 2
    of = "two standard errors" if several else "twice the error of repeating a run with the same seed"
    verdict = "within noise" if abs(difference) <= margin else "more than noise"
    return f"{said}, {verdict} ({of}: {margin:.2f}); {many}"


def final_line(study: StudyView) -> str:
    """After a holdout search, the number that may be reported."""
    row = study.final
    if row is None:
        return ""
    return (
        f"to report: {score_text(row)} for {study.setting(row)}; the setting was selected on {images(study)}, then "
        "trained with all labels, and its last weights measured on the validation images, which chose neither"
    )


def failure_line(study: StudyView) -> str:
    """How many trials failed, and of what the first."""
    rows = study.of("failed")
    if rows.empty:
        return ""
    first = records(rows)[0]
    reason = text(first, "reason") or "no reason given"
    return f"{plural(len(rows), 'trial')} failed, first trial {first['number']}: {reason}"


def warnings(study: StudyView) -> list[str]:
    """What its reader should know before quoting a number."""
    found = []
    trials = searched(study)
    if study.about["protocol"] == "val":
        found.append(
            "these numbers were selected on the very images that they are measured on "
            f"({plural(trials, 'trial')}): they are optimistic; --protocol holdout selects on a part of the labeled "
            "images"
        )
    elif study.final is None:
        found.append(
            f"selected on {images(study)}, and scored there: no number to report yet; the same `fpl search` command "
            "trains the best setting with all labels in the end"
        )
    if "cost" in study.objectives:
        found.append("cost is measured time: whatever else the machine did stands in it")
    if running := len(study.of("running")):
        found.append(f"{plural(running, 'trial')} unfinished: the same `fpl search` command continues")
    return found


def importance_line(study: StudyView) -> str:
    """How far Optuna's importances can be trusted here."""
    done = len(study.complete)
    top = math.ceil(QUANTILE * done)
    text = (
        f"PED-ANOVA asks how the best tenth ({top} of {plural(done, 'complete trial')}) differs from all; what was "
        "stopped early has no part in it, and a parameter that means nothing beside others is judged among the "
        "trials where it does (n)"
    )
    if done < ENOUGH_TRIALS:
        return f"{text}. With fewer than {ENOUGH_TRIALS} trials it is unreliable"
    if top < ENOUGH_BEST:
        return f"{text}. Optuna advises {ENOUGH_BEST} or more among the best: take it as a hint"
    return text


def best_lines(search: SearchView) -> list[str]:
    """The best setting of each study, for lists of searches; after a holdout search, with the number to report."""
    found = []
    for study in search.studies:
        row = study.final if study.final is not None else study.complete.iloc[0] if len(study.complete) else None
        if row is not None:
            held_out = study.about["protocol"] == "holdout" and study.final is None
            where = " on held-out labeled images" if held_out else ""
            found.append(f"{study.title}: {score_text(row)}{where} with {study.setting(row)}")
    return found


def _rows(study: StudyView) -> list[str]:
    """The best settings, then those of the paper that are not among them."""
    first = best(study, SHOWN)
    rows = [(f"{row['rank']}.", row) for _, row in first.iterrows()]
    paper = study.paper
    rows += [("-", row) for _, row in paper[~paper["number"].isin(first["number"])].iterrows()]
    cost = "cost" in study.objectives
    return [
        f"{mark:<2} {score_text(row)}"
        + (f", {row['cost']:.3g} {study.about['device_unit']}-hours" if cost else "")
        + f"  trial {row['number']} ({'paper: ' * is_cell(row['origin'])}{row['origin']}): {study.setting(row)}"
        for mark, row in rows
    ]


def _ordinal(number: int) -> str:
    return {2: "second", 3: "third"}.get(number, f"{number}th")


def _wrapped(line: str) -> Sequence[str]:
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(line, LINE, subsequent_indent=indent, break_on_hyphens=False) or [""]
