"""Downloads what may be downloaded, where there is a network; for the rest, says what to fetch and where to put it."""

from __future__ import annotations

import shutil
import socket
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from fpl.data.spec import get_spec
from fpl.errors import FplError

ANSWER_SECONDS = 15.0
"""So long may a server take to answer before the download begins."""
STALL_SECONDS = 60.0
"""So long may a download stand still."""

SBD = "sbd"
"""Folder of SBD below the data root."""

_LOGIN = {"cityscapes": "log in at https://www.cityscapes-dataset.com/downloads and "}


@dataclass(frozen=True)
class Archive:
    """A file to download and unpack.

    Attributes:
        title: What it is.
        url: Where it is.
        filename: Its name.
        md5: Its checksum.
        inside: The folder in it that is wanted.
        places: Where that folder may be below the data root; it is put into the first.
        proof: What must be in it.
    """

    title: str
    url: str
    filename: str
    md5: str
    inside: str
    places: tuple[str, ...]
    proof: str


def voc_archives() -> list[Archive]:
    """VOC 2012 and SBD: addresses and checksums are torchvision's."""
    from torchvision.datasets import SBDataset
    from torchvision.datasets.voc import DATASET_YEAR_DICT

    voc = DATASET_YEAR_DICT["2012"]
    places = get_spec("voc").folders
    return [
        Archive(
            title="PASCAL VOC 2012 (1.9 GB)",
            url=voc["url"],
            filename=voc["filename"],
            md5=voc["md5"],
            inside="VOCdevkit/VOC2012",
            places=places,
            proof="JPEGImages",
        ),
        Archive(
            title="SBD (1.4 GB)",
            url=SBDataset.url,
            filename=SBDataset.filename,
            md5=SBDataset.md5,
            inside="benchmark_RELEASE",
            places=(SBD,),
            proof="dataset/cls",
        ),
    ]


def download(dataset: str, data_root: Path, tell: Callable[[str], None] = lambda text: None) -> list[Path]:
    """Download a data set into the data root; what is there is left alone, so the same command continues.

    Archives are kept in `data_root/downloads`: one that was put there by hand is used without a network. Each is
    checked by its MD5 sum and unpacked beside, then moved to its place, so that what is in place is complete.

    Args:
        dataset: Only "voc" can be downloaded by a program.
        data_root: Folder of all data sets.
        tell: Called with a line about each step.

    Returns:
        The folders in place.

    Raises:
        FplError: The data set cannot be downloaded, there is no network, or an archive is broken; the message says
            what to fetch by hand and where to put it.
    """
    spec = get_spec(dataset)
    remedy = spec.remedy.format(folder=data_root / spec.folder, data_root=data_root)
    if spec.drawn:
        raise FplError(f"{dataset} is not downloaded", hint=remedy)
    if dataset != "voc":
        hint = f"{_LOGIN.get(dataset, '')}{remedy}; then: fpl data check {dataset} --data-root {data_root}"
        raise FplError(f"{dataset} cannot be downloaded by a program", hint=hint)
    return [_fetch(archive, data_root, tell) for archive in voc_archives()]


def _fetch(archive: Archive, data_root: Path, tell: Callable[[str], None]) -> Path:
    from torchvision.datasets.utils import download_url

    for there in (data_root / place for place in archive.places):
        if (there / archive.proof).is_dir():
            tell(f"{archive.title} is there: {there}")
            return there
    place, downloads = data_root / archive.places[0], data_root / "downloads"
    if place.exists():
        raise FplError(f"there is a folder, but no {archive.proof} in it", where=str(place), hint="move it away first")
    file = downloads / archive.filename
    by_hand = f"fetch {archive.url} (MD5 {archive.md5}), put it into {downloads} and give the same command again"
    if not file.is_file() and (reason := _unreachable(archive.url)):
        raise FplError(f"{archive.title} cannot be downloaded: {reason}", where=archive.url, hint=by_hand)
    try:
        tell(f"{archive.title}: {'checking' if file.is_file() else 'downloading'} {file}")
        with _stall_limit(STALL_SECONDS):
            download_url(archive.url, str(downloads), archive.filename, archive.md5)
    except (OSError, RuntimeError, HTTPException) as error:
        raise FplError(f"{archive.title} cannot be downloaded: {error}", where=archive.url, hint=by_hand) from error

    tell(f"{archive.title}: unpacking (a minute or two)")
    for left_over in downloads.glob(f".{archive.filename}-*"):
        shutil.rmtree(left_over, ignore_errors=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{archive.filename}-", dir=downloads))
    try:
        unpack(file, staging)
        place.parent.mkdir(parents=True, exist_ok=True)
        (staging / archive.inside).rename(place)
    except (OSError, RuntimeError, EOFError, tarfile.TarError) as error:
        what = f"{archive.title} cannot be unpacked: {error}"
        raise FplError(what, where=str(file), hint="is the disk full, or the folder not writable?") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    tell(f"{archive.title} is in {place}; {file} may be deleted")
    return place


def unpack(archive: Path, to: Path) -> None:
    """Unpack a tar archive with tarfile's data filter: nothing outside the folder, no device, no odd permission.

    Raises:
        tarfile.TarError: The archive is broken, or a member would lie or point outside the folder.
    """
    with tarfile.open(archive) as tar:
        tar.extractall(to, filter="data")


def _unreachable(url: str) -> str:
    """Why there is no answer from a server, empty if there is; comes back in time whatever the network does."""
    reasons = [f"no answer within {ANSWER_SECONDS:.0f} s"]

    def ask() -> None:
        try:
            with urlopen(Request(url, method="HEAD", headers={"User-Agent": "fpl"}), timeout=ANSWER_SECONDS):
                reasons[0] = ""
        except HTTPError as error:
            # A server that only minds being asked this way is there.
            reasons[0] = "" if error.code in (403, 405, 501) else f"the server answers {error.code} {error.reason}"
        except (URLError, OSError, ValueError) as error:
            reasons[0] = f"no network, or the server is down ({getattr(error, 'reason', error)})"

    # Looking up a name has no time limit of its own: a thread can be left behind.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    return reasons[0]


@contextmanager
def _stall_limit(seconds: float) -> Iterator[None]:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
