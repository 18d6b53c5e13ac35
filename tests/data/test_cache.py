"""The cache of decoded images: equal to the files, never stale, never half, never built twice."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
import warnings
from collections import namedtuple
from pathlib import Path

import filelock
import numpy as np
import pytest
import torch

from fpl.data import build_cache as building
from fpl.data.batches import BatchRequest, make_loader
from fpl.data.build_cache import build_cache, plan_cache
from fpl.data.cache import open_cache, verify
from fpl.data.cache_index import cache_folder
from fpl.data.images import Images
from fpl.data.spec import get_spec
from fpl.data.validation import ValidationSet
from fpl.errors import FplError
from tests.data.conftest import make_config, make_split_of, save, write_camvid
from tests.data.test_batches import assert_equal

SPEC = get_spec("camvid")
TRAIN, VAL = ["a", "b", "c", "u0", "u1"], ["v0", "v1"]


@pytest.fixture(autouse=True)
def _default_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FPL_CACHE", raising=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three labeled images, two without a label file, two for validation."""
    return write_camvid(tmp_path / "camvid", TRAIN, VAL, size=(41, 50))


def build(root: Path, part: str = "train", downscale: int = 1, place: Path | None = None, **options) -> bool:
    return build_cache(plan_cache(SPEC, root, part, downscale, place), **options)


@pytest.mark.parametrize("downscale", [1, 3])
def test_arrays_are_those_of_the_files(root: Path, downscale: int) -> None:
    for part, ids in (("train", TRAIN), ("val", VAL)):
        assert build(root, part, downscale, cores=2)
        files = Images(SPEC, root, part, downscale)
        cached = Images(SPEC, root, part, downscale, cache=open_cache(SPEC, root, part, downscale))
        for image_id in ids:
            assert np.array_equal(files.image(image_id), cached.image(image_id))
            assert not cached.image(image_id).flags.writeable
            if not image_id.startswith("u"):
                assert np.array_equal(files.label(image_id), cached.label(image_id))
                assert np.array_equal(files.full_label(image_id), cached.full_label(image_id))
        assert cached.kept_bytes == 0 or (part, downscale) == ("train", 3)


def test_files_are_not_opened_again(root: Path) -> None:
    build(root)
    cached = Images(SPEC, root, "train", cache=open_cache(SPEC, root, "train"))
    shutil.rmtree(root / "train")
    shutil.rmtree(root / "trainannot")
    cached.image("a"), cached.label("a")
    assert cached.label_reads == {"a": 1}


@pytest.mark.parametrize("loader_workers", [0, 2])
def test_batches_are_equal_and_unlabeled_labels_unread(root: Path, loader_workers: int) -> None:
    # Here the unlabeled images have labels, which nobody may read.
    for image_id in ("u0", "u1"):
        save(SPEC.label_path(root, "train", image_id), np.full((41, 50), 3))
    build(root)
    config, split = make_config(), make_split_of(TRAIN[:3], TRAIN[3:])
    images = Images(SPEC, root, "train", cache=open_cache(SPEC, root, "train"))
    batches = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for each, workers in ((Images(SPEC, root, "train"), 0), (images, loader_workers)):
            batches.append(list(make_loader(config, split, each, BatchRequest(draws=2), loader_workers=workers)))
    assert_equal(*batches)
    assert set(images.label_reads) == (set(TRAIN[:3]) if loader_workers == 0 else set())


@pytest.mark.parametrize("downscale", [1, 2])
def test_validation_is_equal(root: Path, downscale: int) -> None:
    build(root, "val", downscale)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cached = list(ValidationSet(SPEC, root, downscale, cache=open_cache(SPEC, root, "val", downscale)))
    for one, other in zip(ValidationSet(SPEC, root, downscale), cached, strict=True):
        assert one[0] == other[0] and torch.equal(one[1], other[1]) and torch.equal(one[2], other[2])


def test_arrays_lie_in_the_mapped_file(root: Path) -> None:
    """Not in memory of the process: its writers are refused, and nothing is allocated for them."""
    build(root)
    cache = open_cache(SPEC, root, "train")
    array = cache.get("image", "a")
    address = array.__array_interface__["data"][0]
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if str(cache.folder) in line]
    spans = [tuple(int(end, 16) for end in words[0].split("-")) for words in maps]
    assert any(start <= address and address + array.nbytes <= stop for start, stop in spans)


def test_no_cache_is_no_error(root: Path) -> None:
    assert open_cache(SPEC, root, "train") is None
    build(root)
    assert open_cache(SPEC, root, "train", 2) is None and open_cache(SPEC, root, "val") is None


def test_a_second_build_finds_it_done(root: Path) -> None:
    counts = []
    assert build(root, progress=lambda done, total: counts.append((done, total)))
    assert counts == [(number + 1, 5) for number in range(5)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Images, "image", lambda *_: pytest.fail("decoded again"))
        assert not build(root, progress=lambda done, total: counts.append((done, total)))
    assert counts[5:] == [(5, 5)]


def _touch(root: Path) -> str:
    path = root / "train" / "b.png"
    os.utime(path, ns=(1, 1))
    return f"{path}: the cache .* is stale: this file was changed since it was made"


def _other_label(root: Path) -> str:
    path = save(root / "trainannot" / "c.png", np.full((41, 50), 3))
    return f"{path}: .*was changed since"


def _new_label(root: Path) -> str:
    return f"{save(root / 'trainannot' / 'u1.png', np.full((41, 50), 3))}: .*this file is new since"


def _label_gone(root: Path) -> str:
    (root / "trainannot" / "a.png").unlink()
    return f"{root / 'trainannot' / 'a.png'}: .*this file is gone since"


def _new_image(root: Path) -> str:
    return f"{save(root / 'train' / 'd.png', np.zeros((41, 50, 3)))}: .*this image is not in it"


def _image_gone(root: Path) -> str:
    (root / "train" / "u0.png").unlink()
    return "u0 is no longer in the list of train images"


@pytest.mark.parametrize("change", [_touch, _other_label, _new_label, _label_gone, _new_image, _image_gone])
def test_stale_caches_are_refused_and_built_again(root: Path, change) -> None:
    build(root)
    message = change(root)
    with pytest.raises(FplError, match=message) as caught:
        open_cache(SPEC, root, "train")
    assert "fpl data cache camvid --data-root DIR" in caught.value.hint
    said: list[str] = []
    assert build(root, say=said.append)
    assert "stale" in said[0]
    assert open_cache(SPEC, root, "train") is not None


def test_every_damaged_byte_is_found(root: Path) -> None:
    """A pixel when it is read, anything by the next `fpl data cache`."""
    build(root)
    folder = cache_folder(SPEC, root, "train", 1)
    shard = folder / "00000.arrow"
    intact = shard.read_bytes()
    pixels = Images(SPEC, root, "train").image("a").tobytes()
    place = intact.index(pixels) + 100
    shard.write_bytes(intact[:place] + bytes([intact[place] ^ 1]) + intact[place + 1 :])
    cache = open_cache(SPEC, root, "train")
    assert cache is not None and cache.get("image", "b") is not None
    for action in (lambda: cache.get("image", "a"), lambda: verify(cache)):
        with pytest.raises(FplError, match="damaged") as caught:
            action()
        assert caught.value.where == str(shard)
    for broken in (intact[:-1], intact[: len(intact) // 2], b""):
        shard.write_bytes(broken)
        with pytest.raises(FplError, match=r"damaged .*bytes instead of"):
            open_cache(SPEC, root, "train")
    shard.write_bytes(bytes(len(intact)))
    with pytest.raises(FplError, match="damaged"):
        open_cache(SPEC, root, "train").get("image", "a")
    shard.unlink()
    with pytest.raises(FplError, match="the file is gone"):
        open_cache(SPEC, root, "train")
    assert build(root)
    assert np.array_equal(open_cache(SPEC, root, "train").get("image", "a").tobytes(), pixels)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"digest": "0"}', "half"])
def test_a_damaged_index_is_named(root: Path, text: str) -> None:
    build(root)
    index = cache_folder(SPEC, root, "train", 1) / "index.json"
    index.write_text(index.read_text()[:300] if text == "half" else text)
    with pytest.raises(FplError, match="damaged") as caught:
        open_cache(SPEC, root, "train")
    assert caught.value.where == str(index)
    assert build(root)


def test_other_label_values_make_it_stale(root: Path) -> None:
    build(root)
    path = cache_folder(SPEC, root, "train", 1) / "index.json"
    index = json.loads(path.read_text())
    index["settings"]["label_values"] = "0"
    index["digest"] = building.index_digest(index)
    path.write_text(json.dumps(index))
    with pytest.raises(FplError, match="made with label_values = 0, now"):
        open_cache(SPEC, root, "train")


def test_a_broken_image_leaves_nothing_behind(root: Path) -> None:
    path = root / "train" / "b.png"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(FplError, match="cannot be decoded") as caught:
        build(root, cores=2)
    assert caught.value.where == str(path)
    folder = cache_folder(SPEC, root, "train", 1).parent
    assert [each.name for each in folder.iterdir()] in ([], [".train.lock"])


def test_a_broken_label_stops_only_who_labels_its_image(root: Path) -> None:
    said: list[str] = []
    broken = SPEC.label_path(root, "train", "b")
    broken.write_bytes(b"no label")
    assert build(root, say=said.append)
    assert len(said) == 1 and str(broken) in said[0]
    cached = Images(SPEC, root, "train", cache=open_cache(SPEC, root, "train"))
    assert cached.image("b").shape == (41, 50, 3)
    cached.label("a")
    with pytest.raises(FplError, match=r"b\.png"):
        cached.label("b")


def test_rows_that_moved_are_noticed(root: Path) -> None:
    build(root)
    cache = open_cache(SPEC, root, "train")
    assert cache is not None
    # What a process with the old index meets once another one has built the cache anew.
    places = cache._places
    places["a"], places["b"] = places["b"], places["a"]
    with pytest.raises(FplError, match="does not hold a where the index says"):
        cache.get("image", "a")


def test_a_full_disk_and_a_read_only_root_are_told_before_the_work(root: Path, tmp_path: Path, monkeypatch) -> None:
    plan = plan_cache(SPEC, root, "train")
    assert 5 * 41 * 50 * 3 + 3 * 41 * 50 <= plan.bytes <= 5 * 41 * 50 * 4 + 20 * 2**20
    with monkeypatch.context() as patch:
        usage = namedtuple("usage", "total used free")
        patch.setattr(shutil, "disk_usage", lambda folder: usage(10, 9, 1000))
        with pytest.raises(FplError, match=r"not enough room: 1\d MB are needed, 1.0 kB are free; .*\n.*--cache"):
            build_cache(plan)
    # Tests may run as root, whom no permission stops: a file stands where the folder must be.
    shutil.rmtree(root / ".cache")
    (root / ".cache").write_text("")
    with pytest.raises(FplError, match=r"cannot be written \(.*\)\n.*--cache DIR or FPL_CACHE") as caught:
        plan_cache(SPEC, root, "train")
    assert str(root) in caught.value.where
    assert build(root, place=tmp_path / "elsewhere")


def test_environment_names_the_place_and_copies_stay_apart(root: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("FPL_CACHE", str(tmp_path / "caches"))
    other = write_camvid(tmp_path / "copy", TRAIN[:3], VAL)
    assert build(root) and build(other)
    assert not (root / ".cache").exists()
    assert open_cache(SPEC, root, "train").ids == tuple(TRAIN)
    assert open_cache(SPEC, other, "train").ids == tuple(TRAIN[:3])


def test_two_threads_build_once(root: Path, monkeypatch) -> None:
    began, waiting, results, said = threading.Event(), threading.Event(), [], []
    read = Images.image

    def slow(self: Images, image_id: str):
        began.set()
        assert waiting.wait(50)
        return read(self, image_id)

    def say(line: str) -> None:
        said.append(line)
        waiting.set()

    monkeypatch.setattr(Images, "image", slow)
    first = threading.Thread(target=lambda: results.append(build(root)))
    first.start()
    assert began.wait(50)
    results.append(build(root, say=say))
    first.join()
    assert sorted(results) == [False, True]
    assert any("another process builds" in line for line in said)


def test_a_cache_that_another_process_never_finishes(root: Path, monkeypatch) -> None:
    monkeypatch.setattr("fpl.data.build_cache.BUILD_SECONDS", 0.1)
    parent = cache_folder(SPEC, root, "train", 1).parent
    parent.mkdir(parents=True)
    said: list[str] = []
    with filelock.FileLock(parent / ".train.lock"), pytest.raises(FplError, match="another process builds this cache"):
        build(root, say=said.append)
    assert "waiting for it" in said[0]


def test_processes_build_once_and_left_overs_of_a_kill_go(root: Path) -> None:
    parent = cache_folder(SPEC, root, "train", 1).parent
    left_over = parent / ".train-killed"
    left_over.mkdir(parents=True)
    (left_over / "00000.arrow").write_bytes(b"half")
    command = [sys.executable, "-m", "fpl", "data", "cache", "camvid", "--data-root", str(root), "--workers", "1"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    printed = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    for part in ("train", "val"):
        assert sum(f"{part}: built" in text for text in printed) == 1
        assert sum(f"{part}: is there" in text for text in printed) == 1
    assert "train: 5 images, 0.02 GB in " in printed[0]
    assert sorted(each.name for each in parent.iterdir()) == [".train.lock", ".val.lock", "train", "val"]


def test_travels_to_spawned_processes(root: Path) -> None:
    build(root)
    images = Images(SPEC, root, "train", cache=open_cache(SPEC, root, "train"))
    pixels = images.image("a")
    data = pickle.dumps(images)
    assert len(data) < 50_000
    assert np.array_equal(pickle.loads(data).image("a"), pixels)
