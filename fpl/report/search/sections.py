"""The sections of the page of a search: T by labeled fraction, and all about a study."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd
from markupsafe import Markup

from fpl.report.search import charts
from fpl.report.search.findings import best, contours, failures, history, pareto, slices
from fpl.report.search.importance import conditions, importances
from fpl.report.search.studies import SearchView, StudyView, short, value_text
from fpl.report.search.threshold_claim import THRESHOLD, Check, checks, thresholds
from fpl.report.search.words import (
    difference_line,
    facts,
    final_line,
    importance_line,
    score_text,
    stopping_line,
    warnings,
)
from fpl.report.template import render
from fpl.store.lookup import text
from fpl.store.search_frame import records
from fpl.store.trials import is_cell
from fpl.text import plural

# Pairs of parameters that are drawn; the CSV has all.
PAIRS = 6
# Fewer complete trials than these are no picture.
ENOUGH_TO_DRAW = 2


class Chart(NamedTuple):
    """A chart with what is seen on it."""

    svg: Markup
    caption: str
    wide: bool = False


def threshold_section(search: SearchView) -> Markup:
    """The T curve, and the paper's claim about it; nothing where no study varies T."""
    tried = thresholds(search)
    if tried.empty:
        return Markup("")
    varied = {study.about["study"]: study.keys for study in search.studies}
    curves = []
    for number, check in enumerate(checks(search)):
        curve = tried[tried["study"].isin(check.studies)]
        if curve.empty:
            continue
        alone = all(varied[study] == [THRESHOLD] for study in check.studies)
        caption = "Complete trials; a bar is the std over the runs of a trial."
        caption += "" if alone else " Not T alone differs between the dots."
        curves.append((_claim_frame(check), Chart(charts.threshold_figure(f"t{number}", curve, alone), caption)))
    return render("threshold.html", curves=curves)


def _claim_frame(check: Check) -> pd.DataFrame:
    rows = [
        {
            "best T": value_text(float(row["best_threshold"])),
            "mIoU in %": score_text(row),
            "trials": row["trials"],
            "T tried": f"{value_text(float(row['lowest']))} to {value_text(float(row['highest']))}",
        }
        for _, row in check.rows.iterrows()
    ]
    return pd.DataFrame(rows, index=check.rows["fraction"].to_list()).rename_axis(columns="labeled")


def study_section(anchor: str, study: StudyView) -> Markup:
    """All about one study, as a `<section>` whose id is `anchor`."""
    told = [difference_line(study), stopping_line(study)]
    return render(
        "study.html",
        anchor=anchor,
        title=study.title,
        facts=facts(study),
        warnings=[f"warning: {warning}" for warning in warnings(study)],
        final=final_line(study),
        best=_best(study),
        told=[f"{line[0].upper()}{line[1:]}" for line in told if line],
        charts=_charts(anchor, study),
        failed=[
            f"trial {row['number']} ({row['setting']}): {text(row, 'reason') or 'no reason given'}"
            for row in records(failures(study))
        ],
    )


def _best(study: StudyView) -> pd.DataFrame | None:
    """The best settings, then those of the paper that are not among them; None for none."""
    frame, paper = best(study), study.paper
    if frame.empty:
        return None
    labels = [f"{row['rank']}{', paper' * is_cell(row['origin'])}" for _, row in frame.iterrows()]
    others = paper[~paper["number"].isin(frame["number"])]
    shown = pd.concat([frame, others], ignore_index=True)
    base = paper.iloc[0]["score"] if len(paper) else None
    columns = {
        "mIoU in %": [score_text(row) for _, row in shown.iterrows()],
        "to the paper's best": ["–" if base is None else f"{score - base:+.2f}" for score in shown["score"]],
        "setting": [study.setting(row) for _, row in shown.iterrows()],
        "trial": shown["number"].to_list(),
        "from": shown["origin"].to_list(),
    }
    if "cost" in study.objectives:
        columns["device-hours"] = [f"{cost:.3g}" for cost in shown["cost"]]
    return pd.DataFrame(columns, index=[*labels, *["paper"] * len(others)])


def _charts(anchor: str, study: StudyView) -> list[Chart]:
    """All charts of a study; none of fewer than two complete trials."""
    if len(study.complete) < ENOUGH_TO_DRAW:
        return []
    found = [Chart(charts.history_figure(f"{anchor}h", study, history(study)), "What was tried, and the best so far.")]
    if len(pareto(study)):
        picture = charts.pareto_figure(f"{anchor}p", study)
        found.append(Chart(picture, "No other trial beats those of the front in both objectives."))
    found += _importance_charts(anchor, study)
    where = conditions(study)
    cut = slices(study)
    for number, parameter in enumerate(study.space):
        part = cut[cut["parameter"] == parameter.key]
        if (part["state"] == "complete").any():
            beside = f", where it means something: {where[parameter.key]}" if parameter.key in where else ""
            picture = charts.slice_figure(f"{anchor}s{number}", study, part, parameter)
            found.append(Chart(picture, f"Slice: {parameter.key}{beside}."))
    found += _contour_charts(anchor, study)
    lines = charts.parallel_figure(f"{anchor}l", study)
    words = "Parallel coordinates: a line is a complete trial; None is where a parameter means nothing."
    found.append(Chart(lines, words, wide=True))
    return found


def _importance_charts(anchor: str, study: StudyView) -> list[Chart]:
    """One per objective; none where there is one parameter alone, which has all importance there is."""
    frame = importances(study)
    found = []
    if len(study.space) > 1:
        for number, objective in enumerate(study.objectives):
            part = frame[frame["objective"] == objective]
            if len(part):
                picture = charts.importance_figure(f"{anchor}i{number}", part)
                found.append(Chart(picture, f"Importance for {objective}. {importance_line(study)}."))
    return found


def _contour_charts(anchor: str, study: StudyView) -> list[Chart]:
    """The pairs with the most trials where both parameters mean something."""
    frame = contours(study)
    pairs = sorted(frame.groupby(["x", "y"], sort=False), key=lambda pair: -len(pair[1]))
    found: list[Chart] = []
    for number, ((x, y), part) in enumerate(pairs):
        if len(found) == PAIRS:
            break
        # Where one of them has one value alone there is nothing to see that its slice does not show.
        if part["x_value"].nunique() > 1 and part["y_value"].nunique() > 1:
            picture = charts.contour_figure(f"{anchor}c{number}", study, str(x), str(y))
            names = f"{short(str(x), study.keys)} and {short(str(y), study.keys)}"
            found.append(Chart(picture, f"Contour: {names}, {plural(len(part), 'complete trial')}."))
    return found
