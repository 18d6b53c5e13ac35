"""The full check: every fault of a tree that the test breaks itself, named in one report."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fpl.cli import main as cli
from fpl.data.check import check_dataset
from fpl.data.check_files import Finding, Pair, decode_pair
from fpl.data.check_report import CheckReport, report_text
from fpl.data.spec import get_spec
from fpl.data.splits import published
from tests.data.conftest import save, write_camvid
from tests.drawn import forget_checksums

CAMVID, CITY = get_spec("camvid"), get_spec("synthetic_city")
REAL = Path(os.environ.get("FPL_TEST_DATA") or Path(__file__).parents[3] / "shared" / "data") / "camvid"
TRAIN, VAL = [f"t{number:03d}" for number in range(12)], ["v0", "v1", "v2", "v3"]
SMALL = replace(CAMVID, counts={"train": len(TRAIN), "val": len(VAL)})


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write_camvid(tmp_path / "camvid", TRAIN, VAL)


def faults(report: CheckReport) -> dict[str, Finding]:
    return {finding.file: finding for finding in report.faults}


def whats(report: CheckReport, level: str) -> str:
    return "\n".join(f"{each.file}: {each.what}" for each in report.of_level(level))


def break_five(root: Path) -> dict[str, str]:
    """Break five files in five ways: file -> a part of what must be said about it."""
    image = root / "train" / "t001.png"
    image.write_bytes(image.read_bytes()[:2000])
    save(root / "trainannot" / "t003.png", np.zeros((40, 49)))
    save(root / "trainannot" / "t005.png", np.full((40, 50), 17))
    save(root / "trainannot" / "t007.png", np.zeros((40, 50, 3)))
    (root / "valannot" / "v2.png").unlink()
    return {
        "train/t001.png": "cannot be decoded",
        "trainannot/t003.png": "label is 40x49, its image t003.png is 40x50",
        "trainannot/t005.png": "no class of camvid: 17",
        "trainannot/t007.png": "mode RGB: colours instead of class indices",
        "valannot/v2.png": "label of a validation image is missing",
    }


def test_five_faults_of_five_kinds_in_one_report(tree: Path) -> None:
    expected = break_five(tree)
    report = check_dataset(SMALL, tree, workers=1)
    found = faults(report)
    assert set(found) == set(expected)
    for file, text in expected.items():
        assert text in found[file].what and found[file].remedy, file
    text = report_text(report)
    for file, what in expected.items():
        assert file in text and what in text
    assert [len(report.of_level("fault", part.part)) for part in report.parts] == [4, 1]
    assert text.endswith("camvid: 5 faults, no warnings")


def test_clean_tree_and_its_numbers(tree: Path) -> None:
    seen: list[tuple[int, int]] = []
    report = check_dataset(SMALL, tree, workers=1, progress=lambda done, total: seen.append((done, total)))
    assert not report.findings and not report.sampled
    assert seen[-1] == (16, 16)
    for part, ids in zip(report.parts, (TRAIN, VAL), strict=True):
        assert (part.images, part.labels, part.decoded, part.sizes) == (
            len(ids),
            len(ids),
            len(ids),
            {(40, 50): len(ids)},
        )
        labels = np.stack([np.array(Image.open(tree / f"{part.part}annot" / f"{each}.png")) for each in ids])
        assert part.pixels.tolist() == [int((labels == value).sum()) for value in range(12)]
        assert part.class_images.tolist() == [int((labels == value).any((1, 2)).sum()) for value in range(12)]
    assert "camvid is as it should be" in report_text(report)


def test_worker_count_changes_nothing_but_time(tree: Path) -> None:
    break_five(tree)
    one, two = (replace(check_dataset(SMALL, tree, workers=workers), seconds=0) for workers in (1, 2))
    assert one.findings == two.findings
    assert report_text(one) == report_text(two)


def break_list(root: Path) -> None:
    (root / "train.txt").write_text("\n".join([*TRAIN[:-1], "gone", TRAIN[0]]))


def share_an_id(root: Path) -> None:
    shutil.copy(root / "train" / "t001.png", root / "val" / "t001.png")
    shutil.copy(root / "trainannot" / "t001.png", root / "valannot" / "t001.png")


@pytest.mark.parametrize(
    ("spoil", "level", "expected"),
    [
        (break_list, "fault", ["train.txt: image ids that stand twice: t000", "image gone of camvid (train)"]),
        (break_list, "warning", ["train/t011.png: no list or image has this name", "trainannot/t011.png"]),
        (share_an_id, "fault", ["val: 1 ids are in both train and val: t001", "val: 5 ids, 4 are expected"]),
        (share_an_id, "warning", ["val/t001.png: the same file as train/t001.png"]),
        (lambda root: (root / "train" / "t004.png").unlink(), "fault", ["train: 11 ids, 12 are expected"]),
        (lambda root: (root / "train" / "t004.png").unlink(), "warning", ["trainannot/t004.png"]),
        (lambda root: (root / "trainannot" / "t004.png").unlink(), "note", ["1 of 12 training images have no label"]),
        (lambda root: (root / "train" / "t004.png").write_bytes(b""), "fault", ["train/t004.png: the image cannot"]),
        (lambda root: shutil.rmtree(root / "val"), "fault", ["val: no folder of val images", "val: 0 ids, 4"]),
        (lambda root: Image.new("I;16", (50, 40)).save(root / "val" / "v1.png"), "fault", ["val/v1.png: image has"]),
    ],
)  # fmt: skip
def test_what_else_is_seen(tree: Path, spoil: Callable[[Path], object], level: str, expected: list[str]) -> None:
    spoil(tree)
    told = whats(check_dataset(SMALL, tree, workers=1), level)
    assert all(text in told for text in expected), told


@pytest.mark.parametrize(
    ("part", "other", "remedy"),
    [("train", "t002", "two ids show one image"), ("val", "v1", "an image of the validation is trained on")],
)
def test_one_image_under_two_names(tree: Path, part: str, other: str, remedy: str) -> None:
    shutil.copy(tree / "train" / "t001.png", tree / part / f"{other}.png")
    (found,) = check_dataset(SMALL, tree, workers=1).of_level("warning")
    assert found.what == "the same file as train/t001.png" and found.remedy.startswith(remedy)


def test_training_ids_that_are_not_the_published_ones(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(published.ORDERS, "camvid", published.digest_ids(published.cps_lines("camvid", TRAIN)))
    assert not check_dataset(SMALL, tree, workers=1).findings
    others = [f"x{image_id}" for image_id in TRAIN]
    monkeypatch.setitem(published.ORDERS, "camvid", published.digest_ids(published.cps_lines("camvid", others)))
    (found,) = check_dataset(SMALL, tree, workers=1).of_level("warning")
    assert found.what.startswith("the 12 training ids are not those of the published list: digest ")
    monkeypatch.setitem(published.ORDERS, "camvid", published.digest_ids(published.cps_lines("camvid", TRAIN)))
    (tree / "train.txt").write_text("\n".join(TRAIN[::-1]))
    (found,) = check_dataset(SMALL, tree, workers=1).of_level("warning")
    assert found.what == "the 12 training ids are those of the published list in another order"


def test_classes_never_seen_ignore_and_binary_masks(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for image_id in TRAIN:
        save(tree / "trainannot" / f"{image_id}.png", np.where(np.arange(2000).reshape(40, 50) < 500, 0, 255))
    for image_id in VAL:
        save(tree / "valannot" / f"{image_id}.png", np.full((40, 50), 11))
    report = check_dataset(SMALL, tree, workers=1)
    assert [round(part.ignore_share, 3) for part in report.parts] == [0.75, 1.0]
    (warning,) = report.of_level("warning")
    assert "classes never seen: building, pole" in warning.what and "binary mask" in warning.remedy
    # Nothing can be scored on them, which a sample cannot say of the others.
    assert whats(report, "fault") == "val: every label pixel is to be ignored"
    monkeypatch.setattr("fpl.data.check.SAMPLE", 3)
    report = check_dataset(SMALL, tree, fast=True, workers=1)
    assert "val: every label pixel in the sample is to be ignored" in whats(report, "warning") and not report.faults


def test_r14_label_ids_are_called_so_and_many_files_make_one_fault(city: Path, tmp_path: Path) -> None:
    root = shutil.copytree(city, tmp_path / "city")
    forget_checksums(root)
    ids = CITY.list_ids(root, "train")
    for image_id in ids:
        path = CITY.label_path(root, "train", image_id)
        with Image.open(path) as label:
            size = label.size
        Image.new("L", size, 26).save(path)
    report = check_dataset(CITY, root, workers=1)
    assert len(report.faults) == len(ids) == 16
    text = report_text(report)
    assert text.count("this is labelIds where trainIds are expected") == 1
    assert "train, label: 16 files" in text and "and 6 more" in text
    assert text.count("no class of synthetic_city: 26") == 10


def test_image_size_of_the_spec(city: Path) -> None:
    report = check_dataset(replace(CITY, image_size=(64, 100)), city, workers=1)
    assert len(report.faults) == 20
    assert report.faults[0].what == "image is 64x128, not 64x100"


def test_counts_are_those_of_the_drawing(city: Path, tmp_path: Path) -> None:
    assert not check_dataset(CITY, city, workers=1).faults
    root = shutil.copytree(city, tmp_path / "city")
    record = json.loads((root / "drawing.json").read_text())
    (root / "drawing.json").write_text(json.dumps({**record, "train": 17}))
    assert "16 ids, 17 are expected" in whats(check_dataset(CITY, root, workers=1), "fault")


def test_changed_files_of_a_drawn_set_are_named(city: Path, tmp_path: Path) -> None:
    root = shutil.copytree(city, tmp_path / "synthetic_city")
    assert not check_dataset(CITY, root, workers=1).faults
    image = CITY.image_path(root, "train", CITY.list_ids(root, "train")[0])
    label = CITY.label_path(root, "val", CITY.list_ids(root, "val")[0])
    for path in (image, label):
        with Image.open(path) as picture:
            pixels = np.asarray(picture).copy()
        pixels[0, 0] = np.where(pixels[0, 0] == 3, 4, 3)
        Image.fromarray(pixels).save(path)  # a picture as good as any
    found = check_dataset(CITY, root, fast=True, workers=1).faults
    names = [str(path.relative_to(root)) for path in (image, label)]
    assert [(each.part, each.file, each.what) for each in found] == [
        ("train", names[0], "not as drawn: changed"),
        ("val", names[1], "not as drawn: changed"),
    ]
    command = f"fpl data draw synthetic_city --data-root {tmp_path} --train 16 --validation 4 --seed 0"
    assert found[0].remedy.startswith(f"delete {root}") and command in found[0].remedy
    label.unlink()
    assert "not as drawn: gone" in whats(check_dataset(CITY, root, workers=1), "fault")
    (root / "SHA256SUMS").write_text("")
    assert "SHA256SUMS: not as drawn: changed" in whats(check_dataset(CITY, root, workers=1), "fault")
    (root / "drawing.json").write_text("{")
    assert "the record of the drawing is broken" in whats(check_dataset(CITY, root, workers=1), "fault")


def test_palettes(tree: Path) -> None:
    label = np.arange(2000).reshape(40, 50) % 11
    image = Image.fromarray(label.astype(np.uint8))
    image.putpalette([channel for colour in CAMVID.palette for channel in colour])
    image.save(tree / "valannot" / "v0.png")
    image.putpalette(
        [channel for colour in (*CAMVID.palette[:4], (1, 2, 3), *CAMVID.palette[5:]) for channel in colour]
    )
    image.save(tree / "valannot" / "v1.png")
    report = check_dataset(SMALL, tree, workers=1)
    assert whats(report, "warning") == "valannot/v1.png: the palette has other colours than camvid for: sidewalk"


def test_fast_samples_evenly_and_says_so(tmp_path: Path) -> None:
    ids = [f"{number:04d}" for number in range(99)]
    root = write_camvid(tmp_path / "camvid", ids, VAL, size=(4, 5))
    spec = replace(CAMVID, counts={"train": 99, "val": 4})
    (root / "train" / "0001.png").write_bytes(b"")
    report = check_dataset(spec, root, fast=True, workers=1)
    assert [part.decoded for part in report.parts] == [50, 4]
    assert not report.faults
    text = report_text(report)
    assert "a sample of 54 of 103 images" in text and "without --fast" in text
    (root / "train" / "0098.png").write_bytes(b"")
    assert list(faults(check_dataset(spec, root, fast=True, workers=1))) == ["train/0098.png"]
    (root / "val.txt").write_text("v0\nv1\nv2\nv3\nv4")
    assert "image v4 of camvid" in whats(check_dataset(spec, root, fast=True, workers=1), "fault")


def test_any_exception_of_a_decoder_becomes_a_fault(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def burst(path: Path) -> None:
        raise ZeroDivisionError("in a decoder")

    monkeypatch.setattr("fpl.data.check_files.read_stored", burst)
    pair = Pair("train", "t000", tree / "train" / "t000.png", tree / "trainannot" / "t000.png")
    decoded = decode_pair(pair, CAMVID, tree)
    assert decoded.pixels is not None
    assert [each.what for each in decoded.findings] == ["cannot be decoded (ZeroDivisionError: in a decoder)"]


def test_command(tree: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "sys.argv", ["fpl", "data", "check", "camvid", "--data-root", str(tree.parent), "--workers", "1"]
    )
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    assert "12 ids, 367 are expected" in capsys.readouterr().out

    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fpl.data.check.check_dataset", interrupted)
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 130
    assert capsys.readouterr().err.strip() == "error: stopped"


@pytest.mark.skipif(not REAL.is_dir(), reason="no CamVid (FPL_TEST_DATA names a folder that holds it)")
def test_real_camvid_is_clean() -> None:
    report = check_dataset(CAMVID, REAL, fast=True, workers=1)
    assert not report.findings
    assert [(part.listed, part.labels, part.sizes) for part in report.parts] == [
        (367, 367, {(360, 480): 50}),
        (101, 101, {(360, 480): 50}),
    ]


@pytest.mark.parametrize("flat", [False, True])
def test_cityscapes_trees(tmp_path: Path, flat: bool) -> None:
    """The official tree with labelIds, which are mapped, and the flat one, whose labels must be trainIds."""
    spec = replace(get_spec("cityscapes"), counts={"train": 2, "val": 1}, image_size=(8, 16))
    label_ids = np.resize([7, 8, 11, 12, 13, 17, *range(19, 29), 31, 32, 33, 0, 4], (8, 16))
    for part, image_id in (("train", "ulm_000000_000019"), ("train", "jena_000001_000019"), ("val", "bonn_2_3")):
        city = image_id.split("_")[0]
        image = f"images/{part}/{image_id}.png" if flat else f"leftImg8bit/{part}/{city}/{image_id}_leftImg8bit.png"
        label = f"segmentation/{part}/{image_id}" if flat else f"gtFine/{part}/{city}/{image_id}"
        save(tmp_path / image, np.random.default_rng(len(image_id + part)).integers(0, 256, (8, 16, 3)))
        save(tmp_path / f"{label}{'_gtFine.png' if flat else '_gtFine_labelIds.png'}", label_ids)
    report = check_dataset(spec, tmp_path, workers=1)
    if flat:
        assert len(report.faults) == 3
        assert all("labelIds where trainIds are expected" in fault.remedy for fault in report.faults)
    else:
        assert not report.faults
        assert [part.classes_seen for part in report.parts] == [19, 19]
        assert report.parts[1].ignore_share == pytest.approx((label_ids < 7).mean())
