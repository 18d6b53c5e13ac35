"""The file trees of Cityscapes and VOC, and what their label files hold."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fpl.data.contents import data_version
from fpl.data.read import read_label
from fpl.data.spec import DRAWING_RECORD, find_root, get_spec
from fpl.errors import FplError
from tests.data.conftest import save

CITY, VOC = get_spec("cityscapes"), get_spec("voc")
ID = "jena_000078_000019"
# Column trainId of the official Cityscapes table, for ids 0..33.
TRAIN_IDS = [*[255] * 7, 0, 1, 255, 255, 2, 3, 4, 255, 255, 255, 5, 255, *range(6, 16), 255, 255, 16, 17, 18]


def official(root: Path, ending: str, values: object, image_id: str = ID, part: str = "train") -> Path:
    city = image_id.split("_")[0]
    save(root / "leftImg8bit" / part / city / f"{image_id}_leftImg8bit.png", np.zeros((*np.shape(values), 3)))
    return save(root / "gtFine" / part / city / f"{image_id}_gtFine_{ending}.png", values)


def test_label_ids_are_mapped_by_the_published_table(tmp_path: Path) -> None:
    path = official(tmp_path, "labelIds", [[*range(34)]])
    assert read_label(path, CITY).tolist() == [[*TRAIN_IDS]]
    with pytest.raises(FplError, match=r"labelIds.png: label values that are no class of cityscapes: 34"):
        read_label(official(tmp_path, "labelIds", [[7, 34]]), CITY)


def test_train_ids_under_the_name_of_label_ids_are_told(tmp_path: Path) -> None:
    with pytest.raises(FplError, match=r"no class of cityscapes: 255") as caught:
        read_label(official(tmp_path, "labelIds", [[0, 1, 2, 255]]), CITY)
    assert "these are trainIds under the name of labelIds" in caught.value.hint


def test_a_second_tree_in_the_same_root_fills_no_gaps(tmp_path: Path) -> None:
    official(tmp_path, "labelTrainIds", [[1, 1]])
    other = "ulm_000001_000019"
    save(tmp_path / "images" / "train" / f"{other}.png", [[[0] * 3]])
    save(tmp_path / "segmentation" / "train" / f"{other}_gtFine.png", [[5]])
    assert not CITY.label_path(tmp_path, "train", other).exists()
    with pytest.raises(FplError, match="is not on disk"):
        CITY.image_path(tmp_path, "train", other)


def test_a_folder_of_the_same_name_is_not_taken_for_the_data_set(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    with pytest.raises(FplError, match="camvid not found"):
        find_root(get_spec("camvid"), tmp_path)
    official(tmp_path, "labelTrainIds", [[1, 1]])
    assert find_root(CITY, tmp_path) == tmp_path
    with pytest.raises(FplError, match="synthetic_city not found"):
        find_root(get_spec("synthetic_city"), tmp_path)


def test_data_version_is_of_the_set_not_of_its_order(tmp_path: Path) -> None:
    root = voc(tmp_path, {"val": "vw"})
    before = data_version(VOC, root)
    (root / "ImageSets/Segmentation/val.txt").write_text("w\nv\n")
    assert data_version(VOC, root) == before
    (root / "ImageSets/Segmentation/val.txt").write_text("w\n")
    assert data_version(VOC, root) != before


def test_train_ids_are_preferred_file_by_file(tmp_path: Path) -> None:
    assert CITY.label_path(tmp_path, "train", ID).name == f"{ID}_gtFine_labelTrainIds.png"
    official(tmp_path, "labelIds", [[7, 8]])
    assert CITY.label_path(tmp_path, "train", ID).name == f"{ID}_gtFine_labelIds.png"
    official(tmp_path, "labelTrainIds", [[0, 18]], "ulm_000001_000019")
    official(tmp_path, "labelIds", [[7, 33]], "ulm_000001_000019")
    labels = [read_label(CITY.label_path(tmp_path, "train", i), CITY) for i in CITY.list_ids(tmp_path, "train")]
    assert [label.tolist() for label in labels] == [[[0, 1]], [[0, 18]]]


def test_r14_label_ids_under_the_name_of_train_ids_are_told(tmp_path: Path) -> None:
    path = official(tmp_path, "labelTrainIds", [[7, 8, 11], [26, 33, 0]])
    with pytest.raises(FplError, match=r"no class of cityscapes: 26, 33") as caught:
        read_label(path, CITY)
    assert "this is labelIds where trainIds are expected" in caught.value.hint
    assert "createTrainIdLabelImgs" in caught.value.hint and "..._labelIds.png" in caught.value.hint


def test_flattened_tree_of_the_cps_lists(tmp_path: Path) -> None:
    root = tmp_path / "cityscapes"
    for image_id in ("ulm_000001_000019", ID):
        save(root / "images" / "train" / f"{image_id}.png", np.zeros((1, 2, 3)))
        save(root / "segmentation" / "train" / f"{image_id}_gtFine.png", [[0, 255]])
    assert find_root(CITY, tmp_path) == find_root(CITY, root) == root
    assert CITY.list_ids(root, "train") == [ID, "ulm_000001_000019"]
    assert CITY.image_path(root, "train", ID) == root / "images" / "train" / f"{ID}.png"
    path = CITY.label_path(root, "train", ID)
    assert path == root / "segmentation" / "train" / f"{ID}_gtFine.png"
    assert read_label(path, CITY).tolist() == [[0, 255]]
    lines = [f"/images/train/{i}.png\t/segmentation/train/{i}_gtFine.png" for i in ("ulm_000001_000019", ID)]
    (root / "config_new").mkdir()
    (root / "config_new" / "train.txt").write_text("\n".join(lines))
    assert CITY.list_ids(root, "train") == ["ulm_000001_000019", ID]
    assert CITY.has_part(root, "train") and not CITY.has_part(root, "val")
    missing = CITY.label_path(root, "train", "x_1_2")
    assert missing == root / "segmentation" / "train" / "x_1_2_gtFine.png"
    with pytest.raises(FplError, match=r"images/train: image x_1_2 of cityscapes \(train\) is not on disk"):
        CITY.image_path(root, "train", "x_1_2")


def voc(root: Path, lists: dict[str, str], augmented: str = "", original: str = "") -> Path:
    (root / "JPEGImages").mkdir(parents=True)
    for name, ids in lists.items():
        path = root / "ImageSets" / "Segmentation" / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(ids))
    for folder, ids in (("SegmentationClassAug", augmented), ("SegmentationClass", original)):
        for image_id in ids:
            save(root / folder / f"{image_id}.png", [[0, 20, 255]])
    return root


@pytest.mark.parametrize("place", ["VOCdevkit/VOC2012", "VOC2012", "."])
def test_voc_is_found_in_each_of_its_places(tmp_path: Path, place: str) -> None:
    root = voc(tmp_path / place, {}, augmented="a")
    assert find_root(VOC, tmp_path).resolve() == root.resolve()


def test_voc_training_takes_augmented_labels_and_validation_the_original_ones(tmp_path: Path) -> None:
    root = voc(tmp_path, {}, augmented="abx", original="bcyx")
    for part, image_id, folder in (
        ("train", "a", "SegmentationClassAug"),
        ("train", "b", "SegmentationClassAug"),
        ("train", "c", "SegmentationClass"),
        ("train", "nowhere", "SegmentationClassAug"),
        ("val", "b", "SegmentationClass"),
        ("val", "a", "SegmentationClass"),
        ("val", "nowhere", "SegmentationClass"),
    ):
        assert VOC.label_path(root, part, image_id).parent.name == folder, (part, image_id)
    assert read_label(VOC.label_path(root, "train", "a"), VOC).tolist() == [[0, 20, 255]]


def test_voc_training_list_is_read_or_rebuilt(tmp_path: Path) -> None:
    root = voc(tmp_path, {"train": "db", "val": "vw"}, augmented="cavb")
    assert VOC.list_ids(root, "train") == ["a", "b", "c", "d"]
    assert VOC.subset_ids(root, "clean") == ["d", "b"]
    assert VOC.list_ids(root, "val") == ["v", "w"]
    (root / "ImageSets/Segmentation/trainaug.txt").write_text("/JPEGImages/e.jpg /SegmentationClassAug/e.png\na\n")
    assert VOC.list_ids(root, "train") == ["a", "e"]
    (root / "ImageSets/Segmentation/train_aug.txt").write_text("z\ny\n")
    assert VOC.list_ids(root, "train") == ["y", "z"]
    with pytest.raises(FplError, match="no subset 'noisy'"):
        VOC.subset_ids(root, "noisy")
    with pytest.raises(FplError, match=r"no subset 'clean'\n.*no subsets"):
        CITY.subset_ids(root, "clean")


def test_voc_without_its_lists_says_which_is_missing(tmp_path: Path) -> None:
    root = voc(tmp_path, {}, augmented="ab")
    assert not VOC.has_part(root, "val")
    for part in ("train", "val"):
        with pytest.raises(FplError, match=r"Segmentation/val.txt: the list of val images is missing") as caught:
            VOC.list_ids(root, part)
        assert "fpl data prepare voc" in caught.value.hint


def test_voc_palette_is_the_kits_bit_pattern() -> None:
    for index, colour in enumerate(VOC.palette):
        bits = [sum(((index >> (3 * b + c)) & 1) << (7 - b) for b in range(3)) for c in range(3)]
        assert tuple(bits) == colour


def test_counts_and_sizes() -> None:
    assert CITY.expected_counts() == {"train": 2975, "val": 500} and CITY.image_size == (1024, 2048)
    assert VOC.expected_counts() == {"train": 10582, "val": 1449} and VOC.subset_counts == {"clean": 1464}
    assert VOC.class_names[15] == "person" and CITY.class_names[13] == "car"


def test_only_a_drawn_set_takes_its_counts_from_the_drawing(tmp_path: Path) -> None:
    (tmp_path / DRAWING_RECORD).write_text(json.dumps({"train": 5, "validation": 2}))
    for name, counts in (("synthetic_voc", {"train": 5, "val": 2}), ("voc", {"train": 10582, "val": 1449})):
        assert get_spec(name).expected_counts(tmp_path) == counts
    assert get_spec("synthetic_voc").expected_counts() == {"train": 640, "val": 150}
