"""The families of splits: by which rule, or from which public source, images became the labeled ones."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fpl.data.spec import DatasetSpec, unknown_name
from fpl.errors import FplError

Ids = tuple[str, ...]
Pick = Callable[[Sequence[str], str, int], tuple[Ids, Ids]]

_CPS = "the released CPS code: github.com/charlesCXK/TorchSemiSeg, split lists of its DATA download"
_UNIMATCH = "UniMatch: github.com/LiheYoung/UniMatch, folder splits/"


@dataclass(frozen=True)
class Family:
    """One family of splits.

    Attributes:
        name: Name in configurations, on the command line and as a folder.
        rule: Which images are labeled and which are unlabeled.
        pick: Labeled and unlabeled ids from training list, fraction and index; None where no rule gives the labeled.
        source: Public source of lists that no rule gives.
        pool: Images that labeled and unlabeled ones are together: "train", or a subset of it.
        datasets: Data sets it is for; empty for all.
        fractions: Allowed fractions; empty for all.
        fixed_unlabeled: Whether the unlabeled images are all others of the pool, in its order.
    """

    name: str
    rule: str
    pick: Pick | None = None
    source: str = ""
    pool: str = "train"
    datasets: tuple[str, ...] = ()
    fractions: tuple[str, ...] = ()
    fixed_unlabeled: bool = False


def every_nth(ids: Sequence[str], n: int, index: int = 0) -> tuple[Ids, Ids]:
    """Labeled (index, index + n, ...) and unlabeled ids (the rest), both in the order of `ids`.

    With index 0 it gives ceil(N/n) labeled ids and splits that are nested for n = 2, 4, 8, ..., and reproduces the
    Cityscapes and VOC train_aug lists of the released CPS code from their training lists. The n splits of one
    fraction share no labeled image.
    """
    labeled = tuple(ids[index::n])
    unlabeled = tuple(image_id for number, image_id in enumerate(ids) if number % n != index)
    return labeled, unlabeled


def seeded_sample(ids: Sequence[str], count: int, seed: int) -> tuple[Ids, Ids]:
    """Labeled ids as AEL's released code draws them, in the order drawn, and the rest in the order of `ids`.

    AEL leaves the order of the rest to the hash seed of each process; here it is that of the list.
    """
    labeled = tuple(random.Random(seed).sample(list(ids), count))
    return labeled, without(ids, labeled)


def without(ids: Sequence[str], taken: Sequence[str]) -> Ids:
    """The ids that are not in `taken`, in their order."""
    known = frozenset(taken)
    return tuple(image_id for image_id in ids if image_id not in known)


def labeled_count(fraction: str, total: int, index: int = 0) -> int:
    """Number of labeled images: "92" is 92, "1/n" the number of lines index, index + n, ... of `total`, rounded up."""
    _, _, n = fraction.partition("/")
    return -(-(total - index) // int(n)) if n else int(fraction)


def _pick_every_nth(ids: Sequence[str], fraction: str, index: int) -> tuple[Ids, Ids]:
    match = re.fullmatch(r"1/([1-9][0-9]*)", fraction)
    if match is None:
        raise FplError(f"fraction '{fraction}' is not of the form 1/n", hint="family every-nth labels one of n images")
    if not 0 <= index < int(match[1]):
        raise FplError(f"there is no split {index} of {fraction}", hint=f"0..{int(match[1]) - 1} are allowed")
    return every_nth(ids, int(match[1]), index)


def _pick_ael_random(ids: Sequence[str], fraction: str, index: int) -> tuple[Ids, Ids]:
    if index < 1:
        raise FplError("ael-random needs a seed", hint="its index is the seed: --index 1 to --index 5 are AEL's")
    count = labeled_count(fraction, len(ids))
    if count > len(ids):
        raise FplError(f"{count} labeled images of {len(ids)} are asked for", hint="ask for fewer")
    return seeded_sample(ids, count, index)


_LOW_DATA = ("92", "183", "366", "732")

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family(
            "every-nth",
            "labeled: lines i, i + n, i + 2n, ... of the training list (i = index); unlabeled: the others, in the "
            "list's order (index 0 is the rule behind the lists of the released CPS code)",
            pick=_pick_every_nth,
            source=_CPS,
        ),
        Family(
            "clean-nth",
            "as every-nth, but of the cleanly annotated images alone, in the order of their list; unlabeled: the other "
            "clean ones (what the low-data lists are to VOC, where no list is published)",
            pick=_pick_every_nth,
            pool="clean",
            datasets=("voc", "synthetic_voc"),
        ),
        Family(
            "ael-random",
            "labeled: random.sample of the training list after random.seed(index), as AEL's released code draws with "
            "seeds 1 to 5; unlabeled: the others, in the list's order",
            pick=_pick_ael_random,
        ),
        Family(
            "pseudoseg-1464",
            "labeled: PseudoSeg's lists of 92, 183, 366 and 732 cleanly annotated images; unlabeled: the other clean "
            "ones of 1,464, in the list's order",
            source=f"files pseudoseg_labeled_1-16.txt (92) to 1-2.txt (732) of {_CPS}",
            pool="clean",
            datasets=("voc",),
            fractions=_LOW_DATA,
            fixed_unlabeled=True,
        ),
        Family(
            "pseudoseg-10582",
            "labeled: PseudoSeg's lists of 92, 183, 366 and 732 cleanly annotated images; unlabeled: the other images "
            "of all 10,582, in the list's order (the CPS author's own recipe keeps the labeled ones among them)",
            source=f"files pseudoseg_labeled_1-16.txt (92) to 1-2.txt (732) of {_CPS}",
            datasets=("voc",),
            fractions=_LOW_DATA,
            fixed_unlabeled=True,
        ),
        Family(
            "u2pl",
            "lists that U2PL drew and UniMatch republishes, of all 10,582 images",
            source=f"subfolders pascal/u2pl_* of {_UNIMATCH}",
            datasets=("voc",),
        ),
        Family(
            "unimatch",
            "lists of UniMatch; they equal those of the released CPS code but for 732 (other images), 1464, Cityscapes "
            "1/30 and the order of the unlabeled images of the low-data lists",
            source=_UNIMATCH,
            datasets=("voc", "cityscapes"),
        ),
        Family(
            "imported", "lists from elsewhere, whose record names the files they came from", source="whoever made them"
        ),
    )
}


def get_family(name: str, dataset: str | None = None, fraction: str | None = None) -> Family:
    """The family called `name`.

    Raises:
        FplError: There is none, or it is not for the data set or the fraction.
    """
    if name not in FAMILIES:
        raise unknown_name("split family", name, FAMILIES)
    family = FAMILIES[name]
    if fraction is not None and not re.fullmatch(r"1/[1-9][0-9]{0,8}|[1-9][0-9]{0,8}", fraction):
        raise FplError(f"fraction '{fraction}'", hint="allowed: 1/n (1/8), or the number of labeled images (92)")
    if dataset is not None and family.datasets and dataset not in family.datasets:
        raise FplError(
            f"split family {name} is not for {dataset}",
            hint=f"{name} is for {', '.join(family.datasets)}; for {dataset}: {', '.join(families_of(dataset))}",
        )
    if fraction is not None and family.fractions and fraction not in family.fractions:
        raise FplError(f"split family {name} has no {fraction}", hint=f"there are: {', '.join(family.fractions)}")
    return family


def families_of(dataset: str) -> list[str]:
    """Names of the families that a data set may have."""
    return [family.name for family in FAMILIES.values() if not family.datasets or dataset in family.datasets]


def expected_counts(
    spec: DatasetSpec, family: Family, fraction: str, index: int, total: int | None
) -> tuple[int, int] | None:
    """Numbers of labeled and unlabeled ids that a split must have; None where nothing says.

    Args:
        spec: The data set.
        family: The family.
        fraction: "1/n" or a number of labeled images.
        index: Which of the splits of this fraction.
        total: Number of training images; None when unknown.
    """
    pool = total if family.pool == "train" else spec.subset_counts.get(family.pool)
    if pool is None or (family.name == "imported" and "/" in fraction):
        return None
    labeled = labeled_count(fraction, pool, index if family.pick is _pick_every_nth else 0)
    return labeled, pool - labeled


def how_to_get(dataset: str, family: str, fraction: str, index: int = 0) -> str:
    """The command that makes a split, or where its lists are public and the command that imports them."""
    named = "" if family == "every-nth" else f" --family {family}"
    which = f" --index {index}" if index else ""
    known = FAMILIES.get(family)
    if known is None or known.pick is not None:
        return f"make it: fpl splits make {dataset} --fraction {fraction}{named}{which} --data-root DIR"
    lists = "LABELED" if known.fixed_unlabeled else "LABELED UNLABELED"
    return (
        f"no rule gives these lists; take them from {known.source}; then: "
        f"fpl splits import {dataset} {lists} --fraction {fraction}{named}{which}"
    )
