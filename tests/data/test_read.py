from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fpl.data.images import Images
from fpl.data.read import read_image, read_label
from fpl.data.spec import get_spec
from fpl.errors import FplError
from tests.data.conftest import save, write_camvid

CITY, CAMVID = get_spec("synthetic_city"), get_spec("camvid")


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "RGBA", "LA", "1", "CMYK"])
def test_every_eight_bit_mode_becomes_rgb(tmp_path: Path, mode: str) -> None:
    path = tmp_path / ("x.jpg" if mode == "CMYK" else "x.png")
    Image.new("RGB", (5, 3), (255, 255, 255)).convert(mode).save(path)
    image = read_image(path)
    assert image.shape == (3, 5, 3)
    assert image.dtype == np.uint8
    assert image.min() > 250


def test_exif_orientation_is_ignored(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[274] = 6
    Image.new("RGB", (5, 3)).save(tmp_path / "x.jpg", exif=exif)
    assert read_image(tmp_path / "x.jpg").shape == (3, 5, 3)


def test_unreadable_images_are_named(tmp_path: Path) -> None:
    path = save(tmp_path / "x.png", np.random.default_rng(0).integers(0, 256, (50, 50, 3)))
    data = path.read_bytes()
    for broken in (data[: len(data) // 2], data[:20], b"no image", b""):
        path.write_bytes(broken)
        with pytest.raises(FplError, match="cannot be decoded") as caught:
            read_image(path)
        assert caught.value.where == str(path)
    with pytest.raises(FplError, match="no such file"):
        read_image(tmp_path / "y.png")
    Image.fromarray(np.zeros((2, 2), np.uint16)).save(path)
    with pytest.raises(FplError, match="8 bits a channel"):
        read_image(path)


def test_r14_label_ids_are_recognised(tmp_path: Path) -> None:
    label = np.zeros((8, 8))
    label[0, :5] = [7, 8, 11, 26, 33]
    path = save(tmp_path / "x.png", label)
    with pytest.raises(FplError) as caught:
        read_label(path, CITY)
    message = caught.value.message
    assert str(path) in message
    assert "26, 33" in message
    assert "this is labelIds" in message and "_labelTrainIds.png" in message


def test_r15_palette_labels_keep_their_indices(tmp_path: Path) -> None:
    values = [[0, 1], [255, 10]]
    grey = read_label(save(tmp_path / "grey.png", values), CITY)
    palette = read_label(save(tmp_path / "palette.png", values, "P"), CITY)
    assert Image.open(tmp_path / "palette.png").mode == "P"
    assert grey.tolist() == palette.tolist() == values
    for mode in ("RGB", "RGBA"):
        Image.open(tmp_path / "palette.png").convert(mode).save(tmp_path / "colour.png")
        with pytest.raises(FplError, match=rf"mode {mode}: colours instead of class indices\n.*palette"):
            read_label(tmp_path / "colour.png", CITY)


@pytest.mark.parametrize("bits", [1, 2, 4])
@pytest.mark.parametrize("mode", ["L", "P"])
def test_labels_of_few_bits_are_not_stretched(tmp_path: Path, bits: int, mode: str) -> None:
    values = np.arange(2**bits, dtype=np.uint8)[None] % 11
    if mode == "P":
        save(tmp_path / "x.png", values, "P")
        Image.open(tmp_path / "x.png").save(tmp_path / "y.png", bits=bits)
    else:
        _write_grey_png(tmp_path / "y.png", values, bits)
    assert read_label(tmp_path / "y.png", CITY).tolist() == values.tolist()


def _write_grey_png(path: Path, values: np.ndarray, bits: int) -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    binary = "".join(f"{value:0{bits}b}" for value in values[0])
    binary += "0" * (-len(binary) % 8)
    row = bytes(int(binary[start : start + 8], 2) for start in range(0, len(binary), 8))
    header = struct.pack(">IIBBBBB", values.shape[1], 1, bits, 0, 0, 0, 0)
    data = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" + row)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + data)


def test_sixteen_bit_labels(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 18, 255]], np.uint16)).save(tmp_path / "x.png")
    assert read_label(tmp_path / "x.png", CITY).tolist() == [[0, 18, 255]]
    Image.fromarray(np.array([[0, 1000]], np.uint16)).save(tmp_path / "x.png")
    with pytest.raises(FplError, match="1000"):
        read_label(tmp_path / "x.png", CITY)


def test_r16_r17_foreign_values_are_refused_with_file_and_values(tmp_path: Path) -> None:
    path = save(tmp_path / "x.png", [[*range(11, 26), 0, 255]])
    assert read_label(save(tmp_path / "ok.png", [[0, 11, 10]]), CAMVID).tolist() == [[0, 255, 10]]
    with pytest.raises(FplError) as caught:
        read_label(path, CAMVID)
    assert "no class of camvid: 12, 13, 14, 15, 16, 17, 18, 19, 20, 21 and 4 more" in caught.value.message
    assert "allowed are 0..11 and 255" in caught.value.message
    with pytest.raises(FplError, match=r"synthetic_city: 19\n"):
        read_label(save(path, [[19, 0]]), CITY)
    with pytest.raises(FplError, match=r"synthetic_city: 21, 200\n.*allowed are 0..18"):
        read_label(save(path, [[21, 200]]), CITY)


def test_r21_size_mismatch_names_both_sizes(tmp_path: Path) -> None:
    save(tmp_path / "train" / "a.png", np.zeros((37, 53, 3)))
    save(tmp_path / "trainannot" / "a.png", np.zeros((37, 54)))
    with pytest.raises(FplError, match=r"label is 37x54, its image a.png is 37x53"):
        Images(CAMVID, tmp_path, "train").label("a")


def test_images_are_reduced_and_kept(tmp_path: Path) -> None:
    write_camvid(tmp_path, ["a"], size=(41, 50))
    images = Images(CAMVID, tmp_path, "train", downscale=3)
    assert images.image("a").shape == (13, 16, 3)
    assert images.label("a").shape == (13, 16)
    assert images.full_label("a").shape == (41, 50)
    assert set(np.unique(images.label("a"))) <= {*range(11), 255}
    assert images.image("a") is images.image("a")
    assert images.label("a") is images.label("a")
    assert images.kept_bytes == 4 * 13 * 16 + 41 * 50
    assert images.label_reads == {"a": 2}
    forgetful = Images(CAMVID, tmp_path, "train", keep=False)
    assert forgetful.image("a") is not forgetful.image("a")
    assert forgetful.kept_bytes == 0
    with pytest.raises(FplError, match="downscale = 0"):
        Images(CAMVID, tmp_path, "train", downscale=0)


def test_reducing_averages_images_and_picks_labels(tmp_path: Path) -> None:
    board = np.indices((32, 32)).sum(0) % 2
    save(tmp_path / "train" / "a.png", (board * 200)[..., None].repeat(3, 2))
    save(tmp_path / "trainannot" / "a.png", board * 10)
    images = Images(CAMVID, tmp_path, "train", downscale=4)
    inner = images.image("a")[1:-1, 1:-1]
    assert 95 <= inner.min() <= inner.max() <= 105
    assert set(np.unique(images.label("a"))) <= {0, 10}
