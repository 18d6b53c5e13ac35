"""Names of files and ids, from the disk to a list and back, and faults of lists with their lines."""

from __future__ import annotations

import io
import os
import struct
import unicodedata
import zlib
from math import comb
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from fpl.cli.main import main
from fpl.cli.splits import splits_app
from fpl.config.identity import run_id
from fpl.data.check import check_dataset
from fpl.data.images import Images
from fpl.data.names import LONGEST, bounded, check_utf8
from fpl.data.preflight import check_data
from fpl.data.read import read_header, read_image, read_stored, read_upright
from fpl.data.spec import get_spec
from fpl.data.splits import import_split, split_folder, write_split
from fpl.data.splits.coverage import coverage, missed, within
from fpl.data.splits.store import load_split
from fpl.errors import FplError
from fpl.files import visible
from fpl.store.remote import folder_of
from fpl.train.predict import check_outputs, outputs_of
from tests.data.conftest import make_config, make_split_of, save, write_camvid

CAMVID = get_spec("camvid")
COMPOSED, DECOMPOSED = (unicodedata.normalize(form, "straße_ä") for form in ("NFC", "NFD"))


@pytest.mark.parametrize("image_id", ["a%20b", "-a", "a#b", COMPOSED, "日本", "a.b", "a,b", "a;b", "a'b"])
def test_r62_lists_read_back_to_the_same_ids(tmp_path: Path, image_id: str) -> None:
    split = make_split_of([image_id, "c"], ["d"])
    write_split(split, split_folder(tmp_path, "camvid", "every-nth", "1/4"))
    path = tmp_path / "camvid" / "every-nth" / "1-4" / "labeled.txt"
    assert import_split(CAMVID, path, path.with_name("unlabeled.txt"), "imported", "1/2").split.labeled == split.labeled


@pytest.mark.parametrize(
    "image_id",
    ["a b", "#a", "a\tb", " a", "a\nb", "a\rb", "a\u2028b", "x/a", "x\\a", "a.png", "a.JPG", "", DECOMPOSED, "a\udcdf"],
)
def test_r62_names_that_would_read_back_as_others_are_refused_when_written(tmp_path: Path, image_id: str) -> None:
    folder = split_folder(tmp_path, "camvid", "every-nth", "1/4")
    with pytest.raises(FplError, match="1 names cannot stand in a list"):
        write_split(make_split_of(["c", image_id], ["d"]), folder)
    assert not folder.exists()


def test_a_file_name_with_a_blank_is_no_id(tmp_path: Path) -> None:
    (tmp_path / "l").write_text("a\nmy first.png\nmy second.JPG\nb.png b_label.png\n")
    (tmp_path / "u").write_text("c")
    with pytest.raises(FplError, match=r"(?s)2 lines are no ids: line 2: .*my first.*line 3: .*my second"):
        import_split(CAMVID, tmp_path / "l", tmp_path / "u", "imported", "2")


LONG = {"a" * 256: "a name of 256 bytes", "é" * 2500: "a name of 5,000 bytes"}


def test_ids_that_no_file_can_be_named_by_are_refused_with_their_lines(tmp_path: Path) -> None:
    root = write_camvid(tmp_path / "camvid", "abcd", "v")
    long, longer = LONG
    (tmp_path / "l").write_text(f"a\nb\0c\n{long}.png\n# comment\n/x/{longer}.png\n")
    (tmp_path / "u").write_text("c\nd\n")
    for given in ({"root": root}, {}):
        with pytest.raises(FplError, match="3 lines are no ids") as caught:
            import_split(CAMVID, tmp_path / "l", tmp_path / "u", "imported", "4", **given)
        assert caught.value.where == str(tmp_path / "l") and "up to 255 bytes and no NUL" in caught.value.hint
        for text in ("line 2: a name with a NUL character: 'b\\x00c'", *LONG.values(), "line 3: ", "line 5: "):
            assert text in caught.value.what
        assert len(caught.value.message) < 600
    with pytest.raises(FplError, match=r"line 2: a name with a NUL character"):
        import_split(
            CAMVID, tmp_path / "u", (tmp_path / "n").write_text("a\nb\0\n") and tmp_path / "n", "imported", "4"
        )
    folder = split_folder(tmp_path / "splits", "camvid", "every-nth", "1/4")
    folder.mkdir(parents=True)
    (folder / "labeled.txt").write_text("a\nb\0\n")
    (folder / "unlabeled.txt").write_text("c\n")
    with pytest.raises(FplError, match="a name with a NUL character"):
        load_split(tmp_path / "splits", "camvid", "every-nth", "1/4")
    (root / "train.txt").write_text(f"a\n{long}\n")
    with pytest.raises(FplError, match="line 2: a name of 256 bytes, more than 255"):
        CAMVID.list_ids(root, "train")
    assert "a name of 256 bytes" in check_dataset(CAMVID, root, workers=1).faults[0].what
    with pytest.raises(FplError, match="1 names cannot stand in a list"):
        write_split(make_split_of(["c", "a\0"], ["d"]), tmp_path / "other")


def test_an_id_that_is_too_long_with_its_ending_is_not_on_disk(tmp_path: Path) -> None:
    root = write_camvid(tmp_path / "camvid", "abcd", "v")
    with pytest.raises(FplError, match="is not on disk"):
        CAMVID.image_path(root, "train", "a" * 253)
    assert not CAMVID.has_label(root, "train", "a" * 253)
    with pytest.raises(FplError, match="1 of 3 training images are not on disk"):
        check_data(make_config(), make_split_of(["a", "b" * 253], ["c"]), Images(CAMVID, root, "train"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["data", "check", "camvid", "--data-root"],
        ["data", "draw", "synthetic_city", "--data-root"],
        ["splits", "list", "--splits"],
        ["results", "--out"],
        ["results", "--csv"],
        ["eval", "run", "--out"],
        ["splits", "import", "camvid", "--fraction", "2"],
        ["predict"],
    ],
)
def test_names_that_are_too_long_are_refused_where_options_give_them(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    more = {"predict": [f"{'y' * 5000}.pt", "a", "b"]}.get(arguments[-1], ["x" * 5000])
    monkeypatch.setattr("sys.argv", ["fpl", *arguments, *more])
    with pytest.raises(SystemExit) as end:
        main()
    told = capsys.readouterr().err
    assert end.value.code == 2
    assert "bytes, more than 255" in told and "up to 255 bytes and no NUL" in told and len(told) < 500


def test_a_store_whose_name_holds_a_nul_is_refused() -> None:
    for name in ("a\0b", "s3://a\0b/c"):
        with pytest.raises(FplError, match="a name with a NUL character"):
            folder_of(name)


ESCAPES = ("a\x1b[2Jb", "c\u202ed", "e\u2066f", "g\x9bh")


def test_no_code_of_a_terminal_gets_out_of_a_list_or_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_camvid(tmp_path / "camvid", [*ESCAPES, "line\nnothing wrong", "a", "b"], "v")
    save(root / "trainannot" / f"{ESCAPES[0]}.png", np.full((40, 50), 19))
    save(root / "trainannot" / "line\nnothing wrong.png", np.full((40, 51), 3))
    for image_id in ESCAPES[1:]:
        (root / "train" / f"{image_id}.png").write_bytes(b"no image")
    folder = split_folder(tmp_path / "splits", "camvid", "imported", "1/2")
    folder.mkdir(parents=True)
    (folder / "labeled.txt").write_text("\n".join([*ESCAPES, *ESCAPES, "not\x1b[31mthere"]))
    (folder / "unlabeled.txt").write_text("\n".join([*ESCAPES, "a"]))
    where = ["--data-root", str(tmp_path), "--splits", str(tmp_path / "splits")]
    lists = [str(folder / "labeled.txt"), str(folder / "unlabeled.txt")]
    for arguments in (
        ["data", "check", "camvid", "--workers", "1", *where[:2]],
        ["splits", "check", *where],
        ["splits", "import", "camvid", *lists, "--fraction", "2", *where],
        ["splits", "import", "camvid", str(tmp_path / ESCAPES[0]), "--fraction", "2", *where],
    ):
        monkeypatch.setattr("sys.argv", ["fpl", *arguments])
        with pytest.raises(SystemExit):
            main()
        told = "".join(capsys.readouterr())
        assert "\N{REPLACEMENT CHARACTER}" in told
        assert all(line.isprintable() for line in told.split("\n")), told
        assert "nothing wrong" not in [line.strip()[:13] for line in told.split("\n")]


def test_disks_with_other_forms_and_capitals(tmp_path: Path) -> None:
    root = write_camvid(tmp_path / "camvid", [DECOMPOSED, "b"], ["v"])
    for folder in ("train", "trainannot"):
        (root / folder / "b.png").rename(root / folder / "b.PNG")
    assert sorted(CAMVID.list_ids(root, "train")) == sorted([COMPOSED, "b"])
    images = Images(CAMVID, root, "train")
    for image_id in (COMPOSED, "b"):
        assert images.image(image_id).shape == (40, 50, 3) and images.label(image_id).shape == (40, 50)
    split = make_split_of([COMPOSED], ["b"])
    folder = split_folder(tmp_path / "splits", "camvid", "every-nth", "1/2")
    write_split(split, folder)
    (folder / "labeled.txt").write_text(f"{DECOMPOSED}\n")
    assert load_split(tmp_path / "splits", "camvid", "every-nth", "1/2").split.labeled == (COMPOSED,)


def test_only_lost_files_are_in_no_list_where_a_disk_decomposes_names(tmp_path: Path) -> None:
    root = write_camvid(tmp_path / "camvid", [DECOMPOSED, unicodedata.normalize("NFD", "ö"), "b"], ["v"])
    unlisted = [each.file for each in check_dataset(CAMVID, root, workers=1).findings if "unlisted" in each.kind]
    assert unlisted == []
    (root / "train" / "b.png").unlink()
    unlisted = [each.file for each in check_dataset(CAMVID, root, workers=1).findings if "unlisted" in each.kind]
    assert unlisted == ["trainannot/b.png"]


def test_r65_hidden_files_are_no_images(tmp_path: Path) -> None:
    root = write_camvid(tmp_path / "camvid", ["a"], ["v"])
    for folder in ("train", "trainannot", "val"):
        (root / folder / "._a.png").write_bytes(b"\0\5\26\7")
        (root / folder / ".DS_Store").write_bytes(b"\0")
        (root / folder / "Thumbs.db").write_bytes(b"\0")
        save(root / folder / ".trash" / "x.png", np.zeros((4, 4)))
    assert CAMVID.list_ids(root, "train") == ["a"]
    assert [path.name for path in visible(root / "train", "**/*")] == ["Thumbs.db", "a.png"]
    told = [each.file for each in check_dataset(CAMVID, root, workers=1).findings]
    assert not [file for file in told if "._a" in file or ".trash" in file]


def test_r67_names_that_are_no_text(tmp_path: Path) -> None:
    root = write_camvid(tmp_path / "camvid", ["a"], ["v"])
    image = (root / "train" / "a.png").read_bytes()
    try:
        Path(os.fsdecode(os.fsencode(root / "train") + b"/stra\xdfe.png")).write_bytes(image)
    except OSError:
        pytest.skip("this file system has text names only")
    with pytest.raises(FplError, match=r"1 file name not in UTF-8: 'stra\\xdfe'"):
        CAMVID.list_ids(root, "train")
    assert any("not in UTF-8" in each.what for each in check_dataset(CAMVID, root, workers=1).faults)
    check_utf8(["straße"], tmp_path)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["a.png", "a_overlay.png"], "a_overlay.png would hold a.png and a_overlay.png"),
        (["legend.jpg"], "legend.png would hold the legend and legend.jpg"),
        (["A.png", "a.png"], "a.png would hold A.png and a.png"),
        ([f"{COMPOSED}.png", f"{DECOMPOSED}.png"], "would hold"),
        (["x.png", "x.png/y.png"], "x.png would be a file and a folder"),
    ],
)
def test_r66_results_that_collide(tmp_path: Path, names: list[str], text: str) -> None:
    with pytest.raises(FplError, match=text):
        check_outputs({Path(name).with_suffix(""): tmp_path / name for name in names}, tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_results_never_replace_their_image(tmp_path: Path) -> None:
    with pytest.raises(FplError, match="is an image itself"):
        check_outputs({Path("a"): tmp_path / "a.png"}, tmp_path)
    check_outputs({Path("a"): tmp_path / "a.jpg", Path("b/a"): tmp_path / "b" / "a.png"}, tmp_path / "to")


@pytest.mark.parametrize("letter", ["x", "ä", "日"])
def test_names_stay_short_and_apart(letter: str) -> None:
    one, two = (outputs_of(Path(letter * 200 + end)) for end in "ab")
    assert one[0] != two[0] and one[1] != two[1]
    assert all(len(path.name.encode()) <= LONGEST for path in (*one, *two))
    assert one[1].name.endswith("_overlay.png")
    assert bounded("short", ".png") == "short.png"


def test_run_ids_stay_short_whatever_the_overrides() -> None:
    split = {"fraction": "9" * 60, "holdout": 10**9, "labeled": "0" * 16, "unlabeled": "0" * 16}
    config = make_config("synthetic_city", split=split, seed=2**31 - 1)
    loss = config.loss.model_copy(update={"kind": "ce+negative"})
    one = run_id(config.model_copy(update={"loss": loss}))
    assert len(one) < 80 and "/" not in one
    split["fraction"] = "9" * 59 + "8"
    assert run_id(make_config("synthetic_city", split=split, seed=2**31 - 1).model_copy(update={"loss": loss})) != one


def turned(path: Path, size: tuple[int, int], orientation: int) -> None:
    exif = Image.Exif()
    exif[274] = orientation
    pixels = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path, "PNG", exif=exif)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_applied_by_predict_alone(tmp_path: Path, orientation: int) -> None:
    from PIL import ImageOps

    turned(tmp_path / "x.png", (3, 5), orientation)
    with Image.open(tmp_path / "x.png") as image:
        stored, upright = np.asarray(image), np.asarray(ImageOps.exif_transpose(image))
    assert np.array_equal(read_image(tmp_path / "x.png"), stored)
    found, was_turned = read_upright(tmp_path / "x.png")
    assert np.array_equal(found, upright) and was_turned == (orientation > 1)


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def turned_elsewhere(path: Path, size: tuple[int, int], place: str) -> None:
    """A PNG that says orientation 6 behind its pixels, as ImageMagick's text, or as XMP."""
    exif = Image.Exif()
    exif[274] = 6
    raw = exif.tobytes()
    hexed = "\nexif\n" + f"{len(raw):8d}\n" + raw.hex() + "\n"
    pixels = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    content = stream.getvalue()
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
    extra, mark = {
        "behind the pixels": (chunk(b"eXIf", raw.removeprefix(b"Exif\0\0")), b"IEND"),
        "as text": (chunk(b"tEXt", b"Raw profile type exif\0" + hexed.encode()), b"IDAT"),
        "as XMP": (chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp), b"IDAT"),
    }[place]
    head = content.index(mark) - 4
    path.write_bytes(content[:head] + extra + content[head:])


@pytest.mark.parametrize("place", ["behind the pixels", "as text", "as XMP"])
def test_orientation_of_a_png_is_found_wherever_it_is(tmp_path: Path, place: str) -> None:
    from PIL import ImageOps

    turned_elsewhere(tmp_path / "x.png", (3, 5), place)
    with Image.open(tmp_path / "x.png") as image:
        stored, upright = np.asarray(image), np.asarray(ImageOps.exif_transpose(image))
    assert upright.shape == (5, 3, 3)
    found, was_turned = read_upright(tmp_path / "x.png")
    assert np.array_equal(found, upright) and was_turned
    found, orientation = read_stored(tmp_path / "x.png")
    assert np.array_equal(found, stored) and orientation == 6
    # Where nothing is decoded, what lies behind the pixels is not known.
    assert read_header(tmp_path / "x.png").orientation == (1 if place == "behind the pixels" else 6)


def test_orientation_is_told_by_check_and_training_and_explains_a_size(tmp_path: Path) -> None:
    root = write_camvid(tmp_path / "camvid", ["a", "b"], ["v"])
    turned(root / "train" / "a.png", (40, 50), 6)
    assert any(
        "EXIF orientation of 1 image is ignored" in each.what and "a.png" in each.what
        for each in check_dataset(CAMVID, root, workers=1).of_level("note")
    )
    split, config = make_split_of(["a"], ["b"]), make_config(labeled_batch=2, unlabeled_batch=2)
    warnings = check_data(config, split, Images(CAMVID, root, "train"))
    assert any("EXIF orientation of 1 image is ignored" in each for each in warnings)
    save(root / "trainannot" / "a.png", np.zeros((50, 40)))
    with pytest.raises(FplError, match="label is 50x40") as caught:
        check_data(config, split, Images(CAMVID, root, "train"))
    assert "EXIF orientation (6)" in caught.value.hint


def test_all_faults_of_an_import_with_their_lines(tmp_path: Path) -> None:
    root = write_camvid(tmp_path / "camvid", "abcd", "v")
    (tmp_path / "l").write_text("# comment\na\nv\nz\nb\na\n")
    (tmp_path / "u").write_text("c\nb\n")
    with pytest.raises(FplError) as caught:
        import_split(CAMVID, tmp_path / "l", tmp_path / "u", "imported", "2", root=root)
    for text in (
        "4 faults",
        "ids that stand twice: a (lines 2, 6)",
        "1 ids are labeled and unlabeled at once: b (l, line 5)",
        "1 validation ids are in the training lists: v (l, line 3)",
        "1 of 6 training images are not on disk: z (l, line 4)",
    ):
        assert text in caught.value.message, caught.value.message


def test_missing_labels_and_bad_headers_are_found_before_the_first_step(tmp_path: Path) -> None:
    root = write_camvid(tmp_path / "camvid", "abcd", "v")
    config, images = make_config(labeled_batch=2, unlabeled_batch=2), Images(CAMVID, root, "train")
    for name in "cd":
        Image.new("I;16", (50, 40)).save(root / "train" / f"{name}.png")
    with pytest.raises(FplError, match=r"(?s)2 faults.*c\.png: image has mode I;16.*d\.png: image has mode I;16"):
        check_data(config, make_split_of("a", "bcd"), images)
    (root / "trainannot" / "b.png").unlink()
    with pytest.raises(FplError, match="1 of 2 labeled images have no label: b"):
        check_data(config, make_split_of("ab", "cd"), images)
    assert set(images.label_reads) == {"a"}
    split = make_split_of("bd", "ac")
    write_split(split, split_folder(tmp_path / "splits", "camvid", "imported", "2"))
    arguments = ["check", "--splits", str(tmp_path / "splits"), "--data-root", str(tmp_path)]
    result = CliRunner().invoke(splits_app, arguments)
    assert result.exit_code == 2
    assert "1 of 2 labeled images have no label: b (labeled.txt, line 1)" in result.output


def test_probabilities_against_counting() -> None:
    from itertools import combinations

    sets = list(combinations(range(9), 4))
    for span in range(4, 10):
        assert within(9, 4, span) == pytest.approx(sum(each[-1] - each[0] < span for each in sets) / len(sets))
    for with_it in range(6):
        assert missed(9, with_it, 4) == pytest.approx(sum(min(each) >= with_it for each in sets) / len(sets))
    assert missed(2975, 100, 93) == pytest.approx(comb(2875, 93) / comb(2975, 93))


def test_one_end_of_an_ordered_list_is_warned_of(tmp_path: Path) -> None:
    ids = [f"{city}_{number:02d}" for city in "abcd" for number in range(30)]
    classes = {image_id: frozenset({0, "abcd".index(image_id[0]) + 1}) for image_id in ids}
    first, every = (make_split_of(each, [one for one in ids if one not in each]) for each in (ids[:30], ids[::4]))
    found = coverage(first, CAMVID, ids, classes)
    assert (found.groups, found.classes, found.unlabeled) == ((1, 4), (2, 5), 0)
    told = "\n".join(found.warnings)
    assert "groups b (in 30 of 120 images), c" in told and "classes pole (in 30 of 120 images)" in told
    assert "all 30 labeled images are lines 1 to 30 of the 120" in told
    good = coverage(every, CAMVID, ids, classes)
    assert (good.groups, good.classes, good.warnings) == ((4, 4), (5, 5), ())
    # A rare class is often missed: that is no reason for a word.
    rare = {**dict.fromkeys(ids, frozenset({0})), ids[1]: frozenset({0, 7})}
    assert coverage(every, CAMVID, ids, rare).warnings == ()


def test_a_run_on_one_end_of_the_training_list_is_warned_of(tmp_path: Path) -> None:
    ids = "abcdefghijklmnopqrst"
    images = Images(CAMVID, write_camvid(tmp_path / "camvid", ids, "v"), "train")
    told = [
        check_data(make_config(labeled_batch=2, unlabeled_batch=2), make_split_of(labeled, unlabeled), images)
        for labeled, unlabeled in ((ids[:10], ids[10:]), (ids[::2], ids[1::2]))
    ]
    assert ["all 10 labeled images are lines 1 to 10 of the 20" in "".join(each) for each in told] == [True, False]
