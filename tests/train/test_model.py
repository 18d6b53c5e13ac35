"""A run as a module: what it says of an image is what `fpl predict` writes, to the pixel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import fpl
from fpl.config.compose import load_config
from fpl.errors import FplError
from fpl.sweep.places import Places
from fpl.train.model import SegmentationModel
from fpl.train.predict import predict_folder
from fpl.train.trained import load_trained
from tests.train.runs import AEL, OPTIONS, run

CASES = {
    "whole": [],
    "windows": ["eval.protocol=sliding", "eval.crop=[40,40]"],
    "probabilities": ["eval.protocol=sliding", "eval.crop=[40,40]", "eval.combine=probabilities"],
    "teacher": AEL,
}


def pictures(folder: Path) -> Path:
    """Images of sizes that no network divides, one smaller than its least."""
    draw = np.random.default_rng(3)
    folder.mkdir()
    for name, size in {"wide": (37, 61, 3), "high": (70, 45, 3), "tiny": (9, 11, 3)}.items():
        coarse = draw.integers(0, 256, size=(4, 4, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((size[1], size[0]), Image.Resampling.BICUBIC).save(folder / f"{name}.png")
    return folder


def read(path: Path) -> torch.Tensor:
    return torch.from_numpy(np.array(Image.open(path))).permute(2, 0, 1).unsqueeze(0)


@pytest.mark.parametrize("case", CASES)
def test_it_is_what_predict_writes(run_file: Path, places: Places, tmp_path: Path, case: str) -> None:
    path = run(load_config(run_file, overrides=CASES[case]), places)
    folder, to = pictures(tmp_path / "images"), tmp_path / "seen"
    file = places.out / "checkpoints" / path.stem / "last.pt"
    predict_folder(load_trained(file, torch.device("cpu")), folder, to)
    model = fpl.load_model(path.stem, out=places.out, choice="last")
    seen = set()
    for name in ("wide", "high", "tiny"):
        image = read(folder / f"{name}.png")
        written = torch.from_numpy(np.array(Image.open(to / f"{name}.png"))).long()
        with torch.no_grad():
            scores, *others = [model(each) for each in (image, image / 255, image.double() / 255)]
        assert scores.shape == (1, 19, *written.shape) and scores.dtype == torch.float32
        assert torch.equal(scores.argmax(1)[0], written)
        # From 0 to 1 is the same image.
        assert all(torch.equal(other, scores) for other in others)
        assert torch.equal(model.predict(image)[0], written)
        seen |= set(written.unique().tolist())
    assert len(seen) > 1, "one class everywhere would agree with anything"


def test_reduced_as_the_run_was(run_file: Path, places: Places, tmp_path: Path) -> None:
    trained = load_trained(_trained(run_file, places), torch.device("cpu"))
    data = trained.config.data.model_copy(update={"downscale": 2})
    trained.config = trained.config.model_copy(update={"data": data})
    folder, to = pictures(tmp_path / "images"), tmp_path / "seen"
    predict_folder(trained, folder, to)
    model = SegmentationModel(trained)
    for name in ("wide", "high"):
        written = torch.from_numpy(np.array(Image.open(to / f"{name}.png"))).long()
        assert torch.equal(model.predict(read(folder / f"{name}.png"))[0], written)


def test_it_is_a_module(run_file: Path, places: Places) -> None:
    file = _trained(run_file, places)
    threads = torch.get_num_threads()
    model = fpl.load_model(file)
    assert torch.get_num_threads() == threads
    assert not model.training and model.step == 6 and len(model.class_names) == len(model.palette) == 19
    images = torch.randint(0, 256, (2, 3, 40, 48), dtype=torch.uint8)
    together, alone = model(images), torch.cat([model(image[None]) for image in images])
    assert torch.allclose(together, alone, atol=1e-5)
    # Its parameters can be trained further.
    together.square().mean().backward()
    assert model.method.network.classifier.weight.grad is not None
    state = {name: value.clone() for name, value in model.state_dict().items()}
    again = fpl.load_model(file)
    again.load_state_dict(state)
    assert torch.equal(again(images), together)


@pytest.mark.parametrize(
    "images",
    [
        torch.zeros(3, 40, 40),
        torch.zeros(1, 4, 40, 40),
        torch.zeros(1, 3, 40, 40, dtype=torch.int64),
        torch.full((1, 3, 40, 40), 255.0),
        torch.full((1, 3, 40, 40), -0.5),
        torch.full((1, 3, 40, 40), float("nan")),
        torch.zeros(0, 3, 40, 40),
    ],
    ids=["no batch", "four channels", "int64", "0 to 255", "normalised", "nan", "empty"],
)
def test_other_images_are_refused(model: SegmentationModel, images: torch.Tensor) -> None:
    with pytest.raises(FplError, match="uint8 or float from 0 to 1"):
        model(images)


def test_scores_that_are_no_numbers_have_no_class(model: SegmentationModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model.method, "predict", lambda image: torch.full((1, 19, 40, 40), float("nan")))
    image = torch.zeros(1, 3, 40, 40, dtype=torch.uint8)
    assert model(image).isnan().all()  # who trains it further sees what it gives
    with pytest.raises(FplError, match=r"last\.pt: the scores are not finite"):
        model.predict(image)


def test_what_is_no_run_is_refused(run_file: Path, places: Places, tmp_path: Path) -> None:
    file = _trained(run_file, places)
    with pytest.raises(FplError, match="no run 'nothing'"):
        fpl.load_model("nothing", out=places.out)
    with pytest.raises(FplError, match=r"best or last"):
        fpl.load_model(file.parent.name, out=places.out, choice="first")
    damaged = tmp_path / "last.pt"
    damaged.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(FplError, match="cannot be read"):
        fpl.load_model(damaged)
    torch.save({"weights": torch.zeros(1)}, tmp_path / "other.pt")
    with pytest.raises(FplError):
        fpl.load_model(tmp_path / "other.pt")


def test_runs_are_found_where_commands_put_them(
    run_file: Path, places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = _trained(run_file, places)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FplError, match="results/local and runs"):
        fpl.load_model(file.parent.name)
    for name in ("runs/mini", "runs/other"):
        (tmp_path / name).mkdir(parents=True)
    (places.out / "checkpoints").rename(tmp_path / "runs" / "mini" / "checkpoints")
    assert fpl.load_model(file.parent.name[:20]).step == 6


@pytest.fixture(scope="module")
def model(run_file: Path, data_places: Places, tmp_path_factory: pytest.TempPathFactory) -> SegmentationModel:
    out = tmp_path_factory.mktemp("out")
    return fpl.load_model(_trained(run_file, Places(out, data_places.data_root, data_places.splits_root)))


def _trained(run_file: Path, places: Places) -> Path:
    path = run(load_config(run_file), places, OPTIONS)
    return places.out / "checkpoints" / path.stem / "last.pt"
