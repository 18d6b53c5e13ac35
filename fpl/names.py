"""Names that become parts of paths, commands and pages: of runs, studies, searches, tables, rows, columns, scales.

One rule for all of them, whether a person wrote them or a file gives them back.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

# Without dots and slashes: no name leaves its folder, and TABLE.ROW.COLUMN stays three names.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
RULE = "1 to 100 letters (a to z), digits, _ and -, the first a letter or digit"


def is_name(text: object) -> bool:
    """Whether something may be a name."""
    return isinstance(text, str) and NAME.fullmatch(text) is not None


def _checked(text: str) -> str:
    if not is_name(text):
        raise ValueError(f"{text!r} is no name: {RULE}")
    return text


# In a pydantic model: text that is a name.
Name = Annotated[str, AfterValidator(_checked)]
