"""What the published lists are known by: hashes, not the lists themselves."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from fpl.data.spec import DatasetSpec
from fpl.data.splits.split import Split, digest_ids


@dataclass(frozen=True)
class Published:
    """Digests of two published lists, each of the stripped lines joined by line feeds.

    `unlabeled` of PseudoSeg's lists is of the repaired list: each published one holds one labeled id. `derived` says
    that nobody published the lists as files: they are what the rule gives from the published training list.
    """

    labeled: str
    unlabeled: str
    cps_lines: bool = False
    derived: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        """Both digests."""
        return f"{self.labeled} / {self.unlabeled}"


def cps_lines(dataset: str, ids: Sequence[str]) -> list[str]:
    """Lines of the training lists of the released CPS code: image, tab and label for Cityscapes, else the bare ids."""
    if dataset != "cityscapes":
        return list(ids)
    return [f"/images/train/{each}.png\t/segmentation/train/{each}_gtFine.png" for each in ids]


def cps_file(dataset: str, ids: Sequence[str]) -> bytes:
    """Bytes of a training list of the released CPS code: every line ends with a line feed."""
    return "".join(f"{line}\n" for line in cps_lines(dataset, ids)).encode()


def file_digest(content: bytes) -> str:
    """First 16 hex digits of the SHA-256 of a file."""
    return hashlib.sha256(content).hexdigest()[:16]


ORDERS: dict[str, str] = {"cityscapes": "c3cfe49bc680f1db", "voc": "855dff350b7f447b"}
"""Data set -> digest of the lines of its published training list (`train.txt`, `train_aug.txt`)."""

# The part of each published unlabeled list that is labeled at the same time.
LEAKS: dict[str, str] = {"92": "2008_004822", "183": "2009_001036", "366": "2007_000032", "732": "2009_000662"}
"""Number of labeled images -> the labeled id that PseudoSeg's published unlabeled list holds, too."""

_CITY = {
    "1/32": ("7abf0a36a5efada7", "7fc5f83974d7f4c7"),
    "1/16": ("f5d8708b6b263bd5", "cdc12aaaa6ee7ed9"),
    "1/8": ("b2c3a0965b0981d8", "aea888bf6a978f85"),
    "1/4": ("ff9a1ca29bd93e78", "42296f2ac3221a2f"),
    "1/2": ("30d960fc45e1896e", "584b33e137f8ffd8"),
}
_VOC = {
    "1/16": ("baa85754594fcd33", "c38f02fc6adc3443"),
    "1/8": ("c9ca45b4e688d408", "0ff7a0ae65046a6d"),
    "1/4": ("fd0e8dca3dac524c", "dc5e8c0473850634"),
    "1/2": ("5338f277730143e0", "42ae9d1941af6820"),
}
_PSEUDOSEG = {  # labeled, unlabeled of 1,464, unlabeled of 10,582
    "92": ("7feeb5314d994857", "28571f089b214798", "7ea77f8ddd7b327e"),
    "183": ("5dac0b72efebf633", "00635c5b7820da29", "92513e42c678015a"),
    "366": ("97abd8fe7d52346b", "74398bbe2b69058b", "0bee39f227c8a753"),
    "732": ("ba2d2c50ff29e4b8", "150efd8f565375ea", "66f196be4d6c2556"),
}
_U2PL = {
    "1/16": ("e9bb5d18af804179", "a9a7e39271779cca"),
    "1/8": ("112dcea11e1a1d21", "669ca8dc16acaf33"),
    "1/4": ("4cc769f75d69c74e", "4fd8e0bc7304c99a"),
}
_UNIMATCH_VOC = {
    "1/16": _VOC["1/16"],
    "1/8": _VOC["1/8"],
    "1/4": _VOC["1/4"],
    "92": ("7feeb5314d994857", "9ae9c7726c7e06f8"),
    "183": ("5dac0b72efebf633", "4a3f4c77c01bae73"),
    "366": ("97abd8fe7d52346b", "2cb6fe3645fa20e6"),
    "732": ("b2973f8d47b780e0", "077f8aab59662940"),
    "1464": ("129f1fe991729b18", "ba34ae09804b5676"),
}
_UNIMATCH_CITY = {
    "1/16": ("de235b9fae9cafc1", "78ccc6572cf4aaeb"),
    "1/8": ("d28bf27e274b48d9", "ab3b09cbe5d7cf9f"),
    "1/4": ("e8ad4829253c19fb", "dcf2e57f072e98bd"),
    "1/2": ("5f5db5b45b41e891", "6f516757ff82f270"),
    "1/30": ("25f7c1eacdde4515", "051ded751ed96553"),
}

PUBLISHED: dict[tuple[str, str, str], Published] = {
    **{("cityscapes", "every-nth", key): Published(*pair, True, key == "1/32") for key, pair in _CITY.items()},
    **{("voc", "every-nth", key): Published(*pair) for key, pair in _VOC.items()},
    **{("voc", "pseudoseg-1464", key): Published(one, two) for key, (one, two, _) in _PSEUDOSEG.items()},
    **{("voc", "pseudoseg-10582", key): Published(one, two) for key, (one, _, two) in _PSEUDOSEG.items()},
    **{("voc", "u2pl", key): Published(*pair) for key, pair in _U2PL.items()},
    **{("voc", "unimatch", key): Published(*pair) for key, pair in _UNIMATCH_VOC.items()},
    **{("cityscapes", "unimatch", key): Published(*pair) for key, pair in _UNIMATCH_CITY.items()},
}
"""(data set, family, fraction) -> digests of the published lists, all of index 0."""


def published_of(spec: DatasetSpec, family: str, fraction: str, index: int = 0) -> Published | None:
    """Digests of the published lists of a split; None where none are published (or the data set has another size)."""
    if index or spec.counts is None:
        return None
    return PUBLISHED.get((spec.name, family, fraction))


def digests_like(split: Split, published: Published) -> Published:
    """Digests of a split in the dialect of the published lists."""
    if not published.cps_lines:
        return Published(split.labeled_digest, split.unlabeled_digest)
    labeled, unlabeled = (digest_ids(cps_lines(split.dataset, ids)) for ids in (split.labeled, split.unlabeled))
    return Published(labeled, unlabeled, cps_lines=True)


def is_published_order(dataset: str, ids: Sequence[str]) -> bool:
    """Whether `ids` are the published training list in its order; True where none is published."""
    return dataset not in ORDERS or digest_ids(cps_lines(dataset, ids)) == ORDERS[dataset]


def unpublished(dataset: str, ids: Sequence[str]) -> tuple[str, str]:
    """What tells training ids from the published list of a data set that they are not, and what to do."""
    if is_published_order(dataset, sorted(ids)):
        what = f"the {len(ids)} training ids are those of the published list in another order"
        return what, "no published split can be made of them: remove ImageSets/Segmentation/train_aug.txt"
    digest = digest_ids(cps_lines(dataset, ids))
    what = f"the {len(ids)} training ids are not those of the published list"
    return f"{what}: digest {digest} instead of {ORDERS[dataset]}", (
        "no published split can be made of them: is the copy of another year or release? Remove ImageSets/Segmentation/"
        "train_aug.txt if there is one, and let `fpl data prepare` make SegmentationClassAug again"
    )
