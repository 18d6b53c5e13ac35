from __future__ import annotations

import errno
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from fpl.data.images import Images
from fpl.data.preflight import check_data
from fpl.data.read import read_label
from fpl.data.scene import draw_scene
from fpl.data.spec import find_root, get_spec
from fpl.data.splits import make_split
from fpl.data.synthetic import draw_city
from fpl.data.validation import ValidationSet
from fpl.errors import FplError, ShortageError
from tests.data.conftest import make_config, save

SPEC = get_spec("synthetic_city")


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_an_image_depends_on_seed_part_and_number_only(tmp_path: Path, city: Path) -> None:
    fewer = files(draw_city(tmp_path / "fewer", train=5, validation=2))
    more = files(city)
    assert len(fewer) == 2 * 7 + 2
    for name in set(fewer) - {"drawing.json", "SHA256SUMS"}:
        assert fewer[name] == more[name]
    assert len(set(fewer.values())) == len(fewer)
    other = files(draw_city(tmp_path / "other", train=5, validation=2, seed=1))
    assert set(other) == set(fewer)
    assert not set(other.values()) & set(fewer.values())


def test_tree_is_the_official_one_and_reads_without_errors(city: Path) -> None:
    assert find_root(SPEC, city.parent) == city
    name = "alderbrook_000001_000019"
    assert (city / f"leftImg8bit/train/alderbrook/{name}_leftImg8bit.png").is_file()
    assert (city / f"gtFine/train/alderbrook/{name}_gtFine_labelTrainIds.png").is_file()
    split = make_split(SPEC, city, "every-nth", "1/4")
    assert len(split.labeled) == 4
    images = Images(SPEC, city, "train")
    check_data(make_config("synthetic_city", labeled_batch=2), split, images)
    for image_id in SPEC.list_ids(city, "train"):
        assert images.image(image_id).shape == (64, 128, 3)
        assert images.label(image_id).shape == (64, 128)
    assert len(list(ValidationSet(SPEC, city))) == 4


def test_all_classes_have_a_long_tail_but_appear_often_enough() -> None:
    pixels, images = np.zeros(256), np.zeros(256)
    for number in range(100):
        key = np.random.SeedSequence((0, 1, number))
        _, label = draw_scene(np.random.default_rng(key), (64, 128), 2.5)
        histogram = np.bincount(label.ravel(), minlength=256)
        pixels += histogram
        images += histogram > 0
    share = pixels / pixels.sum()
    assert not share[19:255].any()
    assert images[:19].min() >= 15
    assert share[:19].min() > 0.003
    assert share[:19].max() > 0.15
    assert 0.02 < share[255] < 0.05


def test_other_sizes_show_the_same_kind_of_scene() -> None:
    for size in ((32, 64), (128, 256), (33, 47)):
        image, label = draw_scene(np.random.default_rng(0), size, 2.5)
        assert image.shape == (*size, 3)
        assert label.shape == size
        assert len(np.unique(label)) > 6


def test_separation_moves_the_colours_of_similar_classes_apart() -> None:
    def distance(separation: float) -> float:
        total = []
        for number in range(20):
            image, label = draw_scene(np.random.default_rng(number), (64, 128), separation)
            road, sidewalk = (image[label == each].mean(0) for each in (0, 1))
            total.append((sidewalk - road).mean())
        return float(np.mean(total))

    assert distance(1.0) < distance(2.5) < distance(5.0)


def test_existing_tree_is_kept_and_other_parameters_are_refused(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    root = draw_city(tmp_path / "data" / "city", train=3, validation=1, progress=lambda *done: calls.append(done))
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]
    before = files(root)
    draw_city(root, train=3, validation=1, progress=lambda *done: calls.append(done))
    assert len(calls) == 4
    with pytest.raises(FplError, match="train = 3 there, 5 wanted"):
        draw_city(root, train=5, validation=1)
    assert files(root) == before
    assert [path.name for path in root.parent.iterdir()] == ["city"]


def test_other_folders_are_refused_and_interrupted_drawings_leave_nothing(tmp_path: Path) -> None:
    save(tmp_path / "mine" / "x.png", [[0]])
    with pytest.raises(FplError, match="something else than a drawn set"):
        draw_city(tmp_path / "mine", train=1, validation=1)

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    (tmp_path / "out").mkdir()
    with pytest.raises(KeyboardInterrupt):
        draw_city(tmp_path / "out" / "city", train=2, validation=1, progress=stop)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_disk_that_is_full_is_named_by_what_is_drawn_there(tmp_path: Path) -> None:
    def fill(done: int, total: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")  # as a write does, which names no file

    with pytest.raises(ShortageError, match="no space is left") as caught:
        draw_city(tmp_path / "city", train=2, validation=1, progress=fill)
    assert caught.value.where == str(tmp_path / "city") and list(tmp_path.iterdir()) == []


def test_counts_come_from_the_drawing(tmp_path: Path, city: Path) -> None:
    assert SPEC.expected_counts() == {"train": 320, "val": 100}
    assert SPEC.expected_counts(city) == {"train": 16, "val": 4}
    assert json.loads((city / "drawing.json").read_text())["separation"] == 2.5


def test_the_city_is_drawn_as_it_always_was(city: Path) -> None:
    # Results refer to these images: labels bit for bit, pixels up to the rounding of other processors.
    digest = hashlib.sha256()
    means = []
    for image_id in SPEC.list_ids(city, "train")[:8]:
        digest.update(read_label(SPEC.label_path(city, "train", image_id), SPEC).tobytes())
        means.append(Images(SPEC, city, "train").image(image_id).mean())
    assert digest.hexdigest()[:16] == "164903b76c49d88b"
    assert float(np.mean(means)) == pytest.approx(124.998, abs=0.01)
