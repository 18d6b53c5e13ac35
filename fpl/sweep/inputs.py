"""Inputs that need no download: drawn data sets, splits by rule, the tiny network's pre-trained encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from fpl.config.schema import RunConfig
from fpl.data.parallel import run_parallel
from fpl.data.spec import find_root, get_spec, has_data
from fpl.data.splits import get_family, make_split, split_folder, write_split
from fpl.data.splits.importing import rule_faults
from fpl.data.splits.store import load_split
from fpl.sweep.places import Places
from fpl.sweep.plan.needs import Needs, split_name

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
    listed, needs = list(configs), Needs(places)
    for config in listed:
        needs.lacking(config)  # what nothing can be done about here, the run will say
    for name in sorted(needs.drawn):
        _draw(name, places, say)
    _encoders(listed, needs, say)
    _splits(listed, needs, say)


def _draw(name: str, places: Places, say: Say) -> None:
    from fpl.data.synthetic import draw_city, draw_voc

    say(f"drawing {name} in {places.data_root / name}: a few seconds")
    (draw_city if name == "synthetic_city" else draw_voc)(places.data_root / name)


def _splits(configs: list[RunConfig], needs: Needs, say: Say) -> None:
    places = needs.places
    named = {split_name(config) for config in configs}
    for each in sorted(named - set(needs.splits)):
        if get_family(each[1]).pick is not None and has_data(each[0], places.data_root):
            _check_rule(each, places)
    if needs.splits:
        say(f"writing {len(needs.splits)} splits in {places.splits_root}")
    for dataset, family, fraction, index in sorted(needs.splits):
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


def _encoders(configs: list[RunConfig], needs: Needs, say: Say) -> None:
    folder = needs.places.weights_dir
    if folder is None:
        return
    models = [config.model for config in configs if config.model.pretrained == "imagenet"]
    sizes = {(model.tiny_width, model.tiny_depth) for model in models if model.backbone == "tiny"}
    for size in sorted(sizes - set(needs.encoders)):
        _pretrain((folder, *size))  # looks whether the file is what this would make
    if needs.encoders:
        say(f"pre-training {len(needs.encoders)} tiny encoders in {folder}: about half a minute")
        run_parallel(_pretrain, [(folder, *size) for size in sorted(needs.encoders)])


def _pretrain(arguments: tuple[Path, int, int]) -> None:
    from fpl.train.pretrain import pretrain_tiny

    folder, width, depth = arguments
    pretrain_tiny(folder, width=width, depth=depth)
