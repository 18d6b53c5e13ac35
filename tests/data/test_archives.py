"""Archives: recognized by their bytes, damage and hostile members refused with archive and member."""

from __future__ import annotations

import io
import random
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from fpl.data import archives as module
from fpl.data.archives import open_archives
from fpl.errors import FplError
from tests.data.delivered import Files, write_folder, write_tar, write_zip

# Noise: what is compressed stays as large, so that a cut is in the middle of it.
NOISE = random.Random(0).randbytes(20_000)
FILES = {"a/x.png": NOISE, "a/b/y.png": NOISE[::-1], "a/b/z.txt": b""}
WRITERS: dict[str, Callable[[Path, Files], Path]] = {
    "zip": write_zip,
    "tar": write_tar,
    "tgz": lambda path, files: write_tar(path, files, "gz"),
    "tar.bz2": lambda path, files: write_tar(path, files, "bz2"),
    "tar.xz": lambda path, files: write_tar(path, files, "xz"),
}
ALL = pytest.mark.parametrize("kind", WRITERS)


def contents(*paths: Path) -> list[Files]:
    with open_archives(list(paths), lambda done, total: None) as opened:
        return [{member.name: archive.read(member) for member in archive.members} for archive in opened]


def refused(path: Path) -> FplError:
    with pytest.raises(FplError) as caught:
        contents(path)
    assert caught.value.where.startswith(str(path)) and caught.value.hint
    return caught.value


@ALL
def test_members_come_as_they_are(tmp_path: Path, kind: str) -> None:
    hidden = {"__MACOSX/a/._x.png": b"Mac", "a/.DS_Store": b"Mac"}
    path = WRITERS[kind](tmp_path / "x", {"./a/x.png": NOISE, "/a\\b//y.png": NOISE[::-1], "a/b/z.txt": b""} | hidden)
    assert contents(path, tmp_path / "x") == [FILES]


def test_a_folder_is_an_archive_too(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "x", FILES | {"a/.cache/y.png": b"hidden"}) / "a"
    (folder / "link.png").symlink_to(folder / "x.png")
    (folder / "b" / "back").symlink_to(folder)
    assert contents(folder) == [FILES | {"a/link.png": NOISE}]


def test_tar_archives_are_reported_while_they_are_read(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    path = write_tar(tmp_path / "x", FILES)
    with open_archives([path], lambda done, total: told.append((done, total))):
        size = path.stat().st_size
    assert [total for _, total in told] == [size] * 3
    assert told == sorted(told) and 0 < told[0][0] <= told[-1][0] <= size


@ALL
@pytest.mark.parametrize("share", [0.01, 0.3, 0.6, 0.97])
def test_what_is_cut_off_is_refused_before_a_member_is_read(tmp_path: Path, kind: str, share: float) -> None:
    path = WRITERS[kind](tmp_path / "x", FILES)
    whole = path.read_bytes()
    # The zeros behind the end mark of a tar archive may be missing.
    end = len(whole.rstrip(b"\0")) if kind == "tar" else len(whole)
    path.write_bytes(whole[: int(end * share)])
    with pytest.raises(FplError) as caught, open_archives([path], lambda done, total: None):
        pytest.fail("it was opened")
    assert caught.value.where == str(path)
    assert "cut off" in caught.value.what or (kind == "tar" and "neither a zip nor a tar" in caught.value.what)


def test_a_tar_that_ends_between_two_members_is_cut_off(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "x", FILES)
    with tarfile.open(path) as tar:
        path.write_bytes(path.read_bytes()[: tar.getmembers()[1].offset])
    assert "no end mark behind the last file" in refused(path).what


def test_a_damaged_header_in_the_middle_is_no_end(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "x", FILES)
    with tarfile.open(path) as tar:
        second = tar.getmembers()[1].offset
    damaged = bytearray(path.read_bytes())
    damaged[second + 3] ^= 255
    path.write_bytes(damaged)
    assert "no end mark behind the last file" in refused(path).what


def test_a_list_of_members_whose_names_are_no_text(tmp_path: Path) -> None:
    path = WRITERS["zip"](tmp_path / "x", {"a/\u00e9.png": b"x"})
    path.write_bytes(path.read_bytes().replace("\u00e9".encode(), b"\xff\xff"))
    assert "cut off or damaged" in refused(path).what


@pytest.mark.parametrize("kind", ["zip", "tgz", "tar.bz2", "tar.xz"])
def test_changed_bytes_are_found_by_checksum(tmp_path: Path, kind: str) -> None:
    path = WRITERS[kind](tmp_path / "x", FILES)
    damaged = bytearray(path.read_bytes())
    for position in range(3000, 3020):
        damaged[position] ^= 85
    path.write_bytes(damaged)
    error = refused(path)
    assert "cut off or damaged" in error.what and "download the archive again" in error.hint
    assert kind != "zip" or error.where == f"{path}, a/x.png"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "the file is empty"),
        (b"  <!DOCTYPE html><title>Login</title>", "a web page and no archive"),
        (b"Rar!\x1a\x07\x01\x00" + NOISE, "neither a zip nor a tar archive"),
        (b"\x1f\x8b\x08", "cut off or damaged at its beginning"),
    ],
)
def test_what_is_no_archive(tmp_path: Path, content: bytes, text: str) -> None:
    (tmp_path / "x.zip").write_bytes(content)
    assert text in refused(tmp_path / "x.zip").what


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(FplError, match="no such file") as caught:
        contents(tmp_path / "nothing.zip")
    assert caught.value.where == str(tmp_path / "nothing.zip")


@ALL
@pytest.mark.parametrize("name", ["../x.png", "a/../../x.png", "a\\..\\..\\x.png"])
def test_members_outside_are_refused(tmp_path: Path, kind: str, name: str) -> None:
    path = WRITERS[kind](tmp_path / "x", FILES | {name: b"bad"})
    error = refused(path)
    assert "a hostile archive" in error.what and "nothing of this archive is taken" in error.hint


@pytest.mark.parametrize("target", ["/etc", "../../../x"])
@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_tar_links_that_point_outside_are_refused(tmp_path: Path, kind: bytes, target: str) -> None:
    path = write_tar_link(tmp_path / "x", kind, target)
    assert "a hostile archive" in refused(path).what


def test_devices_are_refused(tmp_path: Path) -> None:
    assert "a hostile archive" in refused(write_tar_link(tmp_path / "x", tarfile.CHRTYPE, "")).what


def test_links_inside_are_no_files(tmp_path: Path) -> None:
    error = refused(write_tar_link(tmp_path / "x", tarfile.SYMTYPE, "x.png"))
    assert error.what == "the file is a link" and error.where.endswith(", a/link.png")
    with zipfile.ZipFile(tmp_path / "y", "w") as archive:
        link = zipfile.ZipInfo("a/link.png")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "x.png")
    assert refused(tmp_path / "y").what == "the file is a link"


def write_tar_link(path: Path, kind: bytes, target: str) -> Path:
    with tarfile.open(path, "w") as archive:
        link = tarfile.TarInfo("a/link.png")
        link.type, link.linkname = kind, target
        archive.addfile(link)
        archive.addfile(tarfile.TarInfo("a/x.png"), io.BytesIO())
    return path


def test_zip_members_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    whole = write_zip(tmp_path / "x", {"a": b"content"}).read_bytes()
    entry = whole.index(b"PK\x01\x02")
    for offset, value, text in ((8, 1, "the file is encrypted"), (10, 9, "has the unknown compression 9")):
        changed = bytearray(whole)
        changed[entry + offset] = value
        (tmp_path / "x").write_bytes(changed)
        assert text in refused(tmp_path / "x").what


@pytest.mark.parametrize("kind", ["zip", "tgz"])
def test_bombs_are_not_unpacked(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST", 99_999)
    path = WRITERS[kind](tmp_path / "x", {"a/x.png": bytes(100_000)})
    assert path.stat().st_size < 1000
    error = refused(path)
    assert "100,000 bytes, more than the limit of 99,999" in error.what and error.where == f"{path}, a/x.png"
