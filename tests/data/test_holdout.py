"""Which labeled images are held out, and what becomes of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fpl.config.identity import run_id
from fpl.config.schema import RunConfig
from fpl.data.batches import BatchRequest, PasteRequest, make_loader
from fpl.data.images import Images
from fpl.data.preflight import check_data
from fpl.data.spec import SPECS, get_spec
from fpl.data.splits import Split, hold_out, resolve_split, split_folder, write_split
from fpl.data.validation import ValidationSet, validated_on
from fpl.errors import FplError
from tests.data.conftest import make_config, make_split_of, save, write_camvid

CAMVID = get_spec("camvid")
LABELED, UNLABELED = "hbxkdqs", "uvw"


@pytest.fixture(autouse=True)
def any_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SPECS, "camvid", dataclasses.replace(SPECS["camvid"], counts=None))


def held(every: int | None, **data: Any) -> RunConfig:
    return make_config(split={"fraction": "1/4", "holdout": every}, **data)


@pytest.fixture
def splits(tmp_path: Path) -> Path:
    split = make_split_of(LABELED, UNLABELED)
    write_split(split, split_folder(tmp_path, split.dataset, split.family, split.fraction))
    return tmp_path


@pytest.mark.parametrize(
    ("every", "held_out", "kept"),
    [(2, "hxds", "bkq"), (3, "hks", "bxdq"), (4, "hd", "bxkqs"), (6, "hs", "bxkdq"), (7, "h", "bxkdqs")],
)
def test_every_nth_of_the_list_from_its_first(every: int, held_out: str, kept: str) -> None:
    split = hold_out(make_split_of(LABELED, UNLABELED), every)
    assert "".join(split.held_out) == held_out
    assert "".join(split.labeled) == kept
    assert "".join(split.unlabeled) == UNLABELED


@pytest.mark.parametrize("count", [2, 3, 10, 23])
def test_nothing_is_lost_and_nothing_is_in_two_lists(count: int) -> None:
    whole = make_split_of([f"i{number:02d}" for number in range(count)], ["u"])
    found = set()
    for every in range(2, count + 1):
        split = hold_out(whole, every)
        assert sorted([*split.labeled, *split.held_out]) == sorted(whole.labeled)
        assert len(split.labeled) + len(split.held_out) == count
        assert split.labeled and len(split.held_out) == -(-count // every)
        assert [each for each in whole.labeled if each in split.labeled] == list(split.labeled)
        assert dataclasses.replace(split, labeled=whole.labeled, held_out=()) == whole
        found.add(split.held_out)
    # No two settings mean the same.
    assert len(found) == count - 1


@pytest.mark.parametrize(
    ("labeled", "every", "allowed"), [("abc", 4, "2 to 3 are allowed"), ("a", 2, "at least 2 labeled")]
)
def test_too_few_labeled_images_are_refused(labeled: str, every: int, allowed: str) -> None:
    with pytest.raises(FplError) as caught:
        hold_out(make_split_of(labeled, "u"), every)
    counted = f"data.split.holdout = {every} of {len(labeled)} labeled image"
    assert counted in caught.value.what and allowed in caught.value.message


def test_lists_are_pinned_whole_and_checked_as_before(splits: Path) -> None:
    config, split = resolve_split(held(3), splits)
    whole = make_split_of(LABELED, UNLABELED)
    assert split == hold_out(whole, 3)
    assert (config.data.split.labeled, config.data.split.unlabeled) == (whole.labeled_digest, whole.unlabeled_digest)
    assert resolve_split(config, splits) == (config, split)
    record = splits / "camvid" / "every-nth" / "1-4" / "labeled.txt"
    record.write_text("\n".join(["h", *LABELED[2:], "b"]) + "\n")  # the same first image, others held out behind it
    with pytest.raises(FplError, match="digest"):
        resolve_split(held(3), splits)


def test_run_ids_say_it_and_differ_with_the_held_out_images(splits: Path, tmp_path: Path) -> None:
    ids = {every: run_id(resolve_split(held(every), splits)[0]) for every in (None, 2, 3)}
    assert "-1_4-h3-s0-" in ids[3] and "-1_4-h2-s0-" in ids[2] and "-1_4-s0-" in ids[None]
    # A key that is not set is no part of it.
    assert run_id(resolve_split(make_config(), splits)[0]) == ids[None] == "camvid-cpscutmix-ce-tiny-1_4-s0-c4b7180d"
    other = make_split_of([*LABELED[1:], LABELED[0]], UNLABELED)
    write_split(other, split_folder(tmp_path / "other", other.dataset, other.family, other.fraction))
    config, split = resolve_split(held(3), tmp_path / "other")
    assert split.held_out != hold_out(make_split_of(LABELED, UNLABELED), 3).held_out
    assert run_id(config) != ids[3]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Images of 41 x 50; `u0` has no label."""
    return write_camvid(tmp_path / "camvid", ["a", "b", "c", "d", "u0"], ["v", "w"], size=(41, 50))


def check(root: Path, split: Split) -> list[str]:
    return check_data(held(2, labeled_batch=2), split, Images(CAMVID, root, "train"))


def test_held_out_images_are_checked_like_validation_images(root: Path) -> None:
    split = hold_out(make_split_of("abcd", ["u0"]), 3)
    assert check(root, split) == []
    with pytest.raises(FplError, match="1 validation ids are in the training lists: v"):
        check(root, dataclasses.replace(split, held_out=("a", "v")))
    with pytest.raises(FplError, match="1 of 6 training images are not on disk: z"):
        check(root, dataclasses.replace(split, held_out=("a", "d", "z")))
    path = CAMVID.label_path(root, "train", "d")
    path.unlink()
    with pytest.raises(FplError, match="1 of 2 held-out images have no label: d") as caught:
        check(root, split)
    assert caught.value.where == str(path)


def test_warnings_are_about_the_remaining_labels(root: Path) -> None:
    """Class 3 stands in held-out labels alone: training never sees it."""
    label = np.indices((41, 50)).sum(0) % 11
    for image_id in "abcd":
        save(root / "trainannot" / f"{image_id}.png", label if image_id in "ad" else np.where(label == 3, 2, label))
    assert check(root, hold_out(make_split_of("abcd", ["u0"]), 3)) == ["never seen in 2 labeled images: road"]
    assert check(root, make_split_of("abcd", ["u0"])) == []


@pytest.mark.parametrize("downscale", [1, 2])
def test_validation_on_held_out_images_reads_the_train_part(root: Path, downscale: int) -> None:
    save(root / "val" / "a.png", np.zeros((41, 50, 3)))  # of the same name, but not the same image
    save(root / "valannot" / "a.png", np.zeros((41, 50)))
    split = hold_out(make_split_of("abcd", ["u0"]), 3)
    part, ids = validated_on(split, CAMVID, root)
    assert (part, ids) == ("train", ("a", "d"))
    items = list(ValidationSet(CAMVID, root, downscale, part=part, ids=ids))
    train = Images(CAMVID, root, "train", downscale)
    assert [image_id for image_id, _, _ in items] == ["a", "d"]
    for image_id, image, label in items:
        assert np.array_equal(image.numpy(), train.image(image_id).transpose(2, 0, 1))
        assert np.array_equal(label.numpy(), train.full_label(image_id)) and label.shape == (41, 50)
    ranks = [ValidationSet(CAMVID, root, part=part, ids=ids, rank=rank, world_size=3) for rank in range(3)]
    assert [rank.ids for rank in ranks] == [("a",), ("d",), ()] and {rank.total for rank in ranks} == {2}


def test_no_batch_shows_a_held_out_image(root: Path) -> None:
    split = hold_out(make_split_of("abcd", ["u0"]), 3)
    images = Images(CAMVID, root, "train", keep=False)
    seen: set[str] = set()
    original = images.image
    images.image = lambda image_id: seen.add(image_id) or original(image_id)  # type: ignore[method-assign,func-returns-value]
    for draws, paste in ((2, None), (1, PasteRequest(1.0, (0.5, 2.0)))):
        assert len(list(make_loader(held(3, steps=10), split, images, BatchRequest(draws=draws, paste=paste)))) == 10
    assert seen == {"b", "c", "u0"} and set(images.label_reads) == {"b", "c"}
