from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fpl.config.schema import RunConfig
from fpl.data.images import Images
from fpl.data.preflight import check_data
from fpl.data.spec import get_spec
from fpl.data.validation import ValidationSet
from fpl.errors import FplError
from tests.data.conftest import make_config, make_split_of, save, write_camvid

CAMVID = get_spec("camvid")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_camvid(tmp_path, ["a", "b", "u0"], ["v", "w"], size=(41, 50))


def check(root: Path, labeled: str = "ab", unlabeled=("u0",)) -> list[str]:
    return check_data(make_config(labeled_batch=2), make_split_of(labeled, unlabeled), Images(CAMVID, root, "train"))


def test_good_data_has_no_warning_and_reads_labeled_labels_only(root: Path) -> None:
    images = Images(CAMVID, root, "train")
    assert check_data(make_config(labeled_batch=2), make_split_of("ab", ["u0"]), images) == []
    assert set(images.label_reads) == {"a", "b"}


def test_r12_few_labeled_images_are_noted(root: Path) -> None:
    (note,) = check_data(make_config(labeled_batch=8), make_split_of("ab", ["u0"]), Images(CAMVID, root, "train"))
    assert note == "2 labeled images are fewer than the batch of 8: images repeat within it"


def test_r16_classes_never_seen_are_a_warning(root: Path) -> None:
    for image_id in "ab":
        label = np.indices((41, 50)).sum(0) % 11
        save(root / "trainannot" / f"{image_id}.png", np.where(label == 3, 2, label))
    assert check(root) == ["never seen in 2 labeled images: road"]


def test_r16_binary_masks_are_suspected(root: Path) -> None:
    for image_id in "ab":
        save(root / "trainannot" / f"{image_id}.png", np.indices((41, 50)).sum(0) % 2 * 255)
    assert any("is this a binary mask with 0 and 255?" in warning for warning in check(root))
    for image_id in "ab":
        save(root / "trainannot" / f"{image_id}.png", np.full((41, 50), 255))
    assert check(root) == ["all label pixels of 2 labeled images are 255 (ignore)"]


def test_copy_paste_without_anything_to_paste_is_a_warning(root: Path) -> None:
    """Classes 3 to 7 and 9 of CamVid may be pasted by default; the labels are made to hold others."""
    for image_id in "ab":
        label = np.indices((41, 50)).sum(0) % 11
        save(root / "trainannot" / f"{image_id}.png", np.where(np.isin(label, [3, 4, 5, 6, 7, 9]), 1, label))

    def copy_paste_warnings(**method) -> list[str]:
        given = make_config(labeled_batch=2, unlabeled_batch=2).model_dump()
        config = RunConfig.model_validate({**given, "method": {"name": "ael", **method}})
        found = check_data(config, make_split_of("ab", ["u0"]), Images(CAMVID, root, "train"))
        return [warning for warning in found if "copy_paste" in warning]

    (warning,) = copy_paste_warnings()
    assert warning.startswith("none of 2 labeled images holds a class that may be pasted (road")
    assert copy_paste_warnings(copy_paste=False) == []
    assert copy_paste_warnings(paste_excluded=[0, 1]) == []
    assert not any("copy_paste" in warning for warning in check(root))


def test_r17_bad_label_is_found_before_the_first_step(root: Path) -> None:
    path = save(root / "trainannot" / "b.png", np.full((41, 50), 19))
    with pytest.raises(FplError, match=r"no class of camvid: 19") as caught:
        check(root)
    assert caught.value.where == str(path)


def test_r21_size_mismatch(root: Path) -> None:
    save(root / "trainannot" / "b.png", np.zeros((41, 51)))
    with pytest.raises(FplError, match=r"label is 41x51, its image b.png is 41x50"):
        check(root)


def test_files_and_overlaps(root: Path) -> None:
    with pytest.raises(FplError, match="1 of 4 training images are not on disk: u9"):
        check(root, unlabeled=("u0", "u9"))
    (root / "val" / "w.png").rename(root / "val" / "a.png")
    with pytest.raises(FplError, match="1 validation ids are in the training lists: a"):
        check(root)


def test_r10_validation_without_label_fails_with_its_name(root: Path) -> None:
    (root / "valannot" / "w.png").unlink()
    for action in (lambda: check(root), lambda: ValidationSet(CAMVID, root)):
        with pytest.raises(FplError) as caught:
            action()
        assert "1 of 2 validation images have no label: w" in caught.value.message
        assert str(root / "valannot" / "w.png") in caught.value.message


def test_validation_set(root: Path) -> None:
    items = list(ValidationSet(CAMVID, root, downscale=2))
    assert [image_id for image_id, _, _ in items] == ["v", "w"]
    _, image, label = items[0]
    assert (image.shape, image.dtype) == ((3, 20, 25), torch.uint8)
    assert (label.shape, label.dtype) == ((41, 50), torch.uint8)
    assert image.is_contiguous()
    ranks = [ValidationSet(CAMVID, root, rank=rank, world_size=2, keep=True) for rank in range(2)]
    assert [rank.ids for rank in ranks] == [("v",), ("w",)]
    assert len(ranks[0]) == 1
    assert torch.equal(next(iter(ranks[0]))[2], label)
