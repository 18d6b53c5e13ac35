"""What `fpl predict` leaves in its folder, and how large its pictures are."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fpl.data import read
from fpl.data.spec import get_spec
from fpl.errors import FplError
from fpl.train import predict


@pytest.mark.parametrize(
    ("size", "expected"), [((1, 3000), (1, 3000)), ((3, 1000), (12, 4000)), ((60, 80), (240, 320))]
)
def test_a_narrow_image_is_not_enlarged_without_end(size: tuple[int, int], expected: tuple[int, int]) -> None:
    made = predict.overlay(np.zeros((*size, 3), np.uint8), np.zeros(size, np.uint8), get_spec("camvid"))
    assert (made.height, made.width) == expected


def test_images_of_linked_folders_and_all_endings_are_found(tmp_path: Path) -> None:
    images, elsewhere = tmp_path / "images", tmp_path / "elsewhere"
    for folder in (images / "below" / ".hidden", elsewhere / "deep"):
        folder.mkdir(parents=True)
    for path in (
        *(images / "a.png", images / "b.JFIF", images / "below" / "c.jpe", images / "below" / ".hidden" / "d.png"),
        *(images / "notes.txt", elsewhere / "deep" / "e.jpg"),
    ):
        Image.new("RGB", (4, 4)).save(path, "JPEG")
    (images / "linked").symlink_to(elsewhere)
    (elsewhere / "round").symlink_to(images)
    # What a circle leads to is there already.
    assert {str(name) for name in predict._images_in(images)[0]} == {"a", "b", "below/c", "linked/deep/e"}
    assert predict._images_in(images)[1] == [images / "notes.txt"]
    Image.new("RGB", (4, 4)).save(images / "f.tif")
    with pytest.raises(FplError, match=r"1 of 5 images cannot be read(.|\n)*f\.tif"):
        predict.check_images(predict._images_in(images)[0], images)


def test_left_overs_are_swept_and_what_another_writes_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, to = tmp_path / "images", tmp_path / "to"
    (images / "below").mkdir(parents=True)
    (to / "below").mkdir(parents=True)
    for name in ("a.png", "below/b.png"):
        Image.new("RGB", (40, 40)).save(images / name)
    old, new = [to / f".{'1' * 16}.tmp", to / "below" / f".{'2' * 16}.tmp"], to / f".{'3' * 16}.tmp"
    others = to / ".notes.tmp"
    for path in (*old, new, others):
        path.touch()
    for path in (*old, others):
        os.utime(path, (time.time() - 3600,) * 2)
    monkeypatch.setattr(predict, "_classes", lambda trained, image: np.zeros(image.shape[:2], np.uint8))
    trained: Any = SimpleNamespace(spec=get_spec("camvid"))
    assert predict.predict_folder(trained, images, to) == 2
    assert not any(path.exists() for path in old) and new.exists() and others.exists()


def no_network(*_: object) -> None:
    raise AssertionError("a network ran")


def hostile(folder: Path) -> dict[str, Path]:
    """Good and bad images, some with names that a terminal would obey."""
    (folder / "below").mkdir(parents=True)
    names = ["a.png", "b\x1b[31m.png", "c\nd.png", "below/e.png", "f\u202eg.jpg"]
    paths = {name: folder / name for name in names}
    for path in paths.values():
        path.write_bytes(b"no image")
    Image.fromarray(np.zeros((4, 4), np.uint16)).save(folder / "deep.png")
    Image.new("RGB", (4, 4)).save(folder / "disguised.png", format="GIF")
    Image.new("RGB", (4, 4)).save(folder / "good.png")
    (folder / "link.png").symlink_to("nothing")
    return paths


def test_all_bad_images_are_named_before_a_network_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, to = tmp_path / "images", tmp_path / "to"
    hostile(images)
    monkeypatch.setattr(predict, "_classes", no_network)
    with pytest.raises(FplError) as caught:
        predict.predict_folder(SimpleNamespace(), images, to)  # type: ignore[arg-type]
    assert caught.value.where == str(images) and not to.exists()
    first, *lines = caught.value.what.split("\n    ")
    assert first == "8 of 9 images cannot be read, and none was predicted"
    assert sorted(line.partition(": ")[0] for line in lines) == ["1", "1", "1", "5"]
    (five,) = [line for line in lines if line.startswith("5: ")]
    assert "cannot be decoded" in five and "\x1b" not in five and "\u202e" not in five and "\n" not in five
    for name in ("a.png", "b\ufffd[31m.png", "c\ufffdd.png", "below/e.png", "f\ufffdg.jpg"):
        assert five.count(name) == 1
    for name, words in {"deep.png": "mode I;16", "disguised.png": "is a GIF file", "link.png": "no such file"}.items():
        assert any(name in line and words in line for line in lines)
    for advice in ("copy the file again", "8 bits a channel", "convert it to PNG"):
        assert caught.value.hint.count(advice) == 1


def test_of_very_many_bad_images_the_number_is_told(tmp_path: Path) -> None:
    for number in range(predict.NAMED + 5):
        (tmp_path / f"{number}.png").touch()
    with pytest.raises(FplError, match=r"105 of 105 images .*\n    105: .* and 5 more") as caught:
        predict.check_images({path: path for path in tmp_path.iterdir()}, tmp_path)
    assert len(caught.value.message) < 2000


def test_one_bad_image_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    with pytest.raises(FplError, match="cannot be decoded") as caught:
        predict.predict_folder(SimpleNamespace(), tmp_path / "a.png", tmp_path / "to")  # type: ignore[arg-type]
    assert caught.value.where == str(tmp_path / "a.png") and "1 of 1" not in caught.value.message


def test_names_in_the_other_messages_are_one_line(tmp_path: Path) -> None:
    images = tmp_path / "images"
    (images / "x\ny").mkdir(parents=True)
    for name in ("x\ny.png", "x\ny.jpg"):
        Image.new("RGB", (4, 4)).save(images / name)
    with pytest.raises(FplError, match="two images are called x\ufffdy"):
        predict.predict_folder(SimpleNamespace(), images, tmp_path / "to")  # type: ignore[arg-type]
    (images / "x\ny.jpg").unlink()
    Image.new("RGB", (4, 4)).save(images / "x\ny_overlay.png")
    with pytest.raises(FplError, match=r"x\ufffdy_overlay\.png would hold x\ufffdy\.png and x\ufffdy_overlay\.png"):
        predict.predict_folder(SimpleNamespace(), images, tmp_path / "to")  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [ZeroDivisionError("in a decoder"), KeyError("x"), OverflowError(), MemoryError()])
def test_whatever_a_decoder_raises_is_a_bad_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")

    def fail(path: Path) -> None:
        raise error

    monkeypatch.setattr(read.Image, "open", fail)
    with pytest.raises(FplError, match=r"a\.png: (the image cannot|no memory)"):
        read.read_header(tmp_path / "a.png")


def test_what_predict_has_not_written_is_not_overwritten(tmp_path: Path) -> None:
    """The label of an image is often called as the image is."""
    images, to = tmp_path / "images", tmp_path / "labels"
    for folder in (images, to):
        folder.mkdir()
    Image.new("RGB", (4, 4)).save(images / "a.jpg")
    names, _ = predict._images_in(images)
    predict.check_outputs(names, to)
    for path in (to / "a.png", to / "legend.png"):
        predict._save(path, Image.new("L", (4, 4)))
    predict.check_outputs(names, to)  # its own are made again
    for foreign in (to / "a.png", to / "legend.png", to / "a_overlay.png"):
        Image.new("L", (4, 4)).save(foreign)
        with pytest.raises(FplError, match=f"has not written and would overwrite: {foreign.name}") as caught:
            predict.check_outputs(names, to)
        assert caught.value.where == str(to) and caught.value.hint
        foreign.unlink()
    (to / "a.png").write_text("precious")
    with pytest.raises(FplError, match="1 file that"):
        predict.check_outputs(names, to)
