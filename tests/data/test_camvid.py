"""The real CamVid, where it is present."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fpl.data.batches import BatchRequest, make_loader
from fpl.data.images import Images
from fpl.data.preflight import check_data
from fpl.data.spec import get_spec
from fpl.data.splits import make_split
from fpl.data.validation import ValidationSet
from tests.data.conftest import make_config

REPOSITORY = Path(__file__).parents[2]
ROOT = Path(os.environ.get("FPL_TEST_DATA") or REPOSITORY.parent / "shared" / "data") / "camvid"
SPEC = get_spec("camvid")

pytestmark = pytest.mark.skipif(not ROOT.is_dir(), reason="no CamVid (FPL_TEST_DATA names a folder that holds it)")


def test_split_check_and_batches() -> None:
    split = make_split(SPEC, ROOT, "every-nth", "1/16")
    assert (len(split.labeled), len(split.unlabeled)) == (23, 344)
    images = Images(SPEC, ROOT, "train", downscale=3)
    config = make_config(crop=(96, 128), labeled_batch=4, unlabeled_batch=4, steps=3)
    assert check_data(config, split, images) == []
    batches = list(make_loader(config, split, images, BatchRequest(draws=2), loader_workers=0))
    assert len(batches) == 3
    assert set(images.label_reads) == set(split.labeled)
    assert set(batches[0].label.unique().tolist()) <= {*range(11), 255}


def test_validation_set() -> None:
    data = ValidationSet(SPEC, ROOT, downscale=3, rank=0, world_size=20)
    assert len(data) == 6
    for _, image, label in data:
        assert image.shape == (3, 120, 160)
        assert label.shape == (360, 480)
