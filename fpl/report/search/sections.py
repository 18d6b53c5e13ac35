"""The sections of the page of a search: T by labeled fraction, and all about a study."""

from __future__ import annotations

from html import escape

import pandas as pd

from fpl.report.elements import bullets, table
from fpl.report.search import charts as figures
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
from fpl.report.tables.numbers import plural
from fpl.store.search_frame import records
from fpl.store.trials import is_cell

# Pairs of parameters that are drawn; the CSV has all.
PAIRS = 6
# Fewer complete trials than these are no picture.
ENOUGH_TO_DRAW = 2


def claim_section(search: SearchView) -> list[str]:
    """The T curve, and the paper's claim about it."""
    tried = thresholds(search)
    if tried.empty:
        return []
    varied = {study.about["study"]: study.keys for study in search.studies}
    parts = ['<section id="threshold">', '<h2><a href="#threshold">T and the labeled fraction</a></h2>']
    for number, check in enumerate(checks(search)):
        curve = tried[tried["study"].isin(check.studies)]
        if curve.empty:
            continue
        alone = all(varied[study] == [THRESHOLD] for study in check.studies)
        caption = "Complete trials; a bar is the std over the runs of a trial."
        picture = figures.threshold_figure(f"t{number}", curve, alone)
        caption += "" if alone else " Not T alone differs between the dots."
        parts += [_claim_table(check), f'<div class="figures">{_figure(picture, caption)}</div>']
    return [*parts, "</section>"]


def _claim_table(check: Check) -> str:
    rows = [
        {
            "best T": value_text(float(row["best_threshold"])),
            "mIoU in %": score_text(row),
            "trials": row["trials"],
            "T tried": f"{value_text(float(row['lowest']))} to {value_text(float(row['highest']))}",
        }
        for _, row in check.rows.iterrows()
    ]
    frame = pd.DataFrame(rows, index=check.rows["fraction"].to_list()).rename_axis(columns="labeled")
    return table("claim", "best T by labeled fraction", frame)


def study_section(anchor: str, study: StudyView) -> list[str]:
    """All about one study, as a `<section>` whose id is `anchor`."""
    told = [difference_line(study), stopping_line(study)]
    final = final_line(study)
    return [
        f'<section id="{anchor}">',
        f'<h2><a href="#{anchor}">{escape(study.title)}</a></h2>',
        *(f'<p class="head">{escape(text)}</p>' for text in facts(study)),
        *bullets("warnings", [f"warning: {warning}" for warning in warnings(study)]),
        *([f'<p class="report">{escape(final)}</p>'] if final else []),
        *_best(study),
        *(f"<p>{escape(text[0].upper() + text[1:])}</p>" for text in told if text),
        *_pictures(anchor, study),
        *_failed(study),
        "</section>",
    ]


def _best(study: StudyView) -> list[str]:
    """The best settings, then those of the paper that are not among them."""
    frame, paper = best(study), study.paper
    if frame.empty:
        return ["<p>No trial is complete yet.</p>"]
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
    made = pd.DataFrame(columns, index=[*labels, *["paper"] * len(others)])
    return ["<h3>Best settings, and the paper's</h3>", table("best", "best settings", made)]


def _pictures(anchor: str, study: StudyView) -> list[str]:
    """All figures of a study."""
    if len(study.complete) < ENOUGH_TO_DRAW:
        return ["<p>Fewer than two complete trials: nothing to draw.</p>"]
    found = [
        _figure(figures.history_figure(f"{anchor}h", study, history(study)), "What was tried, and the best so far.")
    ]
    if len(pareto(study)):
        picture = figures.pareto_figure(f"{anchor}p", study)
        found.append(_figure(picture, "No other trial beats those of the front in both objectives."))
    found += _importance_pictures(anchor, study)
    where = conditions(study)
    cut = slices(study)
    for number, parameter in enumerate(study.space):
        part = cut[cut["parameter"] == parameter.key]
        if (part["state"] == "complete").any():
            beside = f", where it means something: {where[parameter.key]}" if parameter.key in where else ""
            picture = figures.slice_figure(f"{anchor}s{number}", study, part, parameter)
            found.append(_figure(picture, f"Slice: {parameter.key}{beside}."))
    found += _contour_pictures(anchor, study)
    lines = figures.parallel_figure(f"{anchor}l", study)
    words = "Parallel coordinates: a line is a complete trial; None is where a parameter means nothing."
    found.append(_figure(lines, words, "wide"))
    return ["<h3>What mattered</h3>", f'<div class="figures">{"".join(found)}</div>']


def _importance_pictures(anchor: str, study: StudyView) -> list[str]:
    """One per objective; none where there is one parameter alone, which has all importance there is."""
    frame = importances(study)
    found = []
    if len(study.space) > 1:
        for number, objective in enumerate(study.objectives):
            part = frame[frame["objective"] == objective]
            if len(part):
                picture = figures.importance_figure(f"{anchor}i{number}", part)
                found.append(_figure(picture, f"Importance for {objective}. {importance_line(study)}."))
    return found


def _contour_pictures(anchor: str, study: StudyView) -> list[str]:
    """The pairs with the most trials where both parameters mean something."""
    frame = contours(study)
    pairs = sorted(frame.groupby(["x", "y"], sort=False), key=lambda pair: -len(pair[1]))
    found: list[str] = []
    for number, ((x, y), part) in enumerate(pairs):
        if len(found) == PAIRS:
            break
        # Where one of them has one value alone there is nothing to see that its slice does not show.
        if part["x_value"].nunique() > 1 and part["y_value"].nunique() > 1:
            picture = figures.contour_figure(f"{anchor}c{number}", study, str(x), str(y))
            names = f"{short(str(x), study.keys)} and {short(str(y), study.keys)}"
            found.append(_figure(picture, f"Contour: {names}, {plural(len(part), 'complete trial')}."))
    return found


def _failed(study: StudyView) -> list[str]:
    frame = failures(study)
    texts = [
        f"trial {row['number']} ({row['setting']}): {row['reason'] or 'no reason given'}" for row in records(frame)
    ]
    return ["<h3>Failed trials</h3>", *bullets("gaps", texts)] if texts else []


def _figure(picture: str, caption: str, kind: str = "") -> str:
    return f"<figure{kind and f' class={kind}'}>{picture}<figcaption>{escape(caption)}</figcaption></figure>"
