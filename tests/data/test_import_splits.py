from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fpl.cli.splits import splits_app
from fpl.data.spec import SPECS, DatasetSpec, get_spec
from fpl.data.splits import (
    Published,
    Split,
    import_order,
    import_split,
    make,
    make_split,
    published,
    read_split,
    split_folder,
    survey,
    write_split,
)
from fpl.data.splits.faults import count_faults
from fpl.errors import FplError
from fpl.text import table
from tests.data.conftest import make_split_of, write_camvid
from tests.data.published_trees import city_tree, dialect, sha, voc_tree

CITY = ["jena_000078_000019", "ulm_000003_000019", "zurich_000100_000019"]
OFFICIAL = "leftImg8bit/train/{0}/{1}_leftImg8bit.png gtFine/train/{0}/{1}_gtFine_labelTrainIds.png"


@pytest.fixture(autouse=True)
def any_count(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("camvid", "cityscapes", "voc"):
        monkeypatch.setitem(SPECS, name, dataclasses.replace(SPECS[name], counts=None, subset_counts={}))


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("dataset", "ids", "text"),
    [
        ("cityscapes", CITY, "\n".join(CITY)),
        ("cityscapes", CITY, "\n".join(dialect(CITY)) + "\n"),
        ("cityscapes", CITY, "\r\n".join(OFFICIAL.format(i.split("_")[0], i) for i in CITY)),
        ("cityscapes", CITY, "\ufeff" + "\n".join(f"{i}_leftImg8bit" for i in CITY)),
        ("cityscapes", CITY, "\n\n".join(f"{i}.png " for i in CITY) + "\n# end"),
        ("voc", ["2007_000032", "2011_003256"], "2007_000032\r\n2011_003256"),
        (
            "voc",
            ["2007_000032", "2011_003256"],
            "JPEGImages/2007_000032.jpg SegmentationClass/2007_000032.png\n"
            "/JPEGImages/2011_003256.jpg\t/SegmentationClassAug/2011_003256.png\n",
        ),
    ],
)
def test_r8_r9_dialects_give_the_same_ids_and_a_record(tmp_path: Path, dataset: str, ids: list[str], text: str) -> None:
    labeled = write(tmp_path / "a" / "b" / "lists" / "labeled.txt", text)
    unlabeled = write(tmp_path / "unlabeled.txt", "aachen_000000_000019")
    imported = import_split(get_spec(dataset), labeled, unlabeled, "imported", str(len(ids)))
    assert imported.split.labeled == tuple(ids)
    folder = split_folder(tmp_path / "splits", dataset, "imported", str(len(ids)))
    write_split(imported.split, folder, imported.origin)
    record = json.loads((folder / "split.json").read_text())
    assert record["origin"]["labeled"]["file"] == "b/lists/labeled.txt"
    assert record["origin"]["labeled"]["file_digest"] == published.file_digest(text.encode())
    split = read_split(tmp_path / "splits", dataset, "imported", str(len(ids)))
    assert split == imported.split
    # Writing without an origin keeps the one on record.
    write_split(split, folder)
    assert json.loads((folder / "split.json").read_text()) == record


def test_published_leak_is_repaired_and_recorded_any_other_only_on_request(tmp_path: Path) -> None:
    spec = get_spec("voc")
    labeled = write(tmp_path / "l.txt", "2007_000733\n2008_004822")
    unlabeled = write(tmp_path / "u.txt", "2007_000032\n2008_004822\n")
    imported = import_split(spec, labeled, unlabeled, "pseudoseg-1464", "92")
    assert imported.split.unlabeled == ("2007_000032",)
    assert imported.dropped == ("2008_004822",)
    assert imported.split.repairs == ("drop-from-unlabeled",)
    assert imported.origin["dropped_from_unlabeled"] == ["2008_004822"]
    for family, fraction in (("pseudoseg-1464", "183"), ("imported", "2")):
        with pytest.raises(FplError, match="1 ids are labeled and unlabeled at once: 2008_004822") as caught:
            import_split(spec, labeled, unlabeled, family, fraction)
        assert "--repair drop-from-unlabeled" in caught.value.hint
    imported = import_split(spec, labeled, unlabeled, "imported", "2", repairs=["drop-from-unlabeled"])
    assert imported.dropped == ("2008_004822",)
    with pytest.raises(FplError, match=r"unknown repair 'mend'\n.*allowed: drop-from-unlabeled"):
        import_split(spec, labeled, unlabeled, "imported", "2", repairs=["mend"])


def voc(tmp_path: Path) -> tuple[DatasetSpec, Path]:
    ids = [f"2007_{n:06d}" for n in range(30)]
    return get_spec("voc"), voc_tree(tmp_path / "VOC2012", ids[:20], ids[:14], ids[20:])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("2007_000032 -1", "'-1' is no label of 2007_000032"),  # VOC's lists of a class: the image does not show it
        ("2007_000032 1", "'1' is no label of 2007_000032"),
        ("JPEGImages/2007_000032.jpg SegmentationClass/2011_003256.png", "is no label of 2007_000032"),
        ("2007_000032.jpg\t2007_0000321.png", "is no label of 2007_000032"),
    ],
)
def test_a_column_that_is_no_label_of_its_image_is_refused(tmp_path: Path, line: str, words: str) -> None:
    labeled, unlabeled = write(tmp_path / "l.txt", f"2007_000033\n{line}"), write(tmp_path / "u.txt", "2011_003256")
    with pytest.raises(FplError, match=words) as caught:
        import_split(get_spec("voc"), labeled, unlabeled, "imported", "2")
    assert str(labeled) in caught.value.where and "ImageSets/Segmentation" in caught.value.hint


@pytest.mark.parametrize(
    ("labeled", "total", "fraction", "fits"),
    [
        (40, 320, "1/8", True),
        (41, 320, "1/8", True),
        (60, 320, "1/8", False),
        (20, 320, "1/8", False),
        (100, 2975, "1/30", True),
        (99, 2975, "1/30", True),
        (1323, 10582, "1/8", True),
        (92, 1464, "1/16", True),
        (183, 1464, "1/16", False),
        (1, 3, "1/4", True),
        (60, 320, "60", True),
    ],
)
def test_lists_from_elsewhere_are_the_share_that_they_are_called_by(
    labeled: int, total: int, fraction: str, fits: bool
) -> None:
    ids = tuple(f"aachen_{number:06d}_000019" for number in range(total))
    split = Split("cityscapes", "imported", fraction, ids[:labeled], ids[labeled:])
    said = [fault for fault in count_faults(split, get_spec("cityscapes"), "x", {}, None) if "are not 1/" in fault.what]
    assert bool(said) is not fits
    assert fits or f"--fraction {labeled}" in said[0].hint


def test_unlabeled_images_follow_from_the_pool(tmp_path: Path) -> None:
    spec, root = voc(tmp_path)
    labeled = write(tmp_path / "l.txt", "2007_000012\n2007_000003")
    for family, pool in (("pseudoseg-1464", 14), ("pseudoseg-10582", 20), ("imported", 20)):
        fraction = "2" if family == "imported" else "92"
        split = import_split(spec, labeled, None, family, fraction, root=root).split
        wanted = [n for n in range(pool) if n not in (3, 12)]
        assert split.unlabeled == tuple(f"2007_{n:06d}" for n in wanted)
        with pytest.raises(FplError, match="give --data-root, or the unlabeled list"):
            import_split(spec, labeled, None, family, fraction)
    with pytest.raises(FplError, match=r"1 labeled ids are none of the 14 clean training images: 2007_000015"):
        import_split(spec, write(tmp_path / "l.txt", "2007_000015"), None, "pseudoseg-1464", "92", root=root)
    # A list that is given must be the one that follows.
    write(tmp_path / "l.txt", "2007_000001")
    swapped = [f"2007_{n:06d}" for n in (2, 0, *range(3, 14))]
    unlabeled = write(tmp_path / "u.txt", "\n".join(swapped))
    with pytest.raises(FplError, match="not what the rule of pseudoseg-1464 gives: the same images in another order"):
        import_split(spec, tmp_path / "l.txt", unlabeled, "pseudoseg-1464", "92", root=root)
    write(unlabeled, "\n".join(swapped[1:]))
    with pytest.raises(FplError, match=r"not what the rule of pseudoseg-1464 gives: pseudoseg-1464 \w{16}/\w{16} inst"):
        import_split(spec, tmp_path / "l.txt", unlabeled, "pseudoseg-1464", "92", root=root)


def test_each_fault_of_an_import_has_its_own_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, root = voc(tmp_path)
    labeled, unlabeled = tmp_path / "l.txt", tmp_path / "u.txt"

    def fails(text: str, rest: str, fraction: str = "2", family: str = "imported", dataset: str = "voc") -> str:
        write(labeled, text), write(unlabeled, rest)
        with pytest.raises(FplError) as caught:
            import_split(get_spec(dataset), labeled, unlabeled, family, fraction, root=root)
        assert caught.value.hint
        return caught.value.message

    assert f"{labeled}: ids that stand twice: a" in fails("a\nb\na", "c")
    assert f"{unlabeled}: ids that stand twice: c" in fails("a\nb", "c\nc")
    assert "the split has no labeled image" in fails("\n", "c")
    assert "1 validation ids are in the training lists: 2007_000020" in fails("2007_000001", "2007_000020")
    assert "1 of 2 training images are not on disk: 2007_000099" in fails("2007_000001", "2007_000099")
    assert "unknown split family 'u2p'" in (message := fails("a", "b", family="u2p")) and "'u2pl'" in message
    assert "split family u2pl is not for camvid" in fails("a", "b", family="u2pl", dataset="camvid")
    assert "split family pseudoseg-1464 has no 1/16" in fails("a", "b", "1/16", "pseudoseg-1464")
    assert "fraction '0.5'" in fails("a", "b", "0.5")
    monkeypatch.setitem(SPECS, "voc", dataclasses.replace(SPECS["voc"], counts={"train": 20, "val": 10}))
    some = [f"2007_{n:06d}" for n in range(20)]
    message = fails("\n".join(some[:2]), "\n".join(some[2:]), "1/4", "unimatch")
    assert "2 labeled + 18 unlabeled ids instead of 5 + 15 (1/4 of 20 training images)" in message
    assert "github.com/LiheYoung/UniMatch" in message and "fpl splits import voc LABELED UNLABELED" in message
    with pytest.raises(FplError, match=r"nowhere.txt: the list cannot be read"):
        import_split(spec, tmp_path / "nowhere.txt", None, "imported", "2", root=root)


def test_lists_under_the_name_of_a_rule_must_be_its_lists(tmp_path: Path) -> None:
    spec = get_spec("camvid")
    root = write_camvid(tmp_path / "camvid", "abcdef")
    labeled, unlabeled = write(tmp_path / "l", "a\nd"), write(tmp_path / "u", "b\nc\ne\nf")
    good = import_split(spec, labeled, unlabeled, "every-nth", "1/3", root=root)
    assert good.split == make_split(spec, root, "every-nth", "1/3")
    with pytest.raises(FplError, match=r"not what the rule of every-nth gives: every-nth .* instead of every-nth"):
        import_split(spec, write(labeled, "a\ne"), write(unlabeled, "b\nc\nd\nf"), "every-nth", "1/3", root=root)


def test_order_is_imported_once_and_guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = {"cityscapes": sha(dialect(CITY[::-1]))}
    monkeypatch.setattr(published, "ORDERS", orders)
    monkeypatch.setattr(make, "ORDERS", orders)
    monkeypatch.setitem(SPECS, "cityscapes", dataclasses.replace(SPECS["cityscapes"], counts={"train": 3, "val": 0}))
    monkeypatch.setattr(published, "PUBLISHED", {("cityscapes", "every-nth", "1/2"): Published("0" * 16, "0" * 16)})
    spec, root, splits = get_spec("cityscapes"), city_tree(tmp_path / "cityscapes", CITY, ()), tmp_path / "splits"
    with pytest.raises(FplError, match="order of the training list is not known") as caught:
        make_split(spec, root, "every-nth", "1/3", splits_root=splits)
    assert "fpl splits import-order cityscapes train.txt" in caught.value.hint and "TorchSemiSeg" in caught.value.hint
    with pytest.raises(FplError, match="not the published training list: 2 ids instead of 3, digest"):
        import_order(spec, write(tmp_path / "train.txt", "\n".join(dialect(CITY[:2]))), splits)
    file = write(tmp_path / "train.txt", "\r\n".join(dialect(CITY[::-1])))
    assert import_order(spec, file, splits) == CITY[::-1]
    assert make_split(spec, root, "every-nth", "1/3", splits_root=splits).labeled == (CITY[2],)
    assert json.loads((splits / "cityscapes" / "order.json").read_text())["file"].endswith("train.txt")
    # What the rule gives is checked against the known hashes.
    with pytest.raises(FplError, match=r"not the published lists of cityscapes every-nth 1/2: .* instead of 0000"):
        make_split(spec, root, "every-nth", "1/2", splits_root=splits)
    ulm = root / "leftImg8bit" / "train" / "ulm"
    (ulm / "ulm_000003_000019_leftImg8bit.png").rename(ulm / "ulm_000004_000019_leftImg8bit.png")
    with pytest.raises(FplError, match=r"1 are missing: ulm_000003_000019; 1 are not in the list: ulm_000004_000019"):
        make_split(spec, root, "every-nth", "1/3", splits_root=splits)
    (splits / "cityscapes" / "order.txt").write_text("\n".join(CITY))
    with pytest.raises(FplError, match="the imported order was changed"):
        make_split(spec, root, "every-nth", "1/3", splits_root=splits)
    with pytest.raises(FplError, match="the training list of camvid has an order of its own"):
        import_order(get_spec("camvid"), file, splits)


def test_survey_reports_what_cannot_be_read_and_what_no_rule_gives(tmp_path: Path) -> None:
    splits = tmp_path / "splits"
    write_camvid(tmp_path / "camvid", "abcd", "v")
    for family, name in (("every-nth", "1-2"), ("every-nth", "half"), ("every-n", "1-2"), ("u2pl", "1-2")):
        write_split(make_split_of("ac", "bd"), splits / "camvid" / family / name)
    write_split(make_split_of("ab", "cd"), splits / "camvid" / "every-nth" / "1-2.1")
    write_split(make_split_of("ab", "cd"), splits / "camvit" / "every-nth" / "1-2")
    (splits / "camvid" / "every-nth" / "1-8").mkdir()
    (splits / "camvid" / ".hidden" / "1-8").mkdir(parents=True)
    findings = {str(each.folder.relative_to(splits)): each for each in survey(splits, data_root=tmp_path)}
    faults = {name: [fault.message for fault in each.faults] for name, each in findings.items()}
    assert faults.pop("camvid/every-nth/1-2") == []
    for name, text in {
        "camvid/every-nth/half": "folder name 'half' is no fraction",
        "camvid/every-nth/1-2.1": "not what the rule of every-nth gives",
        "camvid/every-nth/1-8": "no split file labeled.txt for fraction 1/8",
        "camvid/every-n/1-2": "unknown split family 'every-n'",
        "camvid/u2pl/1-2": "split family u2pl is not for camvid",
        "camvit/every-nth/1-2": "unknown data set 'camvit'",
    }.items():
        (message,) = faults.pop(name)
        assert text in message and str(splits / name) in message and "->" in message
    assert not faults
    # Without the data, the lists alone are judged.
    assert [each.data for each in survey(splits, "camvid", "every-nth", "1/2")] == [None, None]
    printed = table([each.row for each in findings.values()])
    assert len({len(line.split("  ")[0]) for line in printed.splitlines()}) <= 2
    assert "1 wrong" in printed and printed.splitlines()[0].startswith("data set  family     fraction  index  labeled")


def test_identity_is_family_and_both_digests() -> None:
    one = make_split_of("ab", "cd")
    assert one.identity == f"every-nth {sha(['a', 'b'])}/{sha(['c', 'd'])}"
    assert one.identity != dataclasses.replace(one, family="imported").identity
    assert one.identity != Split("camvid", "every-nth", "1/4", ("a", "c"), ("b", "d")).identity


def test_table_aligns_numbers_to_the_right() -> None:
    assert table([]) == ""
    rows = [{"name": "a", "n": "5", "x": "-"}, {"name": "long", "n": "10", "x": "-"}]
    assert table(rows) == "name   n  x\na      5  -\nlong  10  -"


def test_an_import_of_one_end_is_warned_of_at_once(tmp_path: Path) -> None:
    ids = "abcdefghijklmnopqrst"
    write_camvid(tmp_path / "camvid", ids, "v")
    where = ["--splits", str(tmp_path / "splits"), "--data-root", str(tmp_path)]
    for labeled, warned in ((ids[:10], True), (ids[::2], False)):
        (tmp_path / "l").write_text("\n".join(labeled))
        result = CliRunner().invoke(
            splits_app,
            ["import", "camvid", str(tmp_path / "l"), "--fraction", "10", "--index", str(int(warned)), *where],
        )
        assert result.exit_code == 0, result.output
        assert ("all 10 labeled images are lines 1 to 10 of the 20" in result.output) == warned
