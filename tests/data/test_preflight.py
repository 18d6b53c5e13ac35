from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fpl.config.schema import RunConfig
from fpl.data.images import Images
from fpl.data.order import Order
from fpl.data.preflight import check_data
from fpl.data.read import read_label
from fpl.data.spec import get_spec
from fpl.data.validation import ValidationSet, validation_ids
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
    with pytest.raises(FplError, match=r"all label pixels of 2 labeled images are 255 \(ignore\)") as caught:
        check(root)
    assert "nothing can be learned" in caught.value.hint


def test_labeled_images_of_which_a_part_is_decoded_are_only_warned_of(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of three are decoded; of the third the header is read."""
    monkeypatch.setattr("fpl.data.preflight.DECODE_PIXELS", 41 * 50)
    write_camvid(root, ["a", "b", "c", "u0"], ["v", "w"], size=(41, 50))
    order = Order(0, 0, 3)
    first, second, last = ("abc"[order.index(position)] for position in (0, 1, 2))
    for image_id in (first, second):
        save(root / "trainannot" / f"{image_id}.png", np.full((41, 50), 255))
    assert check(root, "abc") == ["all label pixels of 2 labeled images are 255 (ignore)"]
    save(root / "trainannot" / f"{last}.png", np.zeros((41, 49)))
    with pytest.raises(FplError, match=f"label is 41x49, its image {last}.png is 41x50"):
        check(root, "abc")
    save(root / "trainannot" / f"{last}.png", np.zeros((41, 50, 3)))
    with pytest.raises(FplError, match="colours instead of class indices"):
        check(root, "abc")
    save(root / "trainannot" / f"{last}.png", np.full((41, 50), 19))  # the header says nothing of it
    assert len(check(root, "abc")) == 1


def spoil_five(root: Path, image_folder: str, label_folder: str, ids: str) -> list[str]:
    """Five faults in as many images, and a part of what must be said about each."""
    images, labels = root / image_folder, root / label_folder
    Image.new("I;16", (50, 41)).save(images / f"{ids[0]}.png")
    (images / f"{ids[1]}.png").write_bytes(b"no image")
    save(labels / f"{ids[2]}.png", np.full((41, 50), 19))
    save(labels / f"{ids[3]}.png", np.zeros((41, 51)))
    (labels / f"{ids[4]}.png").write_bytes((labels / f"{ids[4]}.png").read_bytes()[:300])
    return ["image has mode I;16", "cannot be decoded", "no class of camvid: 19", "label is 41x51", "truncated"]


def test_what_is_validated_on_is_looked_at_before_training(tmp_path: Path) -> None:
    root = write_camvid(tmp_path, "abu", "vwxyz", size=(41, 50))
    told = spoil_five(root, "val", "valannot", "vwxyz")
    with pytest.raises(FplError, match="5 faults") as caught:
        check(root, unlabeled="u")
    for text, name in zip(told, "vwxyz", strict=True):
        assert re.search(rf"/{name}\.png: .*{text}", caught.value.message), caught.value.message


def test_all_faults_of_all_lists_are_told_at_once(tmp_path: Path) -> None:
    root = write_camvid(tmp_path, ["a", "b", "h", "i", "j", "k", "l", "u0", "u1"], "vw", size=(41, 50))
    told = spoil_five(root, "train", "trainannot", "hijkl")
    save(root / "trainannot" / "b.png", np.full((41, 50), 20))
    (root / "train" / "u1.png").write_bytes(b"no image")
    save(root / "valannot" / "w.png", np.full((41, 50), 21))
    split = dataclasses.replace(make_split_of("ab", ["u0", "u1"]), held_out=tuple("hijkl"))
    with pytest.raises(FplError, match="8 faults") as caught:
        check_data(make_config(labeled_batch=2), split, Images(CAMVID, root, "train"))
    for text in (*told, "no class of camvid: 20", "no class of camvid: 21", "train/u1.png"):
        assert text in caught.value.message
    (root / "val" / "v.png").unlink()
    (root / "valannot" / "w.png").unlink()
    for image_id in "hi":
        (root / "train" / f"{image_id}.png").unlink()
    with pytest.raises(FplError) as caught:
        check_data(make_config(labeled_batch=2), split, Images(CAMVID, root, "train"))
    for text in ("2 of 9 training images are not on disk: h, i", "1 of 1 validation images have no label: w"):
        assert text in caught.value.message


@pytest.mark.parametrize("held_out", ["", "cd"])
def test_what_is_validated_on_has_a_pixel_that_counts(tmp_path: Path, held_out: str) -> None:
    root = write_camvid(tmp_path, "abcdu", "vw", size=(41, 50))
    images, split = (
        Images(CAMVID, root, "train"),
        dataclasses.replace(make_split_of("ab", "u"), held_out=tuple(held_out)),
    )
    for folder, ids in (("valannot", "vw"), ("trainannot", held_out)):
        for image_id in ids:
            save(root / folder / f"{image_id}.png", np.full((41, 50), 11))
    kind = "held-out" if held_out else "validation"
    with pytest.raises(FplError, match=rf"all label pixels of 2 {kind} images are 255 \(ignore\)"):
        check_data(make_config(labeled_batch=2), split, images)
    label = np.full((41, 50), 11)
    label[40, 49] = 3
    save(root / "trainannot" / "d.png" if held_out else root / "valannot" / "w.png", label)
    assert check_data(make_config(labeled_batch=2), split, images) == []


def test_of_a_subsample_alone_it_is_asked(tmp_path: Path) -> None:
    root = write_camvid(tmp_path, "abu", "vwxyz", size=(41, 50))
    given = make_config(labeled_batch=2).model_dump()
    config = RunConfig.model_validate({**given, "eval": {**given["eval"], "subsample": 2}})
    chosen = validation_ids(CAMVID, root, 2)
    for image_id in chosen:
        save(root / "valannot" / f"{image_id}.png", np.full((41, 50), 11))
    with pytest.raises(FplError, match="all label pixels of 2 validation images"):
        check_data(config, make_split_of("ab", "u"), Images(CAMVID, root, "train"))
    assert check(root, unlabeled="u") == []


def test_a_label_is_decoded_once_in_a_process_unless_it_changes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[str] = []
    monkeypatch.setattr(
        "fpl.data.label_facts.read_label", lambda path, spec: decoded.append(path.name) or read_label(path, spec)
    )
    for _ in range(2):
        assert check(root) == []
    assert sorted(decoded) == ["v.png", "w.png"]
    replacement = save(root / "other.png", np.full((41, 50), 19))
    replacement.rename(root / "valannot" / "w.png")
    with pytest.raises(FplError, match="no class of camvid: 19"):
        check(root)
    assert decoded[2:] == ["w.png"]


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
