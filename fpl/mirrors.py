"""Which folders of this machine stand for folders on object storage (`fpl.mirror`).

That is known to a process, not written down: whoever hands folders to another process tells it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from fpl.errors import FplError
from fpl.mirror import SCRATCH_VARIABLE, Mirror
from fpl.storage import place_of

_MIRRORS: dict[Path, Mirror] = {}
# In a mirror: the URL of what it stands for. What lies in a hidden folder stays here.
MARK = ".mirror/url"


def attach(url: str, folder: Path | None = None) -> Mirror:
    """Let this process keep a folder equal to one on object storage; nothing is read or written yet.

    Args:
        url: What `url_of` gives.
        folder: The folder here; None: one of its name below the scratch folder.

    Raises:
        FplError: It is no such URL.
    """
    place = place_of(url)
    folder = folder or scratch_folder().joinpath(*place)
    mirror = _MIRRORS.get(folder)
    if mirror is None or mirror.url != url:
        mirror = _MIRRORS[folder] = Mirror(url, folder)
    return mirror


def check_own(folder: Path) -> None:
    """Refuse a mirror as a folder of its own: what is not on object storage is removed from it.

    Raises:
        FplError: It is one, and of none that this process knows.
    """
    with contextlib.suppress(OSError):
        url = (folder / MARK).read_text(encoding="utf-8", errors="replace")
        if mirror_of(folder.absolute()) is None:
            what = "is this machine's copy of a store on object storage, kept equal to it"
            raise FplError(what, where=str(folder), hint=f"name the store itself: {url}")


def mirror_of(path: Path) -> Mirror | None:
    """The mirror that a path lies in; None for any other path, and for what lies in hidden folders: caches."""
    for folder, mirror in _MIRRORS.items():
        if path.is_relative_to(folder):
            above = path.parent.relative_to(folder).parts if path != folder else ()
            return None if any(part.startswith(".") for part in above) else mirror
    return None


def name_of(path: Path) -> str:
    """What to call a path: on object storage by its place there."""
    if (mirror := mirror_of(path)) is None:
        return str(path)
    address, _, _ = mirror.url.partition("?")
    inside = path.relative_to(mirror.folder).as_posix()
    return address if inside == "." else f"{address}/{inside}"


def refresh(path: Path) -> None:
    """Make a folder of a mirror what it is on object storage; any other is left as it is."""
    if (mirror := mirror_of(path)) is not None:
        mirror.pull(path)


def came_damaged(path: Path) -> bool:
    """Whether a file that seems damaged was so on this machine alone, and now is what it is on object storage."""
    mirror = mirror_of(path)
    return mirror is not None and mirror.fetch_again(path)


def folder_names(folder: Path) -> list[str]:
    """Names of the folders in a folder, on object storage those that are there; none where there is no such folder."""
    if (mirror := mirror_of(folder)) is not None:
        return mirror.folders(folder)
    return sorted(path.name for path in folder.glob("*/"))


def scratch_folder() -> Path:
    """Below which folder of this machine mirrors lie: FPL_SCRATCH, else the user's cache."""
    if chosen := os.environ.get(SCRATCH_VARIABLE):
        return Path(chosen).absolute()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "fpl" / "stores"
