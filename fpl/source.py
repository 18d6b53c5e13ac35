"""The suite's own source code as a value: what it makes is named by the code that made it."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
from pathlib import Path

from fpl.files import visible

PACKAGE = Path(__file__).parent


@functools.cache
def source_digest(*parts: str, libraries: tuple[str, ...] = ()) -> str:
    """Eight hex digits over source files and versions of libraries.

    A version number that somebody has to raise is forgotten; this one changes with every edit, and what it names is
    cheap to make again.

    Args:
        parts: Modules and packages below `fpl`, as paths: `data/scene.py`, `models`; none stands for all of `fpl`.
        libraries: Distributions whose versions count too.

    Raises:
        FileNotFoundError: There is no such part: a programming error.
    """
    found = hashlib.sha256()
    for part in parts or (".",):
        place = PACKAGE / part
        files = [place] if place.suffix == ".py" else visible(place, "**/*.py")
        if not files:
            raise FileNotFoundError(place)
        for path in files:
            found.update(f"{path.relative_to(PACKAGE)}\n".encode() + path.read_bytes())
    for library in libraries:
        found.update(f"{library} {importlib.metadata.version(library)}\n".encode())
    return found.hexdigest()[:8]
