"""Options that go together: one parameter of a command, on the command line as if each were written out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from fpl.cli.groups import LAST, grouped


@dataclass(frozen=True)
class Weather:
    wind: Annotated[int, typer.Option(min=0, help="In knots.")] = 3
    clouds: Annotated[list[str] | None, typer.Option("--cloud", help="Their names.")] = None
    note: Annotated[str, typer.Option(help="For the log.")] = field(default="", metadata=LAST)


@dataclass(frozen=True)
class Storm(Weather):
    wind: Annotated[int, typer.Option(min=50, help="In knots, many.")] = 60
    thunder: bool = False


@grouped
def sail(
    boat: Annotated[str, typer.Argument(help="Which.")],
    *,
    first: bool = False,
    weather: Weather,
    after: int = 0,
) -> None:
    """Sail."""
    print(boat, first, weather, after)


@grouped
def flee(storm: Storm) -> None:
    """Flee."""
    print(storm)


def run(command: object, *arguments: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(command)  # type: ignore[type-var]
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


def test_the_command_is_handed_one_object_and_its_options_are_in_order() -> None:
    given = ["ketch", "--wind", "7", "--cloud", "cirrus", "--cloud", "stratus", "--after", "2"]
    code, text = run(sail, *given)
    assert (code, text.strip()) == (0, f"ketch False {Weather(7, ['cirrus', 'stratus'])} 2")
    assert run(sail, "sloop")[1].strip() == f"sloop False {Weather()} 0"
    code, text = run(sail, "--help")
    places = [text.index(option) for option in ("--first", "--wind", "--cloud", "--after", "--note")]
    assert code == 0 and places == sorted(places) and "In knots." in text and "Sail." in text


def test_limits_hold_and_a_group_may_build_on_another() -> None:
    assert run(sail, "ketch", "--wind", "-1")[0] == 2
    assert run(flee, "--wind", "7")[0] == 2
    assert run(flee, "--thunder", "--note", "x")[1].strip() == str(Storm(thunder=True, note="x"))


def test_it_can_be_called_with_the_fields_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    sail(boat="yawl", wind=9)
    assert capsys.readouterr().out.strip() == f"yawl False {Weather(9)} 0"
    with pytest.raises(TypeError, match="rain"):
        sail(boat="yawl", rain=1)


def test_two_options_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="duplicate"):

        @grouped
        def both(weather: Weather, storm: Storm) -> None: ...
