"""Labels of unlabeled images: for diagnostics alone, at the steps that ask, under the image's own augmentation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fpl.data.batches import BatchRequest, UnlabeledImages, make_loader
from fpl.data.images import Images
from fpl.data.spec import IGNORE, get_spec
from tests.data.conftest import make_config, make_split_of, save, write_camvid

LABELED, UNLABELED = ["a", "b"], ["u0", "u1", "u2", "u3"]
CONFIG = make_config(scales=(1.0,), crop=(48, 40), padding_label=0, labeled_batch=2, unlabeled_batch=4, steps=6)
SPLIT = make_split_of(LABELED, UNLABELED)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The labels of unlabeled images can be read off their pixels; the first image has none."""
    root = write_camvid(tmp_path_factory.mktemp("camvid"), LABELED)
    for number, image_id in enumerate(UNLABELED):
        label = np.random.default_rng(number).integers(0, 11, (40, 50)).astype(np.uint8)
        save(root / "train" / f"{image_id}.png", np.stack([20 * label] * 3, axis=-1))
        if number:
            save(root / "trainannot" / f"{image_id}.png", label)
    return root


def expected(image: torch.Tensor, valid: torch.Tensor, index: int) -> torch.Tensor:
    unknown = torch.full_like(image[0], IGNORE)
    return torch.where(valid, image[0] // 20, unknown) if index else unknown


@pytest.mark.parametrize("loader_workers", [0, 2])
def test_draws_carry_them_at_the_steps_that_ask(root: Path, loader_workers: int) -> None:
    images = Images(get_spec("camvid"), root, "train")
    options = {"request": BatchRequest(draws=2), "loader_workers": loader_workers}
    plain = list(make_loader(CONFIG, SPLIT, images, **options))
    assert not images.truth_reads
    seen = 0
    for batch, other in zip(make_loader(CONFIG, SPLIT, images, truth_steps={1, 4}, **options), plain, strict=True):
        for draw, before in zip(batch.unlabeled, other.unlabeled, strict=True):
            assert torch.equal(draw.image, before.image)
            assert before.truth is None
            if batch.step not in (1, 4):
                assert draw.truth is None
                continue
            assert draw.truth is not None
            assert torch.equal(draw.to("cpu").truth, draw.truth)
            for image, valid, index, truth in zip(draw.image, draw.valid, draw.index, draw.truth, strict=True):
                assert torch.equal(truth, expected(image, valid, int(index)))
                assert not valid.all(), "the crop must show padding"
                seen += int(index > 0)
    assert seen
    assert set(images.label_reads) <= set(LABELED)
    assert set(images.truth_reads) == (set(UNLABELED[1:]) if loader_workers == 0 else set())


def test_images_that_a_method_chooses(root: Path) -> None:
    images = Images(get_spec("camvid"), root, "train")
    chosen = UnlabeledImages(CONFIG, SPLIT, images)
    for index in range(4):
        for position in (0, 7, 31):
            image, valid = chosen.read(index, position)
            assert torch.equal(chosen.truth(index, position), expected(image, valid, index))
    assert not images.label_reads
