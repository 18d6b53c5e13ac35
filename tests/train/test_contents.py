"""A checkpoint that has all its parts, of which one holds what no run writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fpl.config.schema import RunConfig
from fpl.errors import FplError
from fpl.sweep.places import Places
from fpl.train.checkpoint import CheckpointFolder
from fpl.train.predict import predict_folder
from fpl.train.runtime import State
from fpl.train.trained import load_trained
from tests.train.runs import Change, resumed_at, rewritten


def times(factor: float) -> Change:
    def change(state: State) -> None:
        state["method"] = {
            name: value * factor if value.is_floating_point() else value for name, value in state["method"].items()
        }

    return change


def negative_variance(state: State) -> None:
    name = next(name for name in state["method"] if name.endswith("running_var"))
    state["method"][name] = -state["method"][name]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (times(1e30), "logits of 19 of 19 classes are not finite"),
        (times(0), "same at every pixel"),
        (negative_variance, r"1 tensors hold variances below 0, the first is .*running_var"),
    ],
)
@pytest.mark.parametrize("flat", [False, True])
def test_weights_that_say_nothing_write_no_class_maps(
    copied: CheckpointFolder, tmp_path: Path, change: Change, words: str, flat: bool
) -> None:
    path, image, to = copied.best(3), tmp_path / "image.png", tmp_path / "seen"
    pixels = np.random.default_rng(0).integers(0, 256, (40, 48, 3), dtype=np.uint8)
    Image.fromarray(pixels * (not flat)).save(image)
    assert predict_folder(load_trained(path, torch.device("cpu")), image, tmp_path / "right") == 1
    rewritten(path, change, listed=True)
    with pytest.raises(FplError, match=words) as caught:
        predict_folder(load_trained(path, torch.device("cpu")), image, to)
    assert str(path) in caught.value.message and caught.value.exit_code == 2 and not to.exists()
    assert str(image) in caught.value.message or change is negative_variance


def test_an_image_may_look_the_same_everywhere(copied: CheckpointFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = load_trained(copied.best(3), torch.device("cpu"))
    # Without padding, which shows at the borders of an image.
    monkeypatch.setattr(trained.method, "predict", lambda image: image[:, :1].repeat(1, 19, 1, 1))
    assert not trained.classes(torch.zeros(3, 40, 48, dtype=torch.uint8), (40, 48)).any()


def cast(kind: torch.dtype) -> Change:
    return lambda state: state.update(method={name: value.to(kind) for name, value in state["method"].items()})


def sparse(state: State) -> None:
    state["method"]["network.classifier.bias"] = state["method"]["network.classifier.bias"].to_sparse()


KINDS = {
    **{str(kind): (cast(kind), f"is {str(kind)[6:]} instead of float32") for kind in (torch.int8, torch.complex64)},
    "half": (cast(torch.float16), "is float16 instead of float32"),
    "float8": (cast(torch.float8_e5m2), "is float8_e5m2 instead of float32"),
    "sparse": (sparse, "is sparse_coo instead of strided"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_another_type_are_not_cast(
    config: RunConfig, places: Places, copied: CheckpointFolder, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    change, words = KINDS[kind]
    for path in (copied.best(3), copied.steps()[-1]):
        rewritten(path, change, listed=True)
    with pytest.raises(FplError, match=words) as caught:
        load_trained(copied.best(3), torch.device("cpu"))
    assert "best_00000003.pt" in caught.value.message
    message, said = resumed_at(config, places, monkeypatch)
    assert "stopped at step 2 of 6" in message and words in said
