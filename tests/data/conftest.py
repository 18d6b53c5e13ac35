"""Small data sets and configurations that the tests make themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fpl.config.schema import RunConfig
from fpl.data.spec import get_spec
from fpl.data.splits import Split
from fpl.data.synthetic import draw_city


@pytest.fixture(scope="session")
def city(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Root of a drawn city with 16 training and 4 validation images."""
    return draw_city(tmp_path_factory.mktemp("data") / "synthetic_city", train=16, validation=4)


def save(path: Path, array: Any, mode: str | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(np.asarray(array, dtype=np.uint8))
    if mode == "P":
        image.putpalette([value for index in range(256) for value in (index * 37 % 256, index * 91 % 256, 200)])
    image.save(path)
    return path


def write_camvid(root: Path, train: Sequence[str], val: Sequence[str] = (), size: tuple[int, int] = (40, 50)) -> Path:
    """A tree in CamVid's layout; labels only where the id does not start with `u`."""
    random = np.random.default_rng(0)
    spec = get_spec("camvid")
    for part, ids in (("train", train), ("val", val)):
        for image_id in ids:
            save(root / part / f"{image_id}.png", random.integers(0, 256, (*size, 3)))
            if not image_id.startswith("u"):
                save(spec.label_path(root, part, image_id), random.integers(0, 12, size))
    return root


def make_config(dataset: str = "camvid", **data: Any) -> RunConfig:
    """A CPS configuration whose data section is overridden by `data`; `seed` and `steps` go where they belong."""
    seed, steps = data.pop("seed", 0), data.pop("steps", 10)
    section = {
        "dataset": dataset,
        "num_classes": get_spec(dataset).num_classes,
        "split": {"fraction": "1/4"},
        "crop": (40, 48),
        "labeled_batch": 4,
        "unlabeled_batch": 4,
        **data,
    }
    return RunConfig.model_validate(
        {
            "seed": seed,
            "data": section,
            "model": {"backbone": "tiny", "pretrained": "none"},
            "method": {"name": "cps", "weight": 1.0, "cutmix": True},
            "optim": {"lr": 0.1},
            "train": {"steps": steps, "evaluate_every": steps},
            "eval": {"protocol": "whole"},
        }
    )


def make_split_of(labeled: Sequence[str], unlabeled: Sequence[str], dataset: str = "camvid") -> Split:
    return Split(dataset, "every-nth", "1/4", tuple(labeled), tuple(unlabeled))


@pytest.fixture
def write_lists() -> Callable[..., Path]:
    """Writes the files of a split; `labeled` and `unlabeled` are texts."""

    def write(splits: Path, labeled: str, unlabeled: str, record: str | None = None, fraction: str = "1/4") -> Path:
        folder = splits / "camvid" / "every-nth" / fraction.replace("/", "-")
        folder.mkdir(parents=True)
        (folder / "labeled.txt").write_bytes(labeled.encode())
        (folder / "unlabeled.txt").write_bytes(unlabeled.encode())
        if record is not None:
            (folder / "split.json").write_text(record)
        return splits

    return write
