from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import fpl.losses

FILES = sorted(Path(fpl.losses.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_package_stands_alone(path: Path) -> None:
    """Torch, the standard library and itself: this is the part that others lift out."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names = [node.module or ""]
        for name in names:
            root = name.split(".")[0]
            allowed = root == "torch" or root in sys.stdlib_module_names or name.startswith("fpl.losses")
            assert allowed, f"{path.name} imports {name}"


def test_exports_exist() -> None:
    assert len(FILES) > 5
    for name in fpl.losses.__all__:
        assert getattr(fpl.losses, name) is not None
