"""What a rehearsal reads: real data and weights where they are, else drawn and made ones in a folder of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fpl.config.schema import RunConfig
from fpl.config.sections import ModelConfig
from fpl.config.weights import CHECKSUM_SUFFIX, RESNET_FILES
from fpl.data.spec import DatasetSpec, get_spec, has_data
from fpl.data.splits import cps_file, every_nth, get_family, import_order, make_split, split_folder, write_split
from fpl.data.splits.families import without
from fpl.data.splits.published import ORDERS
from fpl.data.splits.split import Split
from fpl.errors import FplError
from fpl.files import file_sha256, write_atomic
from fpl.sweep.places import Places
from fpl.sweep.rehearsal.names import Names, find_names, make_names
from fpl.sweep.rehearsal.trees import make_tree

# What made-up lists are filed under: no published digest is claimed for them.
IMPORTED = "imported"
NOTICE = "NOT_REAL.txt"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Inputs:
    """What one run of the rehearsal reads.

    Attributes:
        places: Its folders.
        overrides: What of its configuration follows from the inputs.
        data: Words for the report: real, or drawn under which names.
        weights: Words for the report: real, made, or none.
    """

    places: Places
    overrides: tuple[str, ...]
    data: str
    weights: str


def get_inputs(config: RunConfig, own: Places, user: Places, lists: Sequence[Path], say: Say) -> Inputs:
    """Find what a run reads, and make what is not there.

    Args:
        config: The run as published.
        own: Folders of the rehearsal: whatever is made goes there.
        user: The user's folders: what is there is taken as it is.
        lists: Folders of public split lists, which the names of a drawn set come from.
        say: Told before something is made.

    Raises:
        FplError: Neither there nor to be made.
    """
    spec = get_spec(config.data.dataset)
    if has_data(spec.name, user.data_root):
        places, data, overrides = replace(user, out=own.out), "real", []
    elif spec.name in ORDERS:
        names = _tree(spec, own, lists, say)
        places, overrides = own, _split(config, spec, names, own)
        data = "drawn, published names" if names.published else "drawn, made-up names"
        data += " and lists (--lists DIR has the published ones)" if overrides else " and split lists"
    elif spec.drawn:
        places, data, overrides = own, "drawn", []  # by the run itself
    else:
        raise FplError(
            f"data set {spec.name} is not below {user.data_root}, and a rehearsal draws none of its size",
            hint=f"drawn are {', '.join(sorted(ORDERS))}; {spec.how_to_get(user.data_root)}",
        )
    folder, weights = _weights(config.model, own, user, say)
    return Inputs(replace(places, weights_dir=folder), tuple(overrides), data, weights)


def _tree(spec: DatasetSpec, own: Places, lists: Sequence[Path], say: Say) -> Names:
    names = names_of(spec.name, tuple(lists))
    _notice(own.data_root)
    make_tree(spec, own.data_root / spec.folder, names, say)
    return names


@functools.cache
def names_of(dataset: str, lists: tuple[Path, ...]) -> Names:
    """Names of a data set, from public lists or made up; once for all runs, as there are dozens of lists to read."""
    spec = get_spec(dataset)
    return find_names(spec, lists) or make_names(spec)


def _notice(folder: Path) -> None:
    text = "Made by fpl rehearse: drawn images and random weights under the names of real ones.\n"
    if not (folder / NOTICE).is_file():
        write_atomic(folder / NOTICE, text.encode())


def _split(config: RunConfig, spec: DatasetSpec, names: Names, own: Places) -> list[str]:
    """Write the run's lists; overrides where they are filed under another family.

    With the published names a rule gives the published lists, which `make_split` holds against their digests. Without,
    and where no rule gives them, lists of the same lengths are filed as imported ones.
    """
    wanted = config.data.split
    family, root, splits = wanted.family, own.data_root / spec.folder, own.splits_root
    if names.published and get_family(family).pick is not None:
        if spec.layout.city_ids:
            order = splits / spec.name / "train.txt"
            write_atomic(order, cps_file(spec.name, names.train))
            import_order(spec, order, splits)
        split = make_split(spec, root, family, wanted.fraction, wanted.index, splits_root=splits)
        write_split(split, split_folder(splits, spec.name, family, wanted.fraction, wanted.index))
        return []
    share, _, nth = wanted.fraction.partition("/")
    labeled = every_nth(names.train, int(nth), wanted.index)[0] if nth else names.train[: int(share)]
    split = Split(spec.name, IMPORTED, wanted.fraction, labeled, without(names.train, labeled), index=wanted.index)
    write_split(split, split_folder(splits, spec.name, IMPORTED, wanted.fraction, wanted.index))
    return [f"data.split.family={IMPORTED}"]


def _weights(model: ModelConfig, own: Places, user: Places, say: Say) -> tuple[Path | None, str]:
    """Folder of the backbone's weights, and words for what they are."""
    if model.pretrained == "none":
        return user.weights_dir, "none"
    from fpl.models.pretrained import find_pretrained

    names = RESNET_FILES.get(model.backbone, ())
    folders: Iterable[Path | None] = [user.weights_dir, user.data_root / "weights"]
    for folder in folders:
        if folder is not None and any((folder / name).is_file() for name in names):
            find_pretrained(model, folder, download=False)
            return folder, "real"
    if not names:
        return user.weights_dir, "as the run finds them"  # of other backbones the run says what it lacks
    assert own.weights_dir is not None
    make_weights(own.weights_dir, model, say)
    return own.weights_dir, "made"


def make_weights(folder: Path, model: ModelConfig, say: Say) -> Path:
    """A file of random weights with the name, the tensors and the shapes of the public one, beside its checksum.

    Args:
        folder: Of the rehearsal alone: nothing else may take it for the public file.
        model: Of which backbone.
        say: Told before it is made.

    Raises:
        FplError: The file there was changed.
    """
    import torch

    from fpl.models import build_network
    from fpl.models.pretrained import find_pretrained

    path = folder / RESNET_FILES[model.backbone][0]
    record = path.with_name(path.name + CHECKSUM_SUFFIX)
    if not (path.is_file() and record.is_file()):
        say(f"making random weights under the name {path.name} in {folder}")
        _notice(folder)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            plain = ModelConfig.model_validate({"backbone": model.backbone, "pretrained": "none"})
            state = dict(build_network(plain, 2).backbone.state_dict())
            # The public files hold ImageNet's classifier too.
            state |= {"fc.weight": torch.randn(1000, 2048) / 50, "fc.bias": torch.zeros(1000)}
        write_atomic(path, lambda file: torch.save(state, file))
        write_atomic(record, f"{file_sha256(path)}  {path.name}\n".encode())
    find_pretrained(model, folder, download=False)
    return path
