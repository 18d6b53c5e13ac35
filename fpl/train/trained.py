"""Trained weights back as something that predicts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from fpl.config.registry import method_class
from fpl.config.schema import RunConfig
from fpl.config.stores import STORES, own_stores
from fpl.data.cache import open_cache
from fpl.data.contents import file_names
from fpl.data.drawing import check_drawn
from fpl.data.preflight import pin_data
from fpl.data.spec import DatasetSpec, find_root, get_spec
from fpl.data.validation import ValidationSet, validation_ids
from fpl.errors import FplError
from fpl.methods.base import Method
from fpl.mirrors import folder_names, refresh
from fpl.models import SegmentationNetwork, build_network
from fpl.models.norm import fit_norms
from fpl.train.checkpoint import CheckpointFolder, load
from fpl.train.evaluate import check_counted, class_map, evaluate, predict_logits
from fpl.train.logits import WatchedLogits
from fpl.train.owner import ANOTHER, CHECKPOINTS, check_place, config_of
from fpl.train.parts import part_problem, tensors_problem
from fpl.train.progress import Progress
from fpl.train.runtime import Workers, autocast, prepare_torch

DIVERGED = "the run has diverged: train it again"


@dataclass
class Trained:
    """A trained method, ready to predict.

    Attributes:
        path: File of its weights.
        config: The run's configuration.
        spec: The data set that it was trained on.
        method: What was trained, in evaluation mode.
        step: Training step that the weights are of.
        device: Where it computes.
    """

    path: Path
    config: RunConfig
    spec: DatasetSpec
    method: Method
    step: int
    device: torch.device

    @torch.inference_mode()
    def classes(self, image: Tensor, size: tuple[int, int]) -> Tensor:
        """Class map `[H, W]` (int64) at `size` for a uint8 image `[3, h, w]` already reduced by `data.downscale`.

        Raises:
            FplError: The logits are no finite numbers, or the same at every pixel of this image and of noise.
        """
        crop = self.config.eval.crop or self.config.data.crop
        predict = WatchedLogits(self.method.predict)
        with autocast(self.config.train, self.device):
            images = image.to(self.device).unsqueeze(0)
            logits = predict_logits(predict, images, self.config.eval, crop)
            if predict.problem(Workers()):
                # An image of one colour may look the same everywhere; noise does not, to a network that looks at it.
                predict_logits(predict, _noise(crop).to(self.device), self.config.eval, crop)
        if problem := predict.problem(Workers()):
            raise FplError(problem, where=str(self.path), hint=DIVERGED)
        return class_map(logits, size)[0]


def _noise(size: tuple[int, int]) -> Tensor:
    """One image uint8 `[1, 3, *size]`, always the same, which nobody's random state is touched for."""
    return torch.randint(0, 256, (1, 3, *size), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def reduced(image: NDArray[np.uint8], factor: int) -> Tensor:
    """An image uint8 `[H, W, 3]` as uint8 `[3, h, w]`, reduced by `data.downscale` as those that were trained on."""
    height, width = image.shape[:2]
    picture = Image.fromarray(image)
    if factor > 1:
        size = (max(1, width // factor), max(1, height // factor))
        picture = picture.resize(size, Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1).contiguous()


def load_trained(path: Path, device: torch.device, threads: int | None = 1) -> Trained:
    """Load `best.pt` or `last.pt` of a run, to predict with `threads` CPU threads; None: torch as it is set.

    Raises:
        FplError: The file is missing, damaged, of another kind, of another run than the folder of a store that it lies
            in, or lacks a part, or a part holds what no run writes, weights that are no finite numbers say.
    """
    state = load(path, device=device)
    if lacking := [name for name in ("config", "method", "step") if name not in state]:
        what = f"not a weights file of this suite: it lacks the part {lacking[0]!r}"
        raise FplError(what, where=str(path), hint="give best.pt or last.pt of a run")
    config = config_of(state, path)
    check_place(state, path)
    spec = _spec_of(config, path)
    step, total = state["step"], config.train.steps
    if type(step) is not int or not 0 <= step <= total:
        what = f"its step is {step if type(step) is int else type(step).__name__}, no number from 0 to {total}"
        raise FplError(what, where=str(path), hint=ANOTHER)

    if threads is not None:
        prepare_torch(config.train, threads)

    def build() -> SegmentationNetwork:
        return build_network(config.model, config.data.num_classes, device_type=device.type)

    method = method_class(config.method)(config, build, Workers())
    fit_norms(method, config.model.norm, device.type)
    if problem := part_problem("method", lambda: tensors_problem("method", method.kept_state(), state["method"])):
        raise FplError(problem, where=str(path), hint=ANOTHER)
    # Nothing is missing but the memory of banks, which prediction does without.
    method.load_state_dict(state["method"], strict=False)
    method.to(device).eval()
    return Trained(path, config, spec, method, step, device)


def _spec_of(config: RunConfig, path: Path) -> DatasetSpec:
    """The data set of weights, whose classes are those that they predict."""
    try:
        spec = get_spec(config.data.dataset)
    except FplError as error:
        raise FplError(f"its configuration cannot be used: {error.what}", where=str(path), hint=error.hint) from error
    if spec.num_classes != config.data.num_classes:
        classes = f"data.num_classes = {config.data.num_classes}, but {spec.name} has {spec.num_classes} classes"
        raise FplError(f"its configuration contradicts itself: {classes}", where=str(path), hint=ANOTHER)
    return spec


def is_weights_file(run: str) -> bool:
    """Whether what names a run is the path of its weights."""
    return Path(run).suffix == ".pt"


def find_weights(out: Path | None, run: str, choice: str | None) -> Path:
    """The weights file of a run given by its id, a unique beginning of it, or a path.

    Args:
        out: Store that holds the run; None: those of `own_stores`.
        run: The run.
        choice: `best` or `last`; None: `best`, or what the path names.

    Raises:
        FplError: No run or several match, or a choice beside a path.
    """
    if is_weights_file(run):
        if choice is not None:
            what = "a file holds one set of weights"
            raise FplError(what, where=f"--choice {choice} with {run}", hint="leave it out, or name the run by its id")
        return Path(run)
    folders = [store / CHECKPOINTS for store in ([out] if out is not None else own_stores())]
    known = {name: folder / name for folder in reversed(folders) for name in folder_names(folder)}
    matching = [name for name in known if name == run] or sorted(name for name in known if name.startswith(run))
    if len(matching) != 1:
        what = f"{len(matching)} runs begin with {run!r}" if matching else f"no run {run!r}"
        raise FplError(
            what,
            where=", ".join(map(str, folders)) or STORES,
            hint=f"there: {', '.join(matching or sorted(known)) or 'none'}; --out names another store",
        )
    refresh(known[matching[0]])
    return CheckpointFolder(known[matching[0]]).weights(choice or "best")


def evaluate_trained(trained: Trained, data_root: Path, protocol: str | None = None) -> NDArray[np.int64]:
    """Confusion matrix `[C, C]` of a trained run on its data set's validation part.

    So, too, of a run that was itself validated on held-out labeled images (`data.split.holdout`): what it says here is
    a number on images that neither training nor the choice of the best weights has looked at.

    Args:
        trained: The network.
        data_root: Folder of the data sets.
        protocol: `sliding`, `whole` or `center` instead of the run's own.

    Raises:
        FplError: The data are others than the run's, the network has diverged, or no label pixel counts.
    """
    config, spec = trained.config, trained.spec
    evaluation = config.eval.model_copy(update={"protocol": protocol} if protocol else {})
    root = find_root(spec, data_root)
    pin_data(config, spec, root)  # a run is not scored on other data under its name
    cache = open_cache(spec, root, "val", config.data.downscale)
    ids = validation_ids(spec, root, config.eval.subsample)
    if spec.drawn:
        check_drawn(root, set(file_names(spec, root, "val", ids)))
    validation = ValidationSet(spec, root, config.data.downscale, ids=ids, cache=cache)
    progress = Progress(len(validation), unit="image")
    predict = WatchedLogits(trained.method.predict)
    with autocast(config.train, trained.device):
        confusion = evaluate(
            predict,
            validation,
            evaluation,
            config.data,
            trained.device,
            Workers(),
            on_image=progress.show,
        )
    progress.note()
    if problem := predict.problem(Workers()):
        raise FplError(problem, where=str(trained.path), hint=DIVERGED)
    check_counted(confusion, evaluation, spec.name)
    return confusion
