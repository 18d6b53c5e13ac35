"""The page of a search, and its frames as CSV beside it. A pure function of the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

import pandas as pd

from fpl.files import write_changed
from fpl.report.elements import document, table
from fpl.report.page import PAGE, Extra
from fpl.report.search.findings import best, contours, early_stopping, failures, history, parallel, pareto, slices
from fpl.report.search.importance import importances
from fpl.report.search.sections import claim_section, study_section
from fpl.report.search.studies import SearchView, StudyView, read_search
from fpl.report.search.threshold_claim import SOURCE, checks, thresholds
from fpl.report.search.words import (
    best_lines,
    counts,
    search_summary_lines,
    searched,
)
from fpl.report.spreadsheet import csv_bytes
from fpl.store.read import Results, load_results

__all__ = ["search_extra", "search_page", "search_summary_lines", "write_search_pages"]

FOLDER = "search"
SEARCH_STYLE = """
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 22rem), 1fr)); gap: 1rem; }
.scroll + .figures { margin-top: 1rem; }
figure { margin: 0; padding: 0.5rem; border: 1px solid var(--line); border-radius: 0.5rem; min-width: 0; }
figure svg { width: 100%; max-width: 32rem; display: block; margin: auto; }
figure.wide { grid-column: 1 / -1; overflow-x: auto; }
figure.wide svg { max-width: 60rem; min-width: 36rem; }
figcaption { font-size: 0.85rem; color: var(--soft); }
h3 { font-size: 1rem; margin: 1.5rem 0 0.5rem; }
th { overflow-wrap: normal; }
.best tbody th, .claim tbody th { min-width: 3.5rem; }
.best td:nth-of-type(1), .claim td:nth-of-type(1) { font-weight: 650; }
.best td:nth-of-type(3) { white-space: normal; min-width: 12rem; }
.report { border-left: 0.25rem solid var(--up); padding-left: 1rem; }
"""

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


def write_search_pages(folder: Path, name: str | None = None, *, main: bool | None = None) -> list[Path]:
    """Write `search/NAME/index.html` and its CSV files below a folder of results.

    Args:
        folder: Holds the tables `studies` and `trials`.
        name: Of one search; None for all.
        main: Whether the main page stands, or will stand, in `folder`, for the link to it; None: look.

    Returns:
        Paths of the pages, by name.

    Raises:
        FplError: No results there, or no such search.
    """
    results = load_results(folder)
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
    rows = {}
    for name in results.searches:
        search = read_search(results, name)
        link = escape(name)
        if (results.folder / FOLDER / name / PAGE).exists():
            link = f'<a href="{FOLDER}/{link}/{PAGE}">{link}</a>'
        rows[link] = {
            "trials": sum(map(searched, search.studies)),
            "question": escape(search.caption),
            "best (mIoU in %)": escape("; ".join(best_lines(search))) or "–",
        }
    note = '<p class="head">A best number was selected among its trials: its page says on which images.</p>'
    shown = table("searches", "searches", pd.DataFrame.from_dict(rows, orient="index"), plain=False)
    return [Extra("searches", "Searches", f"{note}\n{shown}\n")]


def search_page(search: SearchView, files: Sequence[str] = (), back: bool = False) -> str:
    """The page of a search as text.

    Args:
        search: What it shows.
        files: Names of the CSV files beside it.
        back: Whether to link to the main page.
    """
    heading = f"Search {search.name}: {search.caption}"
    links = [f'<li><a href="#s{number}">{escape(study.title)}</a></li>' for number, study in enumerate(search.studies)]
    body = [
        *([f'<p><a href="../../{PAGE}">all tables, and what numbers of their scale can show</a></p>'] if back else []),
        f"<h1>{escape(heading)}</h1>",
        '<div class="summary">',
        *(f"<p>{escape(study.title)}: {escape(counts(study))}</p>" for study in search.studies),
        *(f"<p>best: {escape(line)}</p>" for line in best_lines(search)),
        *(f"<p>{escape(check.sentence)} ({SOURCE})</p>" for check in checks(search) if check.verdict != "not run"),
        "</div>",
        *([f"<nav><ul>{''.join(links)}</ul></nav>"] if len(links) > 1 else []),
        "<main>",
        *claim_section(search),
        *(part for number, study in enumerate(search.studies) for part in study_section(f"s{number}", study)),
        "</main>",
        *_files(files),
    ]
    return document(heading, body, SEARCH_STYLE)


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
            path.unlink(missing_ok=True)
    return [f"{name}.csv" for name, frame in frames.items() if len(frame)]


def _files(files: Sequence[str]) -> list[str]:
    links = "".join(f'<li><a href="{name}">{name}</a></li>' for name in files)
    return ['<section id="files"><h2>As CSV</h2>', f"<ul>{links}</ul>", "</section>"] if files else []
