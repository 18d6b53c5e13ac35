"""Everything a run needs, found and checked before anything expensive starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fpl.config.checks import warnings_of
from fpl.config.identity import run_id
from fpl.config.schema import RunConfig
from fpl.data.cache import open_cache
from fpl.data.images import Images
from fpl.data.preflight import check_data, pin_data
from fpl.data.read import read_size
from fpl.data.spec import DatasetSpec, find_root, get_spec
from fpl.data.splits import Split, resolve_split
from fpl.errors import FplError, ShortageError
from fpl.files import check_folder
from fpl.models.pretrained import find_pretrained
from fpl.store.done import is_done
from fpl.store.schema import OF_ONE_RUN
from fpl.sweep.places import Places

# Decoded images are kept in memory when those that a run reads of a part need less than this, and that once per loader
# process.
KEEP_BYTES = 2**29


@dataclass(frozen=True)
class Prepared:
    """A run whose inputs have been found and checked."""

    config: RunConfig
    run_id: str
    spec: DatasetSpec
    root: Path
    split: Split
    images: Images
    warnings: tuple[str, ...]


def prepare(config: RunConfig, places: Places, expected: str = "") -> Prepared:
    """Find and check everything the run needs before anything expensive starts.

    Args:
        config: The run.
        places: Folders.
        expected: The run's id as it was planned; empty if it was not.

    Raises:
        ShortageError: What identifies its inputs was found when it was planned, and is missing or another one here.
        FplError: Data or split missing or wrong, or the class count of the configuration is not the data set's.
    """
    config, spec, root, split = _pin_again(config, places, expected) if expected else pin(config, places)
    cache = open_cache(spec, root, "train", config.data.downscale)
    keep = cache is None and fits_in_memory(spec, root, config, "train", (*split.labeled, *split.unlabeled))
    images = Images(spec, root, "train", config.data.downscale, keep, cache)
    identity = run_id(config)
    found: list[str] = []
    # A run that is done is only looked up: its data have been checked.
    if not is_done(places.out, identity):
        for table in OF_ONE_RUN:
            check_folder(places.out / table, str(places.out / table), "the run's rows go there: remove it, or mend it")
        found = check_data(config, split, images)
        check_validation_count(spec, root)
    return Prepared(config, identity, spec, root, split, images, (*warnings_of(config), *found))


def _pin_again(config: RunConfig, places: Places, expected: str) -> tuple[RunConfig, DatasetSpec, Path, Split]:
    try:
        found = pin(config, places)
    except FplError as error:
        what, where = error.what, error.where
    else:
        if (identity := run_id(found[0])) == expected:
            return found
        what, where = f"the data, split or weights here make it {identity}", str(places.data_root)
    raise ShortageError(
        f"planned as {expected}, but {what}", where=where, hint="all nodes must see the same data, splits and weights"
    )


def pin(config: RunConfig, places: Places) -> tuple[RunConfig, DatasetSpec, Path, Split]:
    """Fill in what identifies the run's inputs: digests of its lists, its validation set and its weights file.

    Raises:
        FplError: Data, split or weights are not there, or are not the ones that the configuration pins.
    """
    spec = get_spec(config.data.dataset)
    root = find_root(spec, places.data_root)
    config, split = resolve_split(config, places.splits_root)
    config = pin_weights(config, places.weights_dir)
    return pin_data(config, spec, root, split), spec, root, split


def check_validation_count(spec: DatasetSpec, root: Path) -> None:
    """Refuse an incomplete validation part.

    Raises:
        FplError: It has another number of images than the data set is known to have.
    """
    counts, found = spec.expected_counts(root), len(spec.list_ids(root, "val"))
    if counts is not None and found != counts["val"]:
        raise FplError(
            f"{spec.name} has {found} validation images instead of {counts['val']}",
            where=str(root),
            hint=f"a score on a part of them is another score; fpl data check {spec.name} names what is missing",
        )


def pin_weights(config: RunConfig, weights_dir: Path | None) -> RunConfig:
    """Fill in the checksum of the pretrained file, so that another file makes another run."""
    if config.model.pretrained == "none":
        return config
    _, sha256 = find_pretrained(config.model, weights_dir)
    return config.model_copy(update={"model": config.model.model_copy(update={"pretrained_sha256": sha256})})


def fits_in_memory(spec: DatasetSpec, root: Path, config: RunConfig, part: str, ids: Sequence[str]) -> bool:
    """Whether images of a part (image and label, a byte per channel) stay under `KEEP_BYTES`, by the first of them."""
    height, width = read_size(spec.image_path(root, part, ids[0]))
    return len(ids) * 4 * height * width // config.data.downscale**2 < KEEP_BYTES
