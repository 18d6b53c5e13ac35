"""Downloads the archives that may be downloaded, where there is a network; for the rest, says what to fetch."""

from __future__ import annotations

import socket
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

_LOGIN = {"cityscapes": "log in at https://www.cityscapes-dataset.com/downloads and "}


@dataclass(frozen=True)
class Download:
    """An archive to download.

    Attributes:
        title: What it is.
        url: Where it is.
        filename: Its name.
        md5: Its checksum.
    """

    title: str
    url: str
    filename: str
    md5: str


def voc_archives() -> list[Download]:
    """VOC 2012 and SBD: addresses and checksums are torchvision's."""
    from torchvision.datasets import SBDataset
    from torchvision.datasets.voc import DATASET_YEAR_DICT

    voc = DATASET_YEAR_DICT["2012"]
    return [
        Download("PASCAL VOC 2012 (1.9 GB)", voc["url"], voc["filename"], voc["md5"]),
        Download("SBD (1.4 GB)", SBDataset.url, SBDataset.filename, SBDataset.md5),
    ]


def download(dataset: str, data_root: Path, tell: Callable[[str], None] = lambda text: None) -> list[Path]:
    """Download the archives of a data set, each checked by its MD5 sum; those that are complete are left alone.

    Args:
        dataset: Only "voc" can be downloaded by a program.
        data_root: Folder of all data sets; archives go to `downloads` in it, and may be put there by hand.
        tell: Called with a line about each step.

    Returns:
        The archives, for `fpl data prepare`.

    Raises:
        FplError: The data set cannot be downloaded, or there is no network; the message says what to fetch by hand.
    """
    spec = get_spec(dataset)
    remedy = spec.how_to_get(data_root)
    if spec.drawn:
        raise FplError(f"{dataset} is not downloaded", hint=remedy)
    if dataset != "voc":
        hint = f"{_LOGIN.get(dataset, '')}{remedy}"
        raise FplError(f"{dataset} cannot be downloaded by a program", hint=hint)
    return [_fetch(archive, data_root / "downloads", tell) for archive in voc_archives()]


def _fetch(archive: Download, downloads: Path, tell: Callable[[str], None]) -> Path:
    from torchvision.datasets.utils import download_url

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
    return file


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
