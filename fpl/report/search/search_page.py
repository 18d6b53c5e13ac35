"""The page of a search, and its frames as CSV beside it. A pure function of the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from fpl.files import remove, write_changed
from fpl.report.page import PAGE, Extra
from fpl.report.search.findings import best, contours, early_stopping, failures, history, parallel, pareto, slices
from fpl.report.search.importance import importances
from fpl.report.search.sections import study_section, threshold_section
from fpl.report.search.studies import SearchView, StudyView, read_search
from fpl.report.search.threshold_claim import SOURCE, checks, thresholds
from fpl.report.search.words import best_lines, counts, searched
from fpl.report.spreadsheet import csv_bytes
from fpl.report.template import render
from fpl.store.read import Results, load_results

FOLDER = "search"
# One row per trial or finding, all studies below each other.
PER_STUDY: dict[str, Callable[[StudyView], pd.DataFrame]] = {
    "best": best,
    "pareto": pareto,
    "importances": importances,
    "history": history,
    "early_stopping": early_stopping,
    "slice": slices,
    "contour": contours,
    "parallel": parallel,
    "failures": failures,
}


def write_search_pages(
    folder: Path, name: str | None = None, *, main: bool | None = None, store: Results | None = None
) -> list[Path]:
    """Write `search/NAME/index.html` and its CSV files below a folder of results.

    Args:
        folder: Holds the tables `studies` and `trials`.
        name: Of one search; None for all.
        main: Whether the main page stands, or will stand, in `folder`, for the link to it; None: look.
        store: The results in `folder`, where they have been read.

    Returns:
        Paths of the pages, by name.

    Raises:
        FplError: No results there, or no such search.
    """
    results = load_results(folder) if store is None else store
    back = (folder / PAGE).exists() if main is None else main
    paths = []
    for each in results.searches if name is None else [name]:
        search = read_search(results, each)
        target = folder / FOLDER / each
        written = _write_frames(target, results.search(each), search)
        write_changed(target / PAGE, search_page(search, written, back).encode())
        paths.append(target / PAGE)
    return paths


def search_extra(results: Results) -> list[Extra]:
    """The section of the main page that lists the searches; nothing where there are none."""
    if not results.searches:
        return []
    rows = []
    for name in results.searches:
        search = read_search(results, name)
        place = f"{FOLDER}/{name}/{PAGE}"
        rows.append(
            {
                "name": name,
                "page": place if (results.folder / place).exists() else "",
                "trials": sum(map(searched, search.studies)),
                "question": search.caption,
                "best": "; ".join(best_lines(search)),
            }
        )
    return [Extra("searches", "Searches", render("searches.html", rows=rows))]


def search_page(search: SearchView, files: Sequence[str] = (), back: bool = False) -> str:
    """The page of a search as text.

    Args:
        search: What it shows.
        files: Names of the CSV files beside it.
        back: Whether to link to the main page.
    """
    lines = [f"{study.title}: {counts(study)}" for study in search.studies]
    lines += [f"best: {line}" for line in best_lines(search)]
    lines += [f"{check.sentence} ({SOURCE})" for check in checks(search) if check.verdict != "not run"]
    studies = [study_section(f"s{number}", study) for number, study in enumerate(search.studies)]
    html = render(
        "search.html",
        heading=f"Search {search.name}: {search.caption}",
        back=PAGE if back else "",
        lines=lines,
        titles=[study.title for study in search.studies],
        sections=[threshold_section(search), *studies],
        files=files,
    )
    return str(html)


def _write_frames(target: Path, trials: pd.DataFrame, search: SearchView) -> list[str]:
    """Write each frame that has rows, and remove what an earlier search left where it has none."""
    frames = {"trials": trials.assign(run_ids=[" ".join(runs) for runs in trials["run_ids"]])}
    frames["thresholds"] = thresholds(search)
    found = [check.rows.assign(verdict=check.verdict) for check in checks(search)]
    frames["claim"] = pd.concat(found, ignore_index=True) if found else pd.DataFrame()
    for name, make in PER_STUDY.items():
        parts = [(study.about["study"], make(study)) for study in search.studies]
        kept = [part.assign(study=study)[["study", *part.columns]] for study, part in parts if len(part)]
        frames[name] = pd.concat(kept, ignore_index=True) if kept else pd.DataFrame()
    for name, frame in frames.items():
        path = target / f"{name}.csv"
        if len(frame):
            write_changed(path, csv_bytes(frame, digits=12))
        else:
            remove(path)
    return [f"{name}.csv" for name, frame in frames.items() if len(frame)]
