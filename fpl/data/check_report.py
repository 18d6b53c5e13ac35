"""What a check of a data set found, and how it is told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fpl.data.check_files import Finding, Size, by
from fpl.text import aligned, duration, one_line

NAMED = 10
"""So many files of one fault are named; of the others only the number is told."""


@dataclass(frozen=True)
class PartSummary:
    """One part in numbers.

    Attributes:
        part: "train" or "val".
        listed: Number of ids.
        images: Images on disk.
        labels: Labels on disk.
        decoded: Images decoded.
        sizes: (height, width) -> number of images.
        pixels: Label pixels per class and, last, of those to ignore: int64 [C + 1].
        class_images: Labels in which each occurs: int64 [C + 1].
    """

    part: str
    listed: int
    images: int
    labels: int
    decoded: int
    sizes: dict[Size, int]
    pixels: NDArray[np.int64]
    class_images: NDArray[np.int64]

    @property
    def classes_seen(self) -> int:
        """Classes that occur in a label."""
        return int(np.count_nonzero(self.pixels[:-1]))

    @property
    def ignore_share(self) -> float:
        """Share of label pixels that count nowhere, 0..1."""
        return float(self.pixels[-1] / max(1, self.pixels.sum()))


@dataclass(frozen=True)
class CheckReport:
    """All that a check found.

    Attributes:
        dataset: Name of the data set.
        root: Its folder.
        class_names: C names.
        parts: One summary per part.
        findings: Faults, warnings and notes in an order that does not depend on the number of workers.
        sampled: Whether only some files were decoded.
        seconds: How long it took.
    """

    dataset: str
    root: Path
    class_names: tuple[str, ...]
    parts: tuple[PartSummary, ...]
    findings: tuple[Finding, ...]
    sampled: bool
    seconds: float

    def of_level(self, level: str, part: str | None = None) -> list[Finding]:
        """Findings of a level ("fault", "warning", "note"), of one part or of all."""
        return [each for each in self.findings if each.level == level and part in (None, each.part)]

    @property
    def faults(self) -> list[Finding]:
        """What makes the check fail."""
        return self.of_level("fault")


def report_text(report: CheckReport) -> str:
    """The report for people: two tables, then every finding with its file and remedy, ending with the verdict."""
    decoded = sum(part.decoded for part in report.parts)
    images = sum(part.images for part in report.parts)
    which = f"a sample of {decoded} of {images} images" if report.sampled else f"all {decoded} images"
    lines = [f"{report.dataset} in {report.root}: {which} decoded in {duration(report.seconds)}", ""]
    lines += _table(_part_rows(report))
    lines += ["", *_table(_class_rows(report))]
    for level, title in (("note", "notes"), ("warning", "warnings"), ("fault", "faults")):
        findings = report.of_level(level)
        if findings:
            lines += ["", f"{title}:", *_grouped(findings)]
    return "\n".join([*lines, "", _verdict(report)])


def _verdict(report: CheckReport) -> str:
    faults, warnings = len(report.faults), len(report.of_level("warning"))
    sampled = " in the sample (without --fast all files are decoded)" if report.sampled else ""
    told = f"{_count(faults, 'fault')}, {_count(warnings, 'warning')}{sampled}"
    return f"{report.dataset}: {told}" if faults else f"{report.dataset} is as it should be: {told}"


def _part_rows(report: CheckReport) -> Iterator[Sequence[str]]:
    yield ("part", "images", "labels", "height x width", "classes", "ignore", "faults")
    for part in report.parts:
        yield (
            part.part,
            str(part.images),
            str(part.labels),
            _sizes(part.sizes),
            f"{part.classes_seen}/{len(report.class_names)}",
            f"{100 * part.ignore_share:.2f} %",
            str(len(report.of_level("fault", part.part))),
        )


def _sizes(sizes: dict[Size, int]) -> str:
    if not sizes:
        return "-"
    if len(sizes) > 3:
        heights, widths = zip(*sizes, strict=True)
        return f"{min(heights)}-{max(heights)} x {min(widths)}-{max(widths)}"
    most_first = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
    return by(most_first[0][0]) if len(sizes) == 1 else ", ".join(f"{by(size)} ({n})" for size, n in most_first)


def _class_rows(report: CheckReport) -> Iterator[Sequence[str]]:
    columns = (f"{part.part} {what}" for part in report.parts for what in ("pixels", "share", "images"))
    yield ("class", *columns)
    for index, name in enumerate((*report.class_names, "(ignore)")):
        cells = []
        for part in report.parts:
            pixels = int(part.pixels[index])
            # The share of a class is of the pixels that count; that of ignore is of all.
            total = part.pixels.sum() if index == len(report.class_names) else part.pixels[:-1].sum()
            cells += [f"{pixels:,}", f"{100 * pixels / max(1, int(total)):.2f} %", str(part.class_images[index])]
        yield (name, *cells)


def _table(rows: Iterator[Sequence[str]]) -> list[str]:
    cells = list(rows)
    return aligned(cells, range(1, len(cells[0])))


def _grouped(findings: Sequence[Finding]) -> Iterator[str]:
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.part, finding.kind, finding.remedy), []).append(finding)
    for number, ((part, kind, remedy), group) in enumerate(groups.items(), start=1):
        if len(group) == 1:
            yield f"  {number}. {_told(group[0])}"
        else:
            yield f"  {number}. {part}, {kind}: {len(group)} files"
            yield from (f"       {_told(each)}" for each in group[:NAMED])
        if len(group) > NAMED:
            yield f"       and {len(group) - NAMED} more"
        if remedy:
            yield f"     -> {remedy}"


def _told(finding: Finding) -> str:
    return one_line(f"{finding.file}: {finding.what}")  # names of files may hold line ends


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number or 'no'} {word}s"
