"""`fpl splits ...`: parse, call, print."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fpl.cli.data import DATA, SPLITS, DataRoot, Splits, interruptible
from fpl.config.defaults import MOST_SEED
from fpl.text import answer, one_line

if TYPE_CHECKING:
    from fpl.data.spec import DatasetSpec
    from fpl.data.splits import Finding, Split

splits_app = typer.Typer(help="Lists of labeled and unlabeled images.", no_args_is_help=True)

Dataset = Annotated[str, typer.Argument(help="Data set, for example camvid.")]
Index = Annotated[
    int, typer.Option(min=0, max=MOST_SEED, help="Another split of the same fraction; 0 is the published one.")
]
OneDataset = Annotated[str | None, typer.Argument(help="Only this data set.", show_default="all")]
OneFamily = Annotated[str | None, typer.Option("--family", help="Only this family.", show_default="all")]
OneFraction = Annotated[str | None, typer.Option("--fraction", help="Only this fraction.", show_default="all")]


@splits_app.command("make")
def make(
    dataset: Dataset,
    fraction: Annotated[str, typer.Option(help="Share of labeled images, for example 1/8.")],
    family: Annotated[str, typer.Option(help="Rule that picks them: every-nth or ael-random.")] = "every-nth",
    index: Index = 0,
    data_root: DataRoot = DATA,
    splits: Splits = SPLITS,
) -> None:
    """Write the lists of labeled and unlabeled images that a rule gives."""
    from fpl.data.spec import find_root, get_spec
    from fpl.data.splits import make_split, split_folder, write_split

    spec = get_spec(dataset)
    split = make_split(spec, find_root(spec, data_root), family, fraction, index, splits_root=splits)
    folder = split_folder(splits, dataset, family, fraction, index)
    write_split(split, folder)
    _print_split(spec, split, folder)


@splits_app.command("import")
def import_lists(
    dataset: Dataset,
    labeled: Annotated[Path, typer.Argument(help="Published list of labeled images, in any dialect.")],
    fraction: Annotated[str, typer.Option(help="1/8, or the number of labeled images, for example 92.")],
    unlabeled: Annotated[
        Path | None, typer.Argument(help="List of unlabeled images.", show_default="all others, in the list's order")
    ] = None,
    family: Annotated[str, typer.Option(help="Family to file them under; see fpl splits list.")] = "imported",
    index: Index = 0,
    repair: Annotated[
        list[str] | None, typer.Option(help="drop-from-unlabeled: ids of both lists stay labeled only.")
    ] = None,
    data_root: DataRoot = DATA,
    splits: Splits = SPLITS,
) -> None:
    """Bring public lists to the suite's form, check them and record where they came from."""
    from fpl.data.spec import find_root, get_spec
    from fpl.data.splits import import_split, split_folder, write_split
    from fpl.data.splits.coverage import coverage
    from fpl.errors import FplError
    from fpl.text import enumerate_briefly

    spec = get_spec(dataset)
    try:
        root = find_root(spec, data_root)
    except FplError:
        root = None
        answer(f"{dataset} is not below {data_root}: ids on disk and validation ids are not checked")
    imported = import_split(
        spec, labeled, unlabeled, family, fraction, index, root=root, splits_root=splits, repairs=repair or ()
    )
    folder = split_folder(splits, dataset, family, fraction, index)
    write_split(imported.split, folder, imported.origin)
    _print_split(spec, imported.split, folder)
    if imported.dropped:
        answer(f"repaired: dropped from the unlabeled list, as they are labeled: {enumerate_briefly(imported.dropped)}")
    for warning in coverage(imported.split, spec, spec.list_ids(root, "train")).warnings if root else ():
        answer(f"warning: {warning}; fpl splits check looks at classes, too")


@splits_app.command("import-order")
def import_training_order(
    dataset: Annotated[str, typer.Argument(help="Data set: cityscapes.")],
    file: Annotated[Path, typer.Argument(help="Its published training list.")],
    splits: Splits = SPLITS,
) -> None:
    """Keep the published order of a training list, of which the rules take every n-th line."""
    from fpl.data.spec import get_spec
    from fpl.data.splits import import_order

    ids = import_order(get_spec(dataset), file, splits)
    answer(f"{len(ids)} training ids of {dataset} in the published order, in {splits / dataset / 'order.txt'}")


@splits_app.command("check")
def check(
    dataset: OneDataset = None,
    family: OneFamily = None,
    fraction: OneFraction = None,
    data_root: DataRoot = DATA,
    splits: Splits = SPLITS,
    fast: Annotated[bool, typer.Option("--fast", help="Do not read labels for the classes in them.")] = False,
) -> None:
    """Check all split lists against themselves, the data and the published ones; exits with 2 if anything is wrong."""
    from fpl.data.splits import survey
    from fpl.text import table

    with interruptible():
        findings = list(survey(splits, dataset, family, fraction, data_root=data_root, classes=not fast))
    _require(findings, splits, dataset)
    answer(table([finding.row for finding in findings]))
    if covered := [finding.coverage_row for finding in findings if finding.coverage]:
        answer(f"\nwhat the labeled images have, of what all images of the split have:\n{table(covered)}")
    for finding in findings:
        for warning in finding.coverage.warnings if finding.coverage else ():
            answer(f"\nwarning: {one_line(str(finding.folder))}: {warning}")
    unchecked = sorted({finding.folder.parts[-3] for finding in findings if finding.split and finding.data is None})
    if unchecked:
        answer(f"not below {data_root}, so that ids on disk and validation ids are unchecked: {', '.join(unchecked)}")
    faults = [fault for finding in findings for fault in finding.faults]
    for fault in faults:
        answer(f"\n{fault.message}")
    answer(f"\n{len(findings)} splits, {len(faults)} faults" if faults else f"{len(findings)} splits, nothing wrong")
    if faults:
        raise typer.Exit(2)


@splits_app.command("list")
def list_splits(dataset: OneDataset = None, splits: Splits = SPLITS) -> None:
    """The splits there are, and the families there can be."""
    from fpl.data.splits import FAMILIES, families_of, survey
    from fpl.text import table

    findings = list(survey(splits, dataset))
    answer(table([finding.row for finding in findings]) or f"no split of {dataset or 'any data set'} in {splits}")
    answer("\nfamilies:")
    for name in families_of(dataset) if dataset else FAMILIES:
        known = FAMILIES[name]
        only = f" ({', '.join(known.datasets)})" if known.datasets else ""
        how = "fpl splits make" if known.pick else f"fpl splits import, lists from {known.source}"
        answer(f"  {name}{only}: {known.rule}\n    -> {how}")


def _print_split(spec: DatasetSpec, split: Split, folder: Path) -> None:
    from fpl.data.splits import published_of

    answer(
        f"{len(split.labeled)} labeled ({split.labeled_digest}) and "
        f"{len(split.unlabeled)} unlabeled ({split.unlabeled_digest}) ids in {folder}"
    )
    published = published_of(spec, split.family, split.fraction, split.index)
    # Another list under this name would have been refused.
    if published:
        known = "what the rule gives from the published training list" if published.derived else "the published lists"
        answer(f"equals {known} (digests of the lines: {published})")
    else:
        answer(f"no published lists of {split.name} are known")


def _require(findings: list[Finding], splits: Path, dataset: str | None) -> None:
    from fpl.errors import FplError

    if not findings:
        raise FplError(
            f"no such split of {dataset or 'any data set'}",
            where=str(splits),
            hint=f"make one: fpl splits make {dataset or 'DATASET'} --fraction 1/8; the folder is set by --splits",
        )
