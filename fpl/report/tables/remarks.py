"""What is said around a table: its head, its notes, what is missing and what its reader is warned of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from fpl.config.experiment import Column
from fpl.config.scale import ScaleFile
from fpl.report.tables.entry import Entry, Grid
from fpl.report.tables.gains import column_gains
from fpl.report.tables.verdict import ENOUGH_SEEDS, LEGEND, LEGEND_OF_THRESHOLDS
from fpl.store.lookup import Record, text
from fpl.text import plural

PROTOCOLS = {
    "sliding": "sliding-window protocol",
    "whole": "whole-image protocol",
    "center": "center of each image alone",
}
SELECTIONS = {"best": "best of the evaluated checkpoints, chosen on the validation images", "last": "last checkpoint"}
ABSENT = {"skip": "classes that are nowhere in label or prediction left out", "zero": "absent classes counted as 0"}

READING = (
    "In each cell ours stands above the paper's number, which is bold where the paper prints it bold. "
    "Arrows are differences from the row's baseline."
)

# What must be equal for runs of one column to be comparable: column of `Results.runs` -> what it is.
SAME_DATA = {
    "data.split.family": "split family",
    "data.split.labeled": "labeled list",
    "data.split.unlabeled": "unlabeled list",
    "data.version": "version of the validation data",
    "data.contents": "content of the training files",
    "model.pretrained_sha256": "file of pretrained weights",
}
PROVENANCE = {
    "torch": "torch",
    "cuda": "CUDA",
    "device": "device",
    "commit": "commit",
    "fpl_version": "fpl version",
    "workers": "workers (of its mIoU they change only the rounding)",
    "threads": "CPU threads",
}


def number_name(grid: Grid) -> str:
    """What the paper calls it: `Table 1`."""
    number = grid.experiment.table.number
    return number if " " in number else f"Table {number}"


def title(grid: Grid) -> str:
    """`Table 1: caption`."""
    return f"{number_name(grid)}: {grid.experiment.table.caption}"


def short_title(grid: Grid) -> str:
    """The title without what follows the caption's first sentence, for links."""
    return title(grid).partition(". ")[0].removesuffix(".")


def scale_notes(scale: ScaleFile) -> list[str]:
    """What tables at this scale can and cannot show; nothing for a comparable one."""
    if scale.comparable:
        return []
    notes = [
        f"Scale {scale.name}: its numbers do not measure what the paper's do, so none is judged against them. "
        "✓ and ✗ only say whether an improvement has the paper's sign. Headers and footnotes "
        "(numbers of images, settings, overrides) are those of scale paper."
    ]
    if scale.proves:
        notes.append(f"These tables can show {scale.proves}.")
    if scale.proves_not:
        notes.append(f"They cannot show {scale.proves_not}.")
    return notes


def head(grid: Grid) -> list[str]:
    """Lines under the title: scale and seeds, what the numbers are, on which splits, how far they vary."""
    return [_scale_line(grid), _metric_line(grid), *_split_line(grid), *_spread_lines(grid), *_gain_lines(grid)]


def _scale_line(grid: Grid) -> str:
    scale, count = grid.scale, len(grid.seeds)
    line = f"scale {scale.name}" + ("" if scale.comparable else ", not comparable with the paper")
    if count:
        line += f"; {plural(count, 'seed')} a cell"
    if count > 1:
        line += ", ± is the sample standard deviation over them (one split)"
    if scale.comparable and 0 < count < ENOUGH_SEEDS:
        line += f"; with fewer than {ENOUGH_SEEDS} every verdict is provisional"
    return line


def _metric_line(grid: Grid) -> str:
    table = grid.experiment.table
    if table.metric == "threshold":
        return "T, the bound on the cumulative probability of the fuzzy positives; ours is what the runs use"
    if table.metric == "seconds_per_epoch":
        return (
            "seconds per epoch, a pass over the unlabeled images, validation left out; ours "
            f"{_where_measured(grid.entries)}; the paper's on 8 V100"
        )
    measured = [(entry.cell.row.label, entry.cell.configs[0].eval) for entry in grid.entries if entry.cell.configs]
    protocols = _with_exceptions([(row, PROTOCOLS[protocol.protocol]) for row, protocol in measured])
    absent = _with_exceptions([(row, ABSENT[protocol.absent]) for row, protocol in measured])
    return ", ".join(["mIoU in percent", *protocols, *absent]) + f"; {SELECTIONS[table.selection]}"


def _with_exceptions(found: Sequence[tuple[str, str]]) -> list[str]:
    """From (row, what holds for a cell of it) what holds for most cells, and in brackets the rows where not."""
    common = [what for what, _ in Counter(what for _, what in found).most_common()]
    others = [f"{', '.join(dict.fromkeys(row for row, own in found if own == what))}: {what}" for what in common[1:]]
    return [common[0] + (f" ({'; '.join(others)})" if others else "")] if common else []


def _where_measured(entries: Iterable[Entry]) -> str:
    places = Counter(
        f"{text(record, 'device') or 'an unknown device'} ({_count(record, 'workers')}, {_count(record, 'threads')})"
        for entry in entries
        for record in entry.records
    )
    return "on " + " and ".join(places) if places else "not measured yet"


def _count(record: Record, name: str) -> str:
    value = text(record, name).removesuffix(".0")
    return f"{value or '?'} {name if value != '1' else name.removesuffix('s')}"


def _split_line(grid: Grid) -> list[str]:
    families = dict.fromkeys(
        (config.data.dataset, config.data.split.family) for entry in grid.entries for config in entry.cell.configs
    )
    return ["splits: " + ", ".join(f"{dataset} {family}" for dataset, family in families)] if families else []


def _spread_lines(grid: Grid) -> list[str]:
    """What repeating a run with the same seed changes, and beside it what other seeds change."""
    if grid.experiment.table.metric != "miou" or not grid.seeds:
        return []
    lines = []
    if grid.repeated is not None:
        repeated, equal = grid.repeated, " (equal to the last bit)" if grid.repeated.std == 0 else ""
        times = (
            f"{repeated.values} times" if repeated.groups == 1 else f"{repeated.groups} runs {repeated.values} times"
        )
        lines.append(
            f"repeating one run with the same seed, {times}: standard deviation {repeated.std:.2f} points{equal}"
        )
    elif grid.scale.comparable:
        lines.append("repeating one run with the same seed: not measured (`fpl reproduce noise`)")
    if grid.over_seeds is not None:
        spread = grid.over_seeds
        settings = "1 setting" if spread.groups == 1 else f"{spread.groups} settings"
        lines.append(
            f"spread over seeds: standard deviation {spread.std:.2f} points ({spread.values} runs of {settings})"
        )
    else:
        lines.append("spread over seeds: unknown, each setting was run with one seed at most")
    return lines


def _gain_lines(grid: Grid) -> list[str]:
    """What columns gain over others, all rows together, with an interval over seeds."""
    gains = [f"{gain.ours} over {gain}" for gain in column_gains(grid)]
    return [f"points gained, of each seed the mean over rows: {'; '.join(gains)}"] if gains else []


def notes(grid: Grid) -> tuple[list[str], dict[str, list[int]]]:
    """Footnotes: texts in order, and the numbers (from 1) that belong to each row's key.

    The table's own footnotes come first and belong to no row.
    """
    texts = list(grid.experiment.table.footnotes)
    marks: dict[str, list[int]] = {}
    for line in grid.lines:
        row = line.row
        own = [row.note] if row.note else []
        if row.role == "cited":
            own.append(f"cited: {row.source}" if row.source else "cited, no source given")
        if row.role == "control":
            own.append("a control of this suite, not in the paper")
        for note in own:
            if note not in texts:
                texts.append(note)
            marks.setdefault(row.key, []).append(texts.index(note) + 1)
    return texts, {key: sorted(numbers) for key, numbers in marks.items()}


def gaps(grid: Grid) -> list[str]:
    """Why cells have no number of ours, or one of fewer seeds; rows and columns with the same reason together."""
    wanted = [entry for entry in grid.entries if entry.wanted]
    if wanted and all(entry.reason == "not yet run" for entry in wanted):
        found = ["not yet run: every cell"]
        rest: Sequence[Entry] = [entry for entry in grid.entries if entry.state == "pending"]
    else:
        found, rest = (
            [],
            [entry for entry in grid.entries if entry.state in ("partial", "failed", "missing", "pending")],
        )
    by_row: dict[tuple[str, str], list[Column]] = {}
    for entry in rest:
        by_row.setdefault((entry.reason, entry.cell.row.key), []).append(entry.cell.column)
    labels = {line.row.key: line.row.label for line in grid.lines}
    together: dict[tuple[str, str], list[str]] = {}
    for (reason, key), columns in by_row.items():
        possible = [
            entry for line in grid.lines if line.row.key == key for entry in line.entries if entry.state != "dash"
        ]
        where = "" if len(columns) == len(possible) else ", ".join(column.name for column in columns)
        together.setdefault((reason, where), []).append(labels[key])
    return found + [
        f"{reason}: {', '.join(rows)}" + (f" ({where})" if where else "") for (reason, where), rows in together.items()
    ]


def warnings(grid: Grid) -> list[str]:
    """What makes the numbers of this table doubtful: other data within a column, replaced runs, mixed versions."""
    return [*_mixed_data(grid), *_replaced(grid), *_mixed_provenance(grid)]


def _mixed_data(grid: Grid) -> list[str]:
    found = []
    for number, column in enumerate(grid.columns):
        entries = [(line.row.label, line.entries[number]) for line in grid.lines]
        for name, what in SAME_DATA.items():
            rows: dict[str, list[str]] = {}
            for label, entry in entries:
                for value in dict.fromkeys(text(record, name) for record in entry.records):
                    rows.setdefault(value or "unknown", []).append(label)
            if len(rows) > 1:
                parts = "; ".join(f"{value}: {', '.join(labels)}" for value, labels in rows.items())
                found.append(f"column {column.name} mixes runs of another {what}: {parts}")
    return found


def _replaced(grid: Grid) -> list[str]:
    recipes = {recipe for entry in grid.entries for recipe in entry.cell.recipes}
    ids = sorted(run for recipe in recipes for run in grid.lookup.replaced.get(recipe, []))
    if not ids:
        return []
    return [
        "older runs of the same recipes, on other data or from other weights, are left out for the newest: "
        + ", ".join(ids)
    ]


def _mixed_provenance(grid: Grid) -> list[str]:
    records = {str(record["run_id"]): record for entry in grid.entries for record in entry.records}
    found = []
    for name, what in PROVENANCE.items():
        counts = Counter(text(record, name) or "none" for record in records.values())
        if len(counts) > 1:
            listed = ", ".join(f"{value} ({plural(count, 'run', spec='d')})" for value, count in counts.items())
            found.append(f"the runs of this table differ in {what}: {listed}")
    return found


def legend(grids: Iterable[Grid]) -> list[str]:
    """What the signs of the verdicts mean, of those that the tables use."""
    used: dict[str, None] = {}
    for grid in grids:
        meanings = LEGEND_OF_THRESHOLDS if grid.experiment.table.metric == "threshold" else LEGEND
        for sign, meaning in meanings.items():
            if any(entry.verdict.mark == sign for entry in grid.entries):
                used.setdefault(f"{sign} {meaning}")
    if any(entry.verdict.provisional for grid in grids for entry in grid.entries):
        used.setdefault(f"* provisional: fewer than {ENOUGH_SEEDS} seeds")
    return list(used)
