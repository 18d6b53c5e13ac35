"""Inputs that need no download: drawn data sets, splits by rule, the tiny network's pre-trained encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from fpl.config.schema import RunConfig
from fpl.config.weights import weights_file_names
from fpl.data.parallel import run_parallel
from fpl.data.spec import find_root, get_spec, has_data
from fpl.data.splits import get_family, make_split, split_folder, write_split
from fpl.data.splits.importing import rule_faults
from fpl.data.splits.split import LABELED_FILE
from fpl.data.splits.store import load_split
from fpl.sweep.places import Places

Say = Callable[[str], None]


def make_inputs(configs: Iterable[RunConfig], places: Places, say: Say) -> None:
    """Make what the runs need and a rule can give; what is there stays, what needs a download is left to the user.

    Args:
        configs: The runs.
        places: Where things belong; `weights_dir` must be set if a run trains the tiny network from its encoder.
        say: Told before each piece of work.

    Raises:
        FplError: Something in the way has another origin.
    """
    listed = list(configs)
    _draw(sorted({config.data.dataset for config in listed}), places, say)
    _encoders(listed, places, say)
    _splits(listed, places, say)


def _draw(datasets: list[str], places: Places, say: Say) -> None:
    from fpl.data.drawing import is_current
    from fpl.data.synthetic import draw_city, draw_voc

    for name in datasets:
        spec = get_spec(name)
        if spec.drawn and not (has_data(name, places.data_root) and is_current(find_root(spec, places.data_root))):
            say(f"drawing {name} in {places.data_root / name}: a few seconds")
            (draw_city if name == "synthetic_city" else draw_voc)(places.data_root / name)


def _splits(configs: list[RunConfig], places: Places, say: Say) -> None:
    splits = {
        (config.data.dataset, config.data.split.family, config.data.split.fraction, config.data.split.index)
        for config in configs
    }
    missing = []
    for named in sorted(splits):
        if get_family(named[1]).pick is None or not has_data(named[0], places.data_root):
            continue
        if (split_folder(places.splits_root, *named) / LABELED_FILE).is_file():
            _check_rule(named, places)
        else:
            missing.append(named)
    if missing:
        say(f"writing {len(missing)} splits in {places.splits_root}")
    for dataset, family, fraction, index in missing:
        spec = get_spec(dataset)
        root = find_root(spec, places.data_root)
        split = make_split(spec, root, family, fraction, index, splits_root=places.splits_root)
        write_split(split, split_folder(places.splits_root, dataset, family, fraction, index))


def _check_rule(named: tuple[str, str, str, int], places: Places) -> None:
    """Refuse lists that their rule does not give from the data at hand: other code, data or hands made them."""
    spec = get_spec(named[0])
    folder = str(split_folder(places.splits_root, *named))
    stored = load_split(places.splits_root, *named).split
    for fault in rule_faults(stored, spec, folder, find_root(spec, places.data_root), places.splits_root):
        raise fault


def _encoders(configs: list[RunConfig], places: Places, say: Say) -> None:
    models = {
        (config.model.tiny_width, config.model.tiny_depth): config.model
        for config in configs
        if config.model.backbone == "tiny" and config.model.pretrained == "imagenet"
    }
    folder = places.weights_dir
    if folder is None:
        return
    made = {size: (folder / weights_file_names(model)[0]).is_file() for size, model in sorted(models.items())}
    for size in (size for size, there in made.items() if there):
        _pretrain((folder, *size))  # looks whether the file is what this would make
    missing = [size for size, there in made.items() if not there]
    if not missing:
        return
    say(f"pre-training {len(missing)} tiny encoders in {folder}: about half a minute")
    run_parallel(_pretrain, [(folder, *size) for size in missing])


def _pretrain(arguments: tuple[Path, int, int]) -> None:
    from fpl.train.pretrain import pretrain_tiny

    folder, width, depth = arguments
    pretrain_tiny(folder, width=width, depth=depth)
