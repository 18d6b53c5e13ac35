"""Methods of other packages that are broken: refused in words, whatever their code does."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fpl.config import registry
from fpl.config.registry import method_class, options_class
from fpl.errors import FplError

HEAD = """
from typing import ClassVar, Literal
from fpl.config.method import MethodOptions
"""
GOOD = (
    HEAD
    + """
class Options(MethodOptions):
    implementation: ClassVar[str] = "their_method:Trains"
    name: Literal["theirs"]
class Trains: pass
"""
)


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes the module of a method `theirs`, as if its package were installed."""

    def write(code: str) -> None:
        (tmp_path / "their_method.py").write_text(code)

    point = SimpleNamespace(name="theirs", value="their_method:Options")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registry.importlib.metadata, "entry_points", lambda group: [point])  # type: ignore[attr-defined]
    for cached in (registry._places, options_class):
        cached.cache_clear()
    yield write
    sys.modules.pop("their_method", None)
    monkeypatch.undo()
    for cached in (registry._places, options_class):
        cached.cache_clear()


def test_a_method_of_another_package_is_found(theirs: Any) -> None:
    theirs(GOOD)
    assert method_class(options_class("theirs").model_validate({"name": "theirs"})).__name__ == "Trains"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def broken(:\n", "cannot be loaded: SyntaxError: invalid syntax"),
        ("1 / 0\n", "cannot be loaded: ZeroDivisionError: division by zero"),
        ("import no_such_module\n", "cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'"),
        (HEAD, "cannot be loaded: AttributeError: module 'their_method' has no attribute 'Options'"),
        ("Options = 5\n", "is no MethodOptions"),
        (HEAD + "class Options(MethodOptions):\n    name: str\n", 'its field name has to be Literal["theirs"]'),
    ],
)
def test_options_that_cannot_be_had_are_refused_by_name(theirs: Any, code: str, message: str) -> None:
    theirs(code)
    with pytest.raises(FplError) as refused:
        options_class("theirs")
    assert refused.value.what.startswith(message)
    assert refused.value.where == "method theirs (their_method:Options)"


@pytest.mark.parametrize(
    ("implementation", "message"),
    [
        (
            '"their_method:Misnamed"',
            "cannot be loaded: AttributeError: module 'their_method' has no",
        ),
        ('"no_such_module:Trains"', "cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'"),
        ('"their_method"', "its implementation is 'their_method'"),
        ("None", "its implementation is None"),
        ('"their_method:HEAD"', "is no class"),
    ],
)
def test_an_implementation_that_cannot_be_had_is_refused_by_name(
    theirs: Any, implementation: str, message: str
) -> None:
    theirs(GOOD.replace('"their_method:Trains"', implementation).replace("ClassVar[str]", "ClassVar") + "HEAD = 1\n")
    options = options_class("theirs").model_validate({"name": "theirs"})
    with pytest.raises(FplError, match="method theirs") as refused:
        method_class(options)
    assert refused.value.what.startswith(message)
