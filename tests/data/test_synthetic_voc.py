from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fpl.data.images import Images
from fpl.data.objects import class_schedule, draw_objects, voc_colours
from fpl.data.spec import find_root, get_spec
from fpl.data.splits import make_split
from fpl.data.synthetic import draw_voc
from fpl.data.validation import ValidationSet
from fpl.errors import FplError

SPEC = get_spec("synthetic_voc")


@pytest.fixture(scope="module")
def voc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_voc(tmp_path_factory.mktemp("voc") / "synthetic_voc", train=24, clean=6, validation=5)


def lines(root: Path, name: str) -> list[str]:
    return (root / "ImageSets" / "Segmentation" / f"{name}.txt").read_text().splitlines()


def label(root: Path, folder: str, image_id: str) -> np.ndarray:
    with Image.open(root / folder / f"{image_id}.png") as image:
        assert image.mode == "P"
        return np.array(image)


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_lists_hold_what_their_names_say(voc: Path) -> None:
    train, val, both, augmented = (lines(voc, name) for name in ("train", "val", "trainval", "train_aug"))
    assert (len(train), len(val), len(augmented)) == (6, 5, 24)
    assert set(train) < set(augmented)
    assert both == sorted(train + val)
    assert not set(val) & set(augmented)
    assert augmented == sorted(augmented)
    images = {path.stem for path in (voc / "JPEGImages").glob("*.jpg")}
    assert images == set(augmented) | set(val)
    assert {path.stem for path in (voc / "SegmentationClass").iterdir()} == set(both)
    assert {path.stem for path in (voc / "SegmentationClassAug").iterdir()} == images
    assert json.loads((voc / "drawing.json").read_text())["clean"] == 6


def test_only_clean_labels_have_borders_and_a_border_hides_what_the_augmented_label_shows(voc: Path) -> None:
    clean = set(lines(voc, "train"))
    for image_id in lines(voc, "train_aug"):
        augmented = label(voc, "SegmentationClassAug", image_id)
        assert (255 in augmented) == (image_id in clean)
        assert augmented[augmented != 255].max() <= 20
        if image_id in clean:
            np.testing.assert_array_equal(augmented, label(voc, "SegmentationClass", image_id))
    for image_id in lines(voc, "val"):
        assert 255 in label(voc, "SegmentationClass", image_id)


def test_tree_reads_like_the_real_one(voc: Path) -> None:
    assert find_root(SPEC, voc.parent) == voc
    assert SPEC.list_ids(voc, "train") == lines(voc, "train_aug")
    split = make_split(SPEC, voc, "every-nth", "1/4")
    assert split.labeled == tuple(lines(voc, "train_aug")[::4])
    images = Images(SPEC, voc, "train")
    for image_id in SPEC.list_ids(voc, "train"):
        assert images.image(image_id).shape == (64, 64, 3)
        assert images.label(image_id).shape == (64, 64)
    assert len(list(ValidationSet(SPEC, voc))) == 5
    assert SPEC.expected_counts(voc) == {"train": 24, "val": 5}


def test_borders_separate_different_objects() -> None:
    _, plain, bordered = draw_objects(np.random.default_rng(3), np.array([1, 7, 15, 20]), (64, 64), 4.0)
    counted = bordered != 255
    np.testing.assert_array_equal(bordered[counted], plain[counted])
    # Beside a pixel that counts, to the right or below, lies no other class.
    for first, second, inside in (
        (plain[:, :-1], plain[:, 1:], counted[:, :-1]),
        (plain[:-1], plain[1:], counted[:-1]),
    ):
        assert not ((first != second) & inside).any()
    assert 0.02 < 1 - counted.mean() < 0.2


def test_every_class_is_in_20_validation_images_and_frequencies_have_a_long_tail(tmp_path: Path) -> None:
    for seed in (0, 1):
        root = draw_voc(tmp_path / str(seed), train=1, clean=1, validation=150, seed=seed)
        pixels, images = np.zeros(256), np.zeros(256)
        for image_id in lines(root, "val"):
            histogram = np.bincount(label(root, "SegmentationClass", image_id).ravel(), minlength=256)
            pixels += histogram
            images += histogram > 0
        assert images[:21].min() >= 20
        assert images[1:21].max() > 3 * images[1:21].min()
        assert pixels[0] / pixels.sum() > 0.6
        assert not pixels[21:255].any()
        assert 0.05 < pixels[255] / pixels.sum() < 0.12


def test_classes_come_evenly_in_every_nth_image_too() -> None:
    for seed in range(5):
        schedule = class_schedule(np.random.default_rng(seed), 640)
        shorter = class_schedule(np.random.default_rng(seed), 50)
        assert all(np.array_equal(*pair) for pair in zip(shorter, schedule, strict=False))
        for step in (1, 2, 4, 8, 16):
            counts = np.zeros(21)
            for classes in schedule[::step]:
                counts[classes] += 1
            assert counts[1:].min() >= 0.1 * 640 / step


def test_an_image_depends_on_seed_part_and_number_only(tmp_path: Path, voc: Path) -> None:
    fewer, more = files(draw_voc(tmp_path / "fewer", train=4, clean=4, validation=2)), files(voc)
    pictures = [name for name in fewer if name.endswith(".jpg")]
    assert len(pictures) == 6
    assert all(fewer[name] == more[name] for name in pictures)
    other = files(draw_voc(tmp_path / "other", train=4, clean=4, validation=2, seed=1))
    assert all(fewer[name] != other[name] for name in pictures)


def test_existing_tree_is_kept_and_other_parameters_are_refused(voc: Path, tmp_path: Path) -> None:
    before = files(voc)
    draw_voc(voc, train=24, clean=6, validation=5)
    with pytest.raises(FplError, match="clean = 6 there, 7 wanted"):
        draw_voc(voc, train=24, clean=7, validation=5)
    assert files(voc) == before
    with pytest.raises(FplError, match="5 clean images among 4 training images"):
        draw_voc(tmp_path / "x", train=4, clean=5, validation=1)


def test_separation_moves_a_pair_apart_and_other_sizes_show_the_same_kind_of_scene() -> None:
    def distance(separation: float) -> float:
        found = []
        for number in range(30):
            image, drawn, _ = draw_objects(np.random.default_rng(number), np.array([8, 12]), (64, 64), separation)
            cat, dog = (image[drawn == each].mean(0) for each in (8, 12))
            found.append((cat - dog)[0])
        return float(np.mean(found))

    assert distance(1.0) < distance(3.0) < distance(5.0)
    for size in ((32, 32), (96, 130), (33, 47)):
        image, drawn, bordered = draw_objects(np.random.default_rng(0), np.array([3, 15]), size, 4.0)
        assert image.shape == (*size, 3)
        assert set(np.unique(drawn)) == {0, 3, 15}
        assert 255 in bordered


def test_palette_is_that_of_the_development_kit() -> None:
    colours = np.array(voc_colours()).reshape(256, 3)
    assert [tuple(colour) for colour in colours[:21]] == list(SPEC.palette)
    assert tuple(colours[255]) == (224, 224, 192)


def test_clean_nth_shares_out_the_clean_images_alone(voc: Path) -> None:
    clean = (voc / "ImageSets" / "Segmentation" / "train.txt").read_text().split()
    split = make_split(get_spec("synthetic_voc"), voc, "clean-nth", "1/4")
    assert len(clean) == 6
    assert list(split.labeled) == [clean[0], clean[4]]
    assert list(split.unlabeled) == [clean[1], clean[2], clean[3], clean[5]]
