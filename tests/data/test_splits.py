from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fpl.data.spec import SPECS, get_spec
from fpl.data.splits import (
    digest_ids,
    every_nth,
    make_split,
    read_split,
    resolve_split,
    split_folder,
    survey,
    write_split,
)
from fpl.data.splits.faults import set_faults
from fpl.data.splits.store import load_split, stored_faults
from fpl.errors import FplError
from tests.data.conftest import make_config, make_split_of, write_camvid

Writer = Callable[..., Path]
REPAIR = json.dumps({"repairs": ["drop-from-unlabeled"], "counts": {"labeled": 2, "unlabeled": 1}})


@pytest.fixture(autouse=True)
def any_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SPECS, "camvid", dataclasses.replace(SPECS["camvid"], counts=None))


def read(splits: Path, fraction: str = "1/4"):
    return read_split(splits, "camvid", "every-nth", fraction)


def test_published_rule() -> None:
    labeled, unlabeled = every_nth(list("abcdefg"), 3)
    assert labeled == ("a", "d", "g")
    assert unlabeled == ("b", "c", "e", "f")
    for n, count in ((16, 186), (8, 372), (4, 744), (2, 1488), (32, 93)):
        labeled, unlabeled = every_nth([str(number) for number in range(2975)], n)
        assert (len(labeled), len(unlabeled)) == (count, 2975 - count)


def test_digest_is_sha256_of_lines_joined_by_line_feed() -> None:
    assert digest_ids(("a", "b")) == "7e18f737311b2dc3"


@pytest.mark.parametrize(
    "pair", [(["a", "b"], ["b", "c"], "b"), (["x", "2008_004822"], ["2008_004822"], "2008_004822")]
)
def test_r1_overlap_is_an_error_that_names_the_ids(tmp_path: Path, write_lists: Writer, pair) -> None:
    labeled, unlabeled, shared = pair
    write_lists(tmp_path, "\n".join(labeled), "\n".join(unlabeled))
    with pytest.raises(FplError) as caught:
        read(tmp_path)
    assert f"1 ids are labeled and unlabeled at once: {shared}" in caught.value.message
    assert "drop-from-unlabeled" in caught.value.hint


def test_r1_recorded_repair_is_applied_and_part_of_the_digest(tmp_path: Path, write_lists: Writer) -> None:
    write_lists(tmp_path, "a\nb\n", "b\nc\n", REPAIR)
    split = read(tmp_path)
    assert (split.labeled, split.unlabeled, split.repairs) == (("a", "b"), ("c",), ("drop-from-unlabeled",))
    assert split.unlabeled_digest == digest_ids(["c"]) != digest_ids(["b", "c"])


def test_unknown_repair(tmp_path: Path, write_lists: Writer) -> None:
    write_lists(tmp_path, "a\n", "c\n", '{"repairs": ["drop"]}')
    with pytest.raises(FplError, match=r"unknown repairs \['drop'\]\n.*allowed: .*drop-from-unlabeled"):
        read(tmp_path)


def test_r2_lists_of_equal_length_have_different_digests() -> None:
    one, other = make_split_of("abcd", "efgh"), make_split_of("abce", "dfgh")
    assert one.labeled_digest != other.labeled_digest
    assert one.unlabeled_digest != other.unlabeled_digest
    assert len(one.labeled_digest) == 16


def test_r3_written_twice_byte_identical_and_other_fraction_differs(tmp_path: Path, city: Path) -> None:
    spec = get_spec("synthetic_city")
    split = make_split(spec, city, "every-nth", "1/4")
    folder = split_folder(tmp_path, spec.name, "every-nth", "1/4")
    assert folder == tmp_path / "synthetic_city" / "every-nth" / "1-4"
    first = [path.read_bytes() for path in write_split(split, folder)]
    second = [path.read_bytes() for path in write_split(split, folder)]
    assert first == second
    assert sorted(path.name for path in folder.iterdir()) == ["labeled.txt", "split.json", "unlabeled.txt"]
    assert make_split(spec, city, "every-nth", "1/8").labeled_digest != split.labeled_digest
    record = json.loads(first[2])
    assert record["counts"] == {"labeled": 4, "unlabeled": 12}
    assert record["labeled_digest"] == split.labeled_digest
    assert read_split(tmp_path, spec.name, "every-nth", "1/4") == split


def test_r5_the_splits_of_a_fraction_share_no_labeled_image(tmp_path: Path, city: Path) -> None:
    spec = get_spec("synthetic_city")
    splits = [make_split(spec, city, "every-nth", "1/4", index) for index in range(4)]
    labeled = [image_id for split in splits for image_id in split.labeled]
    assert sorted(labeled) == sorted(spec.list_ids(city, "train"))
    for index, split in enumerate(splits):
        folder = split_folder(tmp_path, spec.name, "every-nth", "1/4", index)
        write_split(split, folder)
        assert folder.name == ("1-4" if index == 0 else f"1-4.{index}")
        assert read_split(tmp_path, spec.name, "every-nth", "1/4", index) == split
    with pytest.raises(FplError, match="no split 4 of 1/4"):
        make_split(spec, city, "every-nth", "1/4", 4)
    with pytest.raises(FplError, match="--fraction 1/8 --index 2"):
        read_split(tmp_path, spec.name, "every-nth", "1/8", 2)


def test_another_split_is_not_overwritten(tmp_path: Path) -> None:
    write_split(make_split_of("ab", "cd"), tmp_path)
    with pytest.raises(FplError, match="another split stands here"):
        write_split(make_split_of("ac", "bd"), tmp_path)
    assert (tmp_path / "labeled.txt").read_text() == "a\nb\n"


def test_r4_order_does_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    write_camvid(tmp_path / "camvid", [f"i{number:02d}" for number in range(20)], ["v"])
    code = (
        "import sys, dataclasses; from pathlib import Path; from fpl.data.spec import get_spec\n"
        "from fpl.data.splits import make_split, write_split\n"
        "spec = dataclasses.replace(get_spec('camvid'), counts=None)\n"
        "write_split(make_split(spec, Path(sys.argv[1]), 'every-nth', '1/4'), Path(sys.argv[2]))\n"
    )
    processes = []
    for seed in ("0", "1"):
        arguments = [sys.executable, "-c", code, str(tmp_path / "camvid"), str(tmp_path / seed)]
        processes.append(subprocess.Popen(arguments, env={**os.environ, "PYTHONHASHSEED": seed}))
    assert [process.wait() for process in processes] == [0, 0]
    for name in ("labeled.txt", "unlabeled.txt", "split.json"):
        assert (tmp_path / "0" / name).read_bytes() == (tmp_path / "1" / name).read_bytes()


def test_r7_missing_fraction_lists_those_present_and_the_command(tmp_path: Path, write_lists: Writer) -> None:
    for fraction in ("1/16", "1/8"):
        write_lists(tmp_path, "a\n", "b\n", fraction=fraction)
    with pytest.raises(FplError) as caught:
        read(tmp_path, "1/32")
    message = caught.value.message
    assert str(tmp_path / "camvid" / "every-nth" / "1-32" / "labeled.txt") in message
    assert "fractions present: 1/8, 1/16" in message
    assert "fpl splits make camvid --fraction 1/32 --data-root DIR" in message
    with pytest.raises(FplError, match="fractions present: none"):
        read(tmp_path / "nowhere", "1/32")


@pytest.mark.parametrize("with_record", [True, False])
def test_r7_counts_are_checked(
    tmp_path: Path, write_lists: Writer, monkeypatch: pytest.MonkeyPatch, with_record: bool
) -> None:
    monkeypatch.setitem(SPECS, "camvid", dataclasses.replace(SPECS["camvid"], counts={"train": 2975, "val": 1}))
    labeled, unlabeled = every_nth([f"i{number}" for number in range(2975)], 32)
    record = json.dumps({"counts": {"labeled": 93, "unlabeled": 2882}}) if with_record else None
    write_lists(tmp_path / "good", "\n".join(labeled), "\n".join(unlabeled), record, "1/32")
    assert len(read(tmp_path / "good", "1/32").labeled) == 93
    write_lists(tmp_path / "bad", "\n".join(labeled), "\n".join(unlabeled[:-2]), record, "1/32")
    with pytest.raises(FplError, match=r"93 labeled \+ 2880 unlabeled ids instead of 93 \+ 2882"):
        read(tmp_path / "bad", "1/32")


def test_changed_list_is_noticed(tmp_path: Path) -> None:
    folder = split_folder(tmp_path, "camvid", "every-nth", "1/4")
    write_split(make_split_of("ab", "cd"), folder)
    (folder / "labeled.txt").write_text("b\na\n")
    with pytest.raises(FplError, match=r"labeled.txt: the list has digest .* was written for"):
        read(tmp_path)


def test_r8_windows_ends_marks_blanks_and_comments(tmp_path: Path, write_lists: Writer) -> None:
    write_lists(tmp_path, "\ufeff# labeled\r\n\r\na  \r\n  b\t\r\n", "c\n# end\nd")
    split = read(tmp_path)
    assert (split.labeled, split.unlabeled) == (("a", "b"), ("c", "d"))


def test_duplicates_and_empty_lists(tmp_path: Path, write_lists: Writer) -> None:
    write_lists(tmp_path / "1", "a\nb\na\n", "c\n")
    with pytest.raises(FplError, match=r"labeled.txt: ids that stand twice: a"):
        read(tmp_path / "1")
    write_lists(tmp_path / "2", "\n", "c\n")
    with pytest.raises(FplError, match="no labeled image"):
        read(tmp_path / "2")


def test_validation_ids_in_training(tmp_path: Path, write_lists: Writer) -> None:
    write_lists(tmp_path, "a\nb\n", "c\n")
    (fault,) = stored_faults(load_split(tmp_path, "camvid", "every-nth", "1/4"), validation_ids=["c", "v"])
    assert "1 validation ids are in the training lists: c" in fault.what


def test_ids_not_on_disk(tmp_path: Path) -> None:
    root = write_camvid(tmp_path, ["a", "b"])
    (fault,) = set_faults(make_split_of("ax", "by"), root=root)
    assert "2 of 4 training images are not on disk: x, y" in fault.what


def test_unknown_family_and_fraction(tmp_path: Path, city: Path) -> None:
    with pytest.raises(FplError, match=r"unknown split family 'every-n'\n.*did you mean 'every-nth'\?"):
        read_split(tmp_path, "camvid", "every-n", "1/4")
    with pytest.raises(FplError, match="fraction '92' is not of the form 1/n"):
        make_split(get_spec("synthetic_city"), city, "every-nth", "92")


def test_wrong_number_of_training_images(tmp_path: Path) -> None:
    spec = dataclasses.replace(SPECS["camvid"], counts={"train": 367, "val": 101})
    with pytest.raises(FplError, match="camvid has 2 training images instead of 367"):
        make_split(spec, write_camvid(tmp_path, ["a", "b"]), "every-nth", "1/4")


def test_resolve_fills_digests_and_refuses_other_lists(tmp_path: Path) -> None:
    split = make_split_of("ab", "cd")
    write_split(split, split_folder(tmp_path, "camvid", "every-nth", "1/4"))
    config, found = resolve_split(make_config(), tmp_path)
    assert found == split
    assert config.data.split.labeled == split.labeled_digest
    assert config.data.split.unlabeled == split.unlabeled_digest
    assert resolve_split(config, tmp_path)[0] == config
    pinned = make_config(split={"fraction": "1/4", "labeled": "0" * 16})
    with pytest.raises(FplError) as caught:
        resolve_split(pinned, tmp_path)
    assert "0" * 16 in caught.value.message and split.labeled_digest in caught.value.message
    with pytest.raises(FplError, match=r"data.num_classes = 5, but camvid has 11"):
        resolve_split(make_config(num_classes=5), tmp_path)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        (None, "counts is missing; labeled_digest is missing; unlabeled_digest is missing"),
        ({"labeled": 1}, "counts is missing"),
        ({"index": "x", "labeled": {"count": "many"}}, "index is 'x', which is no whole number"),
        ({"counts": {"labeled": 1, "unlabeled": True}}, "counts is {'labeled': 1, 'unlabeled': True}, where"),
        ({"counts": 3}, "counts is 3, where"),
        ({"unlabeled_digest": 5}, "unlabeled_digest is 5, which is no text"),
        ({"labeled_digest": None}, "labeled_digest is None"),
    ],
)
def test_a_record_that_lost_something_is_a_fault_of_check_and_train(
    tmp_path: Path, changes: dict[str, object] | None, what: str
) -> None:
    split = dataclasses.replace(make_split_of("abc", "defghijkl", "synthetic_city"), fraction="1/4")
    folder = split_folder(tmp_path, "synthetic_city", "every-nth", "1/4")
    path = write_split(split, folder)[2]
    # Of a drawn set of 12 images, whose size nobody knows without its root.
    read_split(tmp_path, "synthetic_city", "every-nth", "1/4")
    whole = json.loads(path.read_text())
    lost = changes is None or not changes.keys() & {"counts", "unlabeled_digest", "labeled_digest"}
    path.write_text(json.dumps((changes or {}) if lost else {**whole, **(changes or {})}))
    with pytest.raises(FplError) as caught:
        read_split(tmp_path, "synthetic_city", "every-nth", "1/4")
    assert what in caught.value.what and caught.value.where == str(path) and "instead of" not in caught.value.what
    (finding,) = survey(tmp_path)
    assert [fault.message for fault in finding.faults] == [caught.value.message] and "splits make" in caught.value.hint
    path.unlink()
    read_split(tmp_path, "synthetic_city", "every-nth", "1/4")
