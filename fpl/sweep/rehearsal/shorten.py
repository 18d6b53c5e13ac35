"""A run of the paper's scale made short enough to try: one worker's share of its batch, two steps, two images."""

from __future__ import annotations

from dataclasses import dataclass

from fpl.config.schema import RunConfig

# One before the kill and one after it.
STEPS = 2
VALIDATED = 2
# Below that, batch norm in the image-level pooling sees one value a channel.
FEWEST = 2
BATCH = ("data.labeled_batch", "data.unlabeled_batch", "data.groups")


@dataclass(frozen=True)
class Share:
    """A part of a run's batch.

    Attributes:
        labeled: Labeled images a step.
        unlabeled: Unlabeled ones; 0 for a method without.
        groups: Groups that they make.
    """

    labeled: int
    unlabeled: int
    groups: int

    @property
    def images(self) -> int:
        """Of both kinds."""
        return self.labeled + self.unlabeled

    @property
    def overrides(self) -> list[str]:
        """As overrides of a run."""
        return [f"{key}={value}" for key, value in zip(BATCH, (self.labeled, self.unlabeled, self.groups), strict=True)]

    def words(self) -> str:
        """`2 + 2`."""
        return f"{self.labeled} + {self.unlabeled}"


def shares(config: RunConfig, workers: int, processes: int = 1) -> list[Share]:
    """Parts of a run's batch, the largest first: what one of `workers` has, then fewer for a machine with less memory.

    A share is of whole groups, as that of a worker is, so that its memory and time are a worker's. The last may be of a
    broken group: the fewest images that can be trained.

    Args:
        config: The run as published.
        workers: Workers that share its batch.
        processes: Processes that the share is for; each gets whole groups.
    """
    data = config.data
    groups = data.groups or 1
    labeled, unlabeled = data.labeled_batch // groups, data.unlabeled_batch // groups
    found = []
    for count in range(max(1, groups // workers), 0, -1):
        share = Share(labeled * count * processes, unlabeled * count * processes, count * processes)
        enough = share.labeled >= FEWEST and (share.unlabeled >= FEWEST or not unlabeled)
        if enough:
            found.append(share)
    fewest = Share(FEWEST * processes, FEWEST * processes if unlabeled else 0, processes)
    fewer = [share for share in found if share.images <= fewest.images]
    return found if fewer else [*found, fewest]


def shortened(config: RunConfig, share: Share, *, whole: bool) -> list[str]:
    """Overrides that make a run a short one, to stand behind all others.

    Args:
        config: The run as published.
        share: Its batch.
        whole: Whether crops keep their size; else their sides are halved.
    """
    found = [f"train.steps={STEPS}", f"train.evaluate_every={STEPS}", *share.overrides]
    if config.data.split.holdout is None:
        found.append(f"eval.subsample={VALIDATED}")
    if not whole:
        found.append(f"data.crop={list(halved(config.data.crop))}".replace(" ", ""))
    return found


def halved(crop: tuple[int, int]) -> tuple[int, int]:
    """800 becomes 400, 769 becomes 385: what the network's strides divide stays so."""
    return crop[0] // 2 + crop[0] % 2, crop[1] // 2 + crop[1] % 2
