"""What the tests of the deployment files share."""

from __future__ import annotations

from pathlib import Path

import typer

from fpl.cli.reproduce import reproduce

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def check_command(words: list[str]) -> None:
    """A call of `fpl reproduce`: known options only, and those that a cluster needs."""
    given = {word for word in words if word.startswith("--")}
    assert given <= _options_of_reproduce()
    assert {"--scale", "--out", "--data-root", "--weights", "--address", "--seeds"} <= given
    assert words[words.index("--address") + 1] == "auto" and words[words.index("--scale") + 1] == "paper"


def _options_of_reproduce() -> set[str]:
    app = typer.Typer()
    app.command()(reproduce)
    return {text for parameter in typer.main.get_command(app).params for text in parameter.opts}
