"""What `fpl reproduce` shows of its results: tables, the page of the store, and what is published of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fpl.text import answer

if TYPE_CHECKING:
    from fpl.cli.option_groups import Asked
    from fpl.report.folder import Written
    from fpl.report.tables.shown import Shown
    from fpl.store.read import Results
    from fpl.sweep.reproduce import Account


def write_live(asked: Asked, out: Path) -> None:
    """Write what a store shows while its runs are carried out: without figures, and so that next time it is quicker."""
    from fpl.store.compact import compact

    compact(out)
    write_own(asked, out, draw=False)


def write_own(asked: Asked, out: Path, *, shown: Shown | None = None, draw: bool = True) -> Written:
    """Write what a store shows into its folder; `shown` if that is known."""
    from fpl.cli.report import on_all_cores
    from fpl.report.folder import write_report
    from fpl.store.read import Results

    shown = shown or asked.shown(Results(out))
    return write_report(out, shown, asked.experiments, draw=draw, run=on_all_cores)


def show(asked: Asked, account: Account, out: Path, publish: Path | None) -> None:
    """Print the tables and how they compare with what is published; write the page, and what is to be published."""
    from fpl.cli.planning import compact_store
    from fpl.cli.tables import print_tables
    from fpl.config.campaign import scale_name
    from fpl.mirrors import name_of
    from fpl.report.published import compare_lines
    from fpl.store.read import Results
    from fpl.store.remote import open_store

    compact_store(out)
    store = Results(out)
    _write_environment(account, store)
    if asked.overrides:
        answer(f"with {' '.join(asked.overrides)} in the cells asked for:")
    shown = asked.shown(store, part=True)
    print_tables(shown.grids, shown.summary)
    done = len(account.before)
    answer(f"{done} runs were done before, {len(account.done) - done} trained now; store: {name_of(out)}")
    published = publish or Path("results") / scale_name(asked.experiments, asked.scale)
    if published.resolve() != out.resolve():
        for line in compare_lines(store, Results(open_store(published))):
            answer(line)
    whole = asked.shown(store) if asked.names or asked.overrides else shown
    answer(f"tables, figures and page in {name_of(out)}: open {write_own(asked, out, shown=whole).page}")
    if publish is not None:
        answer(_publish(asked, account, out, publish))


def _write_environment(account: Account, store: Results) -> None:
    """On what and with what the store's runs were made last."""
    place = store.folder / "ENVIRONMENT"
    if account.results or not place.exists():
        from fpl.files import write_atomic
        from fpl.sweep.environment import environment

        command = " ".join(["fpl", *sys.argv[1:]])
        made = store.runs[store.runs["run_id"].isin(list(account.results or account.before))]
        devices, cuda = (sorted(set(made[name].dropna())) for name in ("device", "cuda"))
        write_atomic(
            place, environment(command, account.seconds, len(account.results), devices, cuda).encode(errors="replace")
        )


def _publish(asked: Asked, account: Account, out: Path, publish: Path) -> str:
    """Publish runs, tables, figures and page; what was done, in a line."""
    from fpl.files import write_changed
    from fpl.mirrors import name_of
    from fpl.store.publish import publish_runs
    from fpl.sweep.plan.costs import COSTS

    failed = [*account.failed_before, *(result.run_id for result in account.failed)]
    done = publish_runs(out, publish, {*account.done, *failed}, whole=asked.whole)
    if done.changed or not (publish / "ENVIRONMENT").exists():
        write_changed(publish / "ENVIRONMENT", (out / "ENVIRONMENT").read_bytes())
    if (out / COSTS).exists():
        write_changed(publish / COSTS, (out / COSTS).read_bytes())
    page = write_own(asked, publish).page
    repeated = ", repetitions anew" if done.repeated else ""
    counts = f"{done.new} new, {done.same} as they were, {done.gone} taken out{repeated}"
    return f"published in {name_of(publish)}: {counts}: open {page}"
