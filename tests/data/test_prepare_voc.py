"""SBD annotations, written in the layout of the real ones, become `SegmentationClassAug`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy import io, sparse

from fpl.cli import main as cli
from fpl.data.check import check_dataset
from fpl.data.check_report import report_text
from fpl.data.prepare_voc import find_annotations, prepare_voc, prepared_text, read_annotation
from fpl.data.read import read_label
from fpl.data.spec import find_root, get_spec
from fpl.errors import FplError

SIZE = (30, 40)
CLEAN, VAL, EXTRA = ["2007_000032", "2007_000039"], ["2007_000033", "2007_000042"], ["2008_000001", "2008_000003"]
VOC = replace(get_spec("voc"), counts={"train": 4, "val": 2}, subset_counts={"clean": 2})


def write_mat(path: Path, label: Any) -> Path:
    """A file as SBD's: MATLAB 5, struct GTcls of Boundaries (sparse per class), Segmentation, CategoriesPresent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    boundaries = np.empty((20, 1), dtype=object)
    for index in range(20):
        boundaries[index, 0] = sparse.csc_matrix(np.zeros(SIZE, dtype=bool))
    present = np.array([[value] for value in np.unique(label) if value], dtype=np.uint8)
    struct = {"Boundaries": boundaries, "Segmentation": label, "CategoriesPresent": present}
    io.savemat(path, {"GTcls": struct}, do_compression=True)
    return path


def sbd_label(image_id: str) -> np.ndarray:
    return np.random.default_rng(int(image_id[-6:])).integers(0, 21, SIZE).astype(np.uint8)


def write_voc(root: Path, clean: Sequence[str] = CLEAN, val: Sequence[str] = VAL, extra: Sequence[str] = EXTRA) -> Path:
    """The tree of VOC 2012 without `SegmentationClassAug`."""
    lists = root / "ImageSets" / "Segmentation"
    for folder in (lists, root / "JPEGImages", root / "SegmentationClass"):
        folder.mkdir(parents=True)
    (lists / "train.txt").write_text("\n".join(clean) + "\n")
    (lists / "val.txt").write_text("\n".join(val) + "\n")
    random = np.random.default_rng(0)
    for image_id in (*clean, *val, *extra, "2009_000077"):
        Image.fromarray(random.integers(0, 256, (*SIZE, 3), dtype=np.uint8)).save(
            root / "JPEGImages" / f"{image_id}.jpg"
        )
    for image_id in (*clean, *val):
        label = random.integers(0, 21, SIZE).astype(np.uint8)
        label[0] = 255
        image = Image.fromarray(label)
        image.putpalette([channel for colour in VOC.palette for channel in colour] + [0] * 3 * 234 + [224, 224, 192])
        image.save(root / "SegmentationClass" / f"{image_id}.png")
    return root


@pytest.fixture
def trees(tmp_path: Path) -> tuple[Path, Path]:
    """Data root with VOC in it, and the unpacked SBD; SBD also labels images of VOC's own train and val."""
    write_voc(tmp_path / "VOCdevkit" / "VOC2012")
    for image_id in (*EXTRA, CLEAN[0], VAL[0]):
        write_mat(tmp_path / "sbd" / "benchmark_RELEASE" / "dataset" / "cls" / f"{image_id}.mat", sbd_label(image_id))
    return tmp_path, tmp_path / "sbd"


def prepare(trees: tuple[Path, Path], workers: int = 1) -> Any:
    return prepare_voc(VOC, find_root(VOC, trees[0]), trees[1], workers=workers)


def test_labels_are_those_of_sbd_and_voc_takes_precedence(trees: tuple[Path, Path]) -> None:
    root = find_root(VOC, trees[0])
    done = prepare(trees)
    assert (done.converted, done.copied, done.kept, done.train, done.val) == (2, 4, 0, 4, 2)
    assert done.is_complete(VOC) and "expected" not in prepared_text(done, VOC)
    for image_id in EXTRA:
        with Image.open(root / "SegmentationClassAug" / f"{image_id}.png") as image:
            assert image.mode == "P"
            assert np.array_equal(np.array(image), sbd_label(image_id))
            colours = np.array(image.getpalette()).reshape(-1, 3)
        assert colours[:21].tolist() == [list(colour) for colour in VOC.palette]
    for image_id in (*CLEAN, *VAL):
        ours, theirs = (root / folder / f"{image_id}.png" for folder in ("SegmentationClassAug", "SegmentationClass"))
        assert ours.read_bytes() == theirs.read_bytes()
    assert VOC.list_ids(root, "train") == sorted([*CLEAN, *EXTRA])


def test_the_prepared_tree_is_clean(trees: tuple[Path, Path]) -> None:
    prepare(trees)
    root = find_root(VOC, trees[0])
    report = check_dataset(VOC, root, workers=1)
    assert not report.faults and not report.of_level("warning"), report_text(report)
    # 2009_000077 is one of the many images of VOC without a label.
    assert [(each.file, each.what) for each in report.of_level("note")] == [
        ("JPEGImages", "1 of the images here are in no list and not used")
    ]


def test_a_tree_that_was_not_prepared_is_told_so(trees: tuple[Path, Path]) -> None:
    root = find_root(VOC, trees[0])
    report = check_dataset(replace(VOC, subset_counts={"clean": 3}), root, workers=1)
    assert [each.what for each in report.faults] == [
        "2 ids, 4 are expected",
        "the subset clean has 2 ids, 3 are expected",
    ]
    assert "fpl data prepare voc" in report.faults[0].remedy


def test_good_files_are_kept_and_broken_ones_made_again(trees: tuple[Path, Path]) -> None:
    prepare(trees)
    folder = find_root(VOC, trees[0]) / "SegmentationClassAug"
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    good = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert prepare(trees).kept == 6
    assert before == {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}

    (folder / f"{EXTRA[0]}.png").write_bytes(good[f"{EXTRA[0]}.png"][:200])
    Image.fromarray(np.zeros((30, 41), np.uint8)).save(folder / f"{EXTRA[1]}.png")
    Image.fromarray(np.zeros(SIZE, np.uint8)).save(folder / f"{CLEAN[0]}.png")
    (folder / f"{VAL[0]}.png").unlink()
    done = prepare(trees, workers=2)
    assert (done.converted, done.copied, done.kept) == (2, 2, 2)
    assert good == {path.name: path.read_bytes() for path in folder.iterdir()}


def test_all_broken_annotations_are_named_and_the_others_done(trees: tuple[Path, Path]) -> None:
    root, cls = find_root(VOC, trees[0]), find_annotations(trees[1])
    path = cls / f"{EXTRA[0]}.mat"
    path.write_bytes(path.read_bytes()[:150])
    write_mat(cls / f"{EXTRA[1]}.mat", np.zeros((30, 41), np.uint8))
    with pytest.raises(FplError) as caught:
        prepare(trees)
    message = caught.value.message
    assert "2 of 6 labels could not be made; the others are done" in message
    assert f"{EXTRA[0]}.mat: cannot be read as an SBD annotation" in message
    assert f"{EXTRA[1]}.mat: annotation is 30x41, image {EXTRA[1]}.jpg is 30x40" in message
    assert len(list((root / "SegmentationClassAug").iterdir())) == 4


def test_wrong_counts_and_annotations_without_image(trees: tuple[Path, Path]) -> None:
    cls = find_annotations(trees[1])
    (cls / f"{EXTRA[0]}.mat").rename(cls / "2011_999999.mat")
    text = prepared_text(prepare(trees), VOC)
    assert "3 training ids (train_aug) and 2 validation ids" in text
    assert "1 annotations of SBD have no image in JPEGImages and are left out: 2011_999999" in text
    assert "4 and 2 are expected" in text


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"GTinst": {"Segmentation": np.zeros(SIZE, np.uint8)}}, "cannot be read"),
        ({"GTcls": {"Boundaries": 1}}, "cannot be read"),
        ({"GTcls": {"Segmentation": np.full(SIZE, 21, np.uint8)}}, "no class of VOC: 21"),
        ({"GTcls": {"Segmentation": np.zeros((2, 2, 3), np.uint8)}}, r"uint8 \[2, 2, 3\], not a matrix"),
        ({"GTcls": {"Segmentation": np.zeros(SIZE)}}, r"float64 \[30, 40\], not a matrix"),
    ],
)
def test_other_mat_files_are_refused(tmp_path: Path, content: dict[str, Any], text: str) -> None:
    io.savemat(tmp_path / "x.mat", content)
    with pytest.raises(FplError, match=text) as caught:
        read_annotation(tmp_path / "x.mat")
    assert caught.value.where == str(tmp_path / "x.mat")


@pytest.mark.parametrize(
    "below", ["", "benchmark_RELEASE", "benchmark_RELEASE/dataset", "benchmark_RELEASE/dataset/cls"]
)
def test_sbd_may_be_given_at_any_depth(trees: tuple[Path, Path], below: str) -> None:
    if below == "benchmark_RELEASE":
        assert find_annotations(trees[1] / below) == trees[1] / below / "dataset/cls"
    assert len(list(find_annotations(trees[1] / below).glob("*.mat"))) == 4


def test_missing_sbd(trees: tuple[Path, Path]) -> None:
    with pytest.raises(FplError, match="no SBD annotations") as caught:
        prepare((trees[0], trees[0] / "nowhere"))
    assert "fpl data download voc" in caught.value.hint


def test_command(trees: tuple[Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["fpl", "data", "prepare", "voc", "--data-root", str(trees[0]), "--workers", "1"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    out = capsys.readouterr().out
    assert end.value.code == 2
    assert "2 labels converted from SBD, 4 copied from VOC, 0 were there" in out
    assert "10582 and 1449 are expected" in out
    root = find_root(VOC, trees[0])
    assert read_label(root / "SegmentationClassAug" / f"{EXTRA[0]}.png", VOC).shape == SIZE
