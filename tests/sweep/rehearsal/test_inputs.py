"""Full-size trees under published and made-up names, their splits, and weights files that look like the public ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from fpl.config.campaign import load_campaign
from fpl.config.schema import RunConfig
from fpl.config.shipped import experiments_folder
from fpl.data.images import Images
from fpl.data.read import read_size
from fpl.data.spec import find_root, get_spec
from fpl.data.splits import Published, cps_file, published
from fpl.data.splits.store import resolve_split
from fpl.errors import FplError
from fpl.models import build_network, load_pretrained
from fpl.sweep.places import Places
from fpl.sweep.rehearsal import trees
from fpl.sweep.rehearsal.inputs import NOTICE, get_inputs, make_weights
from fpl.sweep.rehearsal.names import find_names, make_names
from tests.data.published_trees import city_ids, dialect, sha, voc_ids

CITY, VOC = get_spec("cityscapes"), get_spec("voc")
NOWHERE = Path("nowhere")


@pytest.fixture(autouse=True)
def few_scenes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "SCENES", 3)


def said(text: str) -> None:
    """What is told to the user is not looked at here."""


def published_run(cell: str) -> RunConfig:
    (found,) = load_campaign(experiments_folder(), "paper", [cell]).all_cells
    return found.configs[0]


def own_places(folder: Path) -> Places:
    return Places(folder, folder / "data", folder / "splits", folder / "weights")


def write(path: Path, lines: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture
def city_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, list[str], list[str]]:
    """Lists of Cityscapes' lengths in the public dialect, whose digests pass for the published ones."""
    train, val = city_ids(2975, 1, ["ulm", "jena", "bonn"]), city_ids(500, 2, ["lindau"])
    folder = tmp_path / "lists"
    write(folder / "city" / "train.txt", dialect(train))
    write(folder / "city" / "val.txt", dialect(val))
    write(folder / "notes.txt", ["names with blanks.png in a text"])
    monkeypatch.setitem(published.ORDERS, "cityscapes", sha(dialect(train)))
    rest = [one for number, one in enumerate(train) if number % 8]
    digests = Published(sha(dialect(train[::8])), sha(dialect(rest)), cps_lines=True)
    monkeypatch.setitem(published.PUBLISHED, ("cityscapes", "every-nth", "1/8"), digests)
    return folder, train, val


def test_streets_under_the_published_names(city_lists: tuple[Path, list[str], list[str]], tmp_path: Path) -> None:
    lists, train, val = city_lists
    config, own = published_run("table1.cps.r101_1_8"), own_places(tmp_path / "out")
    config = config.model_copy(update={"model": config.model.model_copy(update={"pretrained": "none"})})
    inputs = get_inputs(config, own, Places(NOWHERE, NOWHERE, NOWHERE), [lists], said)
    assert inputs.data == "drawn, published names and split lists" and inputs.overrides == ()
    root = find_root(CITY, own.data_root)
    assert sorted(CITY.list_ids(root, "train")) == sorted(train)
    assert sorted(CITY.list_ids(root, "val")) == sorted(val)
    # The split is read as by any run, which refuses lists that are not the published ones.
    _, split = resolve_split(config, own.splits_root)
    assert split.labeled == tuple(train[::8]) and len(split.unlabeled) == 2603
    assert read_size(CITY.image_path(root, "train", train[0])) == (1024, 2048)
    # Three images, each the same file under a third of all names.
    assert CITY.image_path(root, "train", train[0]).stat().st_nlink == 992 + 167
    # Cities lie by turns in one dialect of labels and the other; those of one scene hold the same.
    images = Images(CITY, root, "train")
    endings = {CITY.label_path(root, "train", each).name.rpartition("_")[2]: each for each in train[1::3]}
    assert set(endings) == {"labelTrainIds.png", "labelIds.png"}
    one, other = (images.label(each) for each in endings.values())
    assert np.array_equal(one, other) and set(np.unique(one)) <= {*range(19), 255} and len(np.unique(one)) > 5


def test_objects_under_made_up_names(tmp_path: Path) -> None:
    config, own = published_run("table2.cps.r50_1_8"), own_places(tmp_path)
    config = config.model_copy(update={"model": config.model.model_copy(update={"pretrained": "none"})})
    inputs = get_inputs(config, own, Places(NOWHERE, NOWHERE, NOWHERE), [tmp_path / "none"], said)
    assert inputs.data.startswith("drawn, made-up names and lists")
    assert inputs.overrides == ("data.split.family=imported",)
    root = find_root(VOC, own.data_root)
    train, clean = VOC.list_ids(root, "train"), VOC.subset_ids(root, "clean")
    assert (len(train), len(clean), len(VOC.list_ids(root, "val"))) == (10582, 1464, 1449)
    assert set(clean) < set(train) and (own.data_root / NOTICE).is_file()
    split = config.data.split.model_copy(update={"family": "imported"})
    renamed = config.model_copy(update={"data": config.data.model_copy(update={"split": split})})
    _, found = resolve_split(renamed, own.splits_root)
    assert (len(found.labeled), len(found.unlabeled)) == (1323, 9259)
    # Clean labels have the border of VOC's own; those of SBD have none.
    images, known = Images(VOC, root, "train"), frozenset(clean)
    other = next(each for each in train if each not in known)
    assert 255 in images.label(clean[0]) and 255 not in images.label(other)


def test_names_of_objects_are_put_together_from_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train, val = sorted(voc_ids(10582)), voc_ids(1449, first=20000)
    monkeypatch.setitem(published.ORDERS, "voc", sha(train))
    write(tmp_path / "1-8" / "labeled.txt", train[::8])
    assert find_names(VOC, [tmp_path]) is None
    write(tmp_path / "1-8" / "unlabeled.txt", [one for number, one in enumerate(train) if number % 8])
    write(tmp_path / "val.txt", [f"JPEGImages/{one}.jpg SegmentationClass/{one}.png" for one in val])
    write(tmp_path / "clean.txt", train[5:1469])
    found = find_names(VOC, [tmp_path])
    assert found is not None and found.published
    assert (found.train, found.val, found.clean) == (tuple(train), tuple(val), tuple(train[5:1469]))


def test_made_up_names_are_nobodys(tmp_path: Path) -> None:
    for spec in (CITY, VOC):
        names = make_names(spec)
        assert {len(names.train), len(names.val)} == set((spec.counts or {}).values())
        assert not set(names.train) & set(names.val) and len(set(names.train)) == len(names.train)
        assert all(spec.canonical_id(each) == each for each in (*names.train, *names.val))
        assert not published.is_published_order(spec.name, names.train)
    assert cps_file("cityscapes", make_names(CITY).train[:1]).startswith(b"/images/train/madeup")


def test_a_tree_is_kept_made_anew_and_never_put_over_another(tmp_path: Path) -> None:
    root, names = tmp_path / "VOC2012", make_names(VOC)
    left = tmp_path / ".VOC2012-killed"
    left.mkdir()
    told: list[str] = []
    trees.make_tree(VOC, root, names, told.append)
    first = VOC.image_path(root, "train", names.train[0]).stat().st_ino
    trees.make_tree(VOC, root, names, told.append)
    assert len(told) == 1 and not left.exists()
    assert VOC.image_path(root, "train", names.train[0]).stat().st_ino == first
    other = tmp_path / "real"
    (other / "JPEGImages").mkdir(parents=True)
    with pytest.raises(FplError, match="stands where the rehearsal draws"):
        trees.make_tree(VOC, other, names, said)


def test_real_data_are_taken_as_they_are(data_places: Places, config: RunConfig, tmp_path: Path) -> None:
    inputs = get_inputs(config, own_places(tmp_path), data_places, [], said)
    assert (inputs.data, inputs.overrides, inputs.weights) == ("real", (), "none")
    assert inputs.places.data_root == data_places.data_root and inputs.places.out == tmp_path


def test_a_set_that_is_not_drawn_in_full_size_is_asked_for(config: RunConfig, tmp_path: Path) -> None:
    camvid = config.model_copy(update={"data": config.data.model_copy(update={"dataset": "camvid"})})
    with pytest.raises(FplError, match="a rehearsal draws none of its size"):
        get_inputs(camvid, own_places(tmp_path), Places(NOWHERE, NOWHERE, NOWHERE), [], said)


def test_made_weights_load_as_the_public_file_does(tmp_path: Path) -> None:
    model = published_run("table2.cps.r50_1_8").model
    path = make_weights(tmp_path, model, said)
    assert path.name == "resnet50_v1c.pth" and (tmp_path / NOTICE).is_file()
    network = build_network(model, 21)
    report = load_pretrained(network, model, tmp_path)
    assert report is not None and report.missing == () and report.unexpected == ()
    assert report.loaded == len(network.backbone.state_dict())
    with path.open("r+b") as file:
        file.seek(1000)
        file.write(b"changed")
    with pytest.raises(FplError, match="was recorded"):
        make_weights(tmp_path, model, said)
