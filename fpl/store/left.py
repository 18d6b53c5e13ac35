"""What of a store on object storage was not brought here, because a compacted file that is here has its rows.

Written down beside the tables, so that every process that reads the folder knows of it, also one that is told of no
object storage.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from fpl.errors import FplError
from fpl.files import remove, write_changed

# Hidden: it says what is here, and stays here.
FOLDER = ".left"

# What changes with the content of a file: its size in bytes, and when it changed in ns of the file system.
Version = tuple[int, int]


def left_there(folder: Path, table: str) -> dict[str, Version]:
    """Name and version of each file of a table that is on object storage alone; nothing for a store of this machine."""
    try:
        listed = json.loads((folder / FOLDER / f"{table}.json").read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        what, hint = "cut off or damaged", "name the store by its URL, which writes it anew"
        raise FplError(what, where=str(folder / FOLDER / f"{table}.json"), hint=hint) from error
    return {name: (size, changed) for name, (size, changed) in listed.items()}


def leave_there(folder: Path, table: str, files: Mapping[str, Version]) -> None:
    """Write down which files of a table are on object storage alone, in the place of what was written before."""
    path = folder / FOLDER / f"{table}.json"
    if files:
        write_changed(path, json.dumps(files, separators=(",", ":")).encode())
    elif path.exists():
        remove(path)
