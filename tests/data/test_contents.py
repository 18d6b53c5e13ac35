"""A result must not outlive the data that made it: labels and images are part of a run's identity."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import fpl.data.drawing as drawing
from fpl.config.identity import recipe_digest, run_id
from fpl.config.schema import RunConfig
from fpl.data.contents import data_contents, data_version
from fpl.data.images import Images
from fpl.data.preflight import check_data
from fpl.data.spec import find_root, get_spec
from fpl.data.splits import make_split
from fpl.data.synthetic import draw_city, draw_voc
from fpl.errors import FplError
from fpl.sweep.inputs import make_inputs
from fpl.sweep.places import Places
from fpl.sweep.prepare import pin
from tests.data.conftest import make_config

SPEC = get_spec("synthetic_city")


@pytest.fixture
def city(tmp_path: Path) -> Path:
    return draw_city(tmp_path / "synthetic_city", train=8, validation=2, size=(16, 24))


def repaint(path: Path, value: int) -> None:
    """Change the content of a file and neither its name nor, for these images, its size on disk."""
    with Image.open(path) as image:
        pixels = np.asarray(image).copy()
    pixels[0, 0] = value
    Image.fromarray(pixels).save(path, compress_level=1)


def test_changed_labels_make_another_run(city: Path) -> None:
    split = make_split(SPEC, city, "every-nth", "1/4")
    label = SPEC.label_path(city, "train", split.labeled[0])
    unlabeled = SPEC.label_path(city, "train", split.unlabeled[0])
    before = data_version(SPEC, city), data_contents(SPEC, city, split)
    repaint(unlabeled, 5)  # a label that nothing is learned from
    assert (data_version(SPEC, city), data_contents(SPEC, city, split)) == before
    repaint(label, (int(np.asarray(Image.open(label))[0, 0]) + 1) % 19)
    now = data_contents(SPEC, city, split)
    assert now != before[1] and data_version(SPEC, city) == before[0]
    # The same length and the same time of change: still another content.
    content = bytearray(label.read_bytes())
    content[-20] ^= 1
    times = label.stat().st_atime_ns, label.stat().st_mtime_ns
    replacement = label.with_suffix(".new")
    replacement.write_bytes(bytes(content))
    os.utime(replacement, ns=times)
    replacement.rename(label)
    assert data_contents(SPEC, city, split) not in (now, before[1])


def test_validation_labels_and_sizes_of_images_count(city: Path) -> None:
    split = make_split(SPEC, city, "every-nth", "1/4")
    version, contents = data_version(SPEC, city), data_contents(SPEC, city, split)
    repaint(SPEC.label_path(city, "val", SPEC.list_ids(city, "val")[0]), 3)
    assert data_version(SPEC, city) != version
    image = SPEC.image_path(city, "train", split.unlabeled[-1])
    image.write_bytes(image.read_bytes() + b"\0")
    assert data_contents(SPEC, city, split) != contents


def test_the_same_command_after_repaired_labels_is_another_run(
    places: Places, config: RunConfig, tmp_path: Path
) -> None:
    root = draw_city(tmp_path / "own" / "synthetic_city", train=12, validation=3, size=(45, 60))
    ours = Places(places.out, root.parent, places.splits_root)
    before, *_, split = pin(config, ours)
    repaint(SPEC.label_path(root, "train", split.labeled[1]), 7)
    after, *_ = pin(config, ours)
    assert run_id(before) != run_id(after)
    assert recipe_digest(before.model_dump(mode="json")) == recipe_digest(after.model_dump(mode="json"))
    with pytest.raises(FplError, match=r"data\.contents pins"):
        pin(before, ours)


def test_changed_files_of_a_drawn_set_are_named_with_how_to_draw_it_again(city: Path) -> None:
    assert drawing.is_current(city)
    path = SPEC.image_path(city, "val", SPEC.list_ids(city, "val")[1])
    repaint(path, 9)
    with pytest.raises(
        FplError, match=r"1 file of the drawn set is not as drawn: leftImg8bit/val/.*\(changed\)"
    ) as one:
        draw_city(city, train=8, validation=2, size=(16, 24))
    command = f"fpl data draw synthetic_city --data-root {city.parent} --train 8 --validation 2 --seed 0"
    assert one.value.where == str(path)
    assert f"delete {city} and draw it again" in one.value.hint and command in one.value.hint
    path.unlink()
    SPEC.label_path(city, "train", SPEC.list_ids(city, "train")[0]).write_bytes(b"")
    with pytest.raises(FplError, match=r"2 files .* are not as drawn: gtFine/train/.*\(changed\), .*\(gone\)") as two:
        drawing.is_current(city)
    assert two.value.where == str(city)


def test_before_training_what_a_run_reads_of_a_drawn_set_is_compared(city: Path) -> None:
    split, images = make_split(SPEC, city, "every-nth", "1/4"), Images(SPEC, city, "train")
    config = make_config("synthetic_city", labeled_batch=2)
    before = check_data(config, split, images)
    repaint(SPEC.label_path(city, "train", split.unlabeled[0]), 5)  # which no run reads
    assert check_data(config, split, Images(SPEC, city, "train")) == before
    val = SPEC.list_ids(city, "val")
    for path in (
        SPEC.label_path(city, "train", split.labeled[1]),
        SPEC.image_path(city, "train", split.labeled[0]),
        SPEC.image_path(city, "train", split.unlabeled[0]),
        SPEC.image_path(city, "val", val[0]),
        SPEC.label_path(city, "val", val[1]),
    ):
        kept = path.read_bytes()
        with Image.open(path) as image:
            repaint(path, (int(np.asarray(image).flat[0]) + 1) % 19)
        with pytest.raises(FplError, match="1 file of the drawn set is not as drawn") as caught:
            check_data(config, split, Images(SPEC, city, "train"))
        assert caught.value.where == str(path)
        path.write_bytes(kept)
    assert check_data(config, split, Images(SPEC, city, "train")) == before


def test_lists_of_a_drawn_set_are_compared_too(tmp_path: Path) -> None:
    root = draw_voc(tmp_path / "synthetic_voc", train=8, clean=4, validation=2, size=(16, 24))
    drawing.check_drawn(root, ())
    path = root / "ImageSets" / "Segmentation" / "val.txt"
    path.write_text(path.read_text().splitlines()[0] + "\n")
    with pytest.raises(FplError, match=r"val\.txt \(changed\)"):
        drawing.check_drawn(root, ())


def test_other_code_draws_anew_and_equal_images_stay(city: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "_code", lambda: "01234567")
    before = data_version(SPEC, city), {path: path.stat().st_ino for path in city.rglob("*.png")}
    assert not drawing.is_current(city)
    draw_city(city, train=8, validation=2, size=(16, 24))
    assert drawing.is_current(city) and json.loads((city / "drawing.json").read_text())["code"] == "01234567"
    # Equal images: not a file was touched, and runs on them are the same runs.
    assert (data_version(SPEC, city), {path: path.stat().st_ino for path in city.rglob("*.png")}) == before
    draw = drawing.draw_tree
    monkeypatch.setattr(drawing, "_code", lambda: "76543210")

    def differently(tree: Path):
        for name in ("leftImg8bit/train/a/a_0_0_leftImg8bit.png", "gtFine/train/a/a_0_0_gtFine_labelTrainIds.png"):
            (tree / name).parent.mkdir(parents=True)
            Image.new("L", (24, 16), 4).save(tree / name)
            yield

    parameters = {key: json.loads((city / "drawing.json").read_text())[key] for key in ("train", "validation", "size")}
    draw(city, parameters, differently, None)
    assert drawing.is_current(city) and len(list(city.rglob("*.png"))) == 2
    assert [path.name for path in city.parent.iterdir()] == [city.name]


def test_inputs_of_other_code_are_made_anew(
    places: Places, config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there from before does not answer: the drawing is looked at, and a list that its rule contradicts."""
    root = draw_city(tmp_path / "own" / "synthetic_city")
    ours = Places(places.out, root.parent, tmp_path / "splits")
    make_inputs([config], ours, lambda text: None)
    said: list[str] = []
    make_inputs([config], ours, said.append)
    assert said == []
    monkeypatch.setattr(drawing, "_code", lambda: "01234567")
    make_inputs([config], ours, said.append)
    assert [text.split()[0] for text in said] == ["drawing"]
    (labeled,) = ours.splits_root.rglob("labeled.txt")
    lines = labeled.read_text().splitlines()
    unlabeled = labeled.with_name("unlabeled.txt")
    swapped = unlabeled.read_text().splitlines()
    lines[0], swapped[0] = swapped[0], lines[0]
    labeled.write_text("\n".join(lines) + "\n")
    unlabeled.write_text("\n".join(swapped) + "\n")
    with pytest.raises(FplError) as caught:
        make_inputs([config], ours, said.append)
    assert "not what the rule of every-nth gives" in caught.value.what
    assert str(labeled.parent) in str(caught.value.where)


def test_find_root_knows_a_drawn_set_by_its_record(city: Path) -> None:
    assert find_root(SPEC, city.parent) == city
