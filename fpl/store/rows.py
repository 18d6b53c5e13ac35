"""What is wrong with rows of the store: names that are none, JSON that is none, settings outside of their search.

A row that is wrong blocks nothing but itself: `fpl.store.parts` leaves it out and says so.
"""

from __future__ import annotations

import datetime
import functools
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, get_args

from pydantic import ValidationError

from fpl.config.defaults import MOST_SEED
from fpl.config.identity import digest_of, recipe_digest, recipes_by_seed
from fpl.config.layers import flatten
from fpl.config.search import DIRECTIONS, Parameter
from fpl.names import is_name
from fpl.store.columns import SCHEMAS
from fpl.store.pictures import KINDS, decode
from fpl.store.schema import EXAMPLES, FAILURES, KEYS, METRICS, NOISE, RUNS, STUDIES, TRIALS
from fpl.text import is_plain, printable_tree

Row = Mapping[str, Any]
FRACTION = "data.split.fraction"
# Of a trial.
State = Literal["running", "complete", "pruned", "failed", "final"]
_TRIAL_TIMES = ("started_at", "updated_at")
# Brackets of a text that nobody can have nested too deeply with.
SHALLOW = 200
# Columns of `Results.runs` that no key of a configuration may be called.
_TAKEN = {*SCHEMAS[RUNS].names, "recipe"}
# The key in a JSON text without escapes, and a number behind it.
_SEED = '"seed":'
_NUMBER = re.compile(r"(?:0|[1-9]\d{0,15})(?=[,}])")
# With an exponent, a short text would be a number that takes for ever to compute.
_AMOUNT = re.compile(r"\d{1,18}(?:/0*[1-9]\d{0,17})?", re.ASCII)


def problem_of(table: str, row: Row) -> str:
    """What is wrong with a row of a table; empty if nothing is."""
    nulls = [name for name in KEYS[table] if row[name] is None]
    if nulls:
        return f"no {', '.join(nulls)}"
    try:
        for name in ("run_id", "study", "search"):
            if name in KEYS[table]:
                _check_name(name, row[name])
        if table in _CHECKS:
            _CHECKS[table](row)
    except ValidationError as error:
        return f"a parameter of its space is none: {error.errors()[0]['msg']}"
    except ValueError as error:
        return str(error)
    return ""


def read_json(text: str) -> Any:
    """What a JSON text holds, without characters that a terminal would obey.

    Raises:
        ValueError: It is no JSON, or is nested too deeply.
    """
    try:
        found = json.loads(text)
        # Few brackets, too: what is no deeper than that need not be looked at for it.
        plain = is_plain(text) and text.count("[") + text.count("{") < SHALLOW
        return found if plain else printable_tree(found)
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON: {error}") from None
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None


def read_object(text: str) -> dict[str, Any]:
    """The object that a JSON text holds.

    Raises:
        ValueError: It holds none.
    """
    found = read_json(text)
    if not isinstance(found, dict):
        raise ValueError(f"JSON of a {type(found).__name__} where an object should be")
    return found


@dataclass(frozen=True)
class Parsed:
    """The configuration of a run as the store has it.

    Attributes:
        flat: Dotted key -> value; shared by all runs that differ in their seed alone, and not to be changed.
        seed: The run's own where `flat` has 0 instead of it; None where `flat` is all there is.
        recipe: Its recipe digest.
    """

    flat: dict[str, Any]
    seed: int | None
    recipe: str


# As many as a large store has: each is asked for when its row is looked at, and again for the frame.
@functools.lru_cache(maxsize=2**14)
def read_config(text: str) -> Parsed:
    """A configuration from its JSON text, parsed once for all seeds.

    Raises:
        ValueError: It is none, or has a key that is a column of its own.
    """
    head, found, rest = text.partition(_SEED)
    number = _NUMBER.match(rest)
    if found and number and '"seed"' not in rest and is_plain(text):
        flat, recipe_of = _read_config(head, rest[number.end() :])
        # The only key of that name lies at the top.
        if "seed" in flat:
            return Parsed(flat, int(number[0]), recipe_of(int(number[0])))
    flat = _read_flat(text)
    return Parsed(flat, None, recipe_digest(flat))


@functools.lru_cache(maxsize=2**14)
def _read_config(head: str, tail: str) -> tuple[dict[str, Any], Callable[[int], str]]:
    flat = _read_flat(f"{head}{_SEED}0{tail}")
    return flat, recipes_by_seed(flat)


def _read_flat(text: str) -> dict[str, Any]:
    flat = flatten(read_object(text))
    if clash := sorted(_TAKEN & flat.keys()):
        raise ValueError(f"its configuration has a key {clash[0]}, which is a column of the table")
    return flat


def read_space(text: str) -> list[Parameter]:
    """The parameters of a study from its column `space`.

    Raises:
        ValueError: They are none.
    """
    items = read_json(text)
    if not isinstance(items, list) or not items:
        raise ValueError("a space without parameters")
    return [Parameter.model_validate(item) for item in items]


def misfit(params: Mapping[str, Any], space: Mapping[str, Parameter]) -> str:
    """Why the parameters of a trial do not belong to a study; empty if they do."""
    for key, value in params.items():
        if key not in space:
            return f"{key} is no parameter of its study"
        if not space[key].allows(value):
            return f"{key} = {value!r} lies outside of its study"
    return ""


def amount(fraction: Any) -> Fraction:
    """How many images are labeled: a share of all (`1/16`) or a count, as the configuration of a run says it.

    Raises:
        ValueError: It says neither.
    """
    if not _AMOUNT.fullmatch(text := str(fraction)):
        raise ValueError(f"{FRACTION} is {text[:40]!r}: 1/16 is one, and so is 92")
    return Fraction(text)


def moment(written: str) -> datetime.datetime:
    """A time of a row in UTC.

    Raises:
        ValueError: It is none.
    """
    try:
        return datetime.datetime.fromisoformat(written).astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"{written[:40]!r} is no time: 2026-01-31T12:00:00+00:00 is one") from None


def _check_name(column: str, value: str) -> None:
    if not is_name(value):
        raise ValueError(f"{column} {value!r} is no name")


def _check_run(row: Row) -> None:
    found = read_config(row["config"])
    # Every table counts the seeds of all runs. Runs of older versions may have none.
    seed = found.flat.get("seed") if found.seed is None else found.seed
    if seed is not None and (type(seed) is not int or not 0 <= seed <= MOST_SEED):
        raise ValueError(f"the seed of its configuration is none: a whole number from 0 to {MOST_SEED} is allowed")
    if (fraction := found.flat.get(FRACTION)) is not None:
        amount(fraction)
    # A run is its configuration: with that of another it would stand in tables as what it is not.
    own = digest_of(row["config"])
    if own != row["digest"] or not row["run_id"].endswith(f"-{own[:8]}"):
        said = f"run_id ends with {row['run_id'][-8:]} and digest is {row['digest'][:16]!r}"
        raise ValueError(f"its configuration is another run's, with the digest {own}, where {said}")


def _check_picture(row: Row) -> None:
    if row["kind"] not in KINDS:
        raise ValueError(f"no kind of picture {row['kind']!r}")
    try:
        decode(row["kind"], row["height"], row["width"], row["data"])
    except ValueError:
        size = f"{row['height']} x {row['width']}"
        raise ValueError(f"{len(row['data'])} bytes are no picture {row['kind']} of {size}") from None


def _check_study(row: Row) -> None:
    read_space(row["space"])
    amount(flatten(read_object(row["base"])).get(FRACTION))
    if row["metric"] not in METRICS:
        raise ValueError(f"metric {row['metric']!r} is none")
    if row["objectives"][:1] != ["miou"] or not set(row["objectives"]) <= DIRECTIONS.keys():
        raise ValueError(f"objectives {row['objectives']} are none")
    if min(row["seeds"], row["splits"], row["steps"]) < 1:
        raise ValueError("fewer than one seed, split or step")


def _check_trial(row: Row) -> None:
    read_object(row["params"])
    for column in _TRIAL_TIMES:
        if row[column]:
            moment(row[column])
    for name in row["run_ids"]:
        _check_name("run", name)
    if row["state"] not in get_args(State):
        raise ValueError(f"state {row['state']!r} is none")
    if len(row["steps"]) != len(row["values"]) or None in row["steps"]:
        raise ValueError(f"{len(row['steps'])} steps of {len(row['values'])} reports")
    if len(row["run_scores"]) > len(row["run_ids"]) or None in row["run_scores"]:
        raise ValueError(f"{len(row['run_scores'])} scores of {len(row['run_ids'])} runs")
    if row["state"] in ("complete", "final"):
        scores = [*row["run_scores"], row["score"], row["cost"]]
        if not row["run_scores"] or not all(value is not None and math.isfinite(value) for value in scores):
            raise ValueError(f"{row['state']}, but a score or cost of it is no number")


_CHECKS: dict[str, Callable[[Row], None]] = {
    RUNS: _check_run,
    EXAMPLES: _check_picture,
    STUDIES: _check_study,
    TRIALS: _check_trial,
}
# Tables whose rows are looked at one by one, and in which columns; of the others, which have thousands of rows a run,
# the keys alone.
LOOKED_AT = {table: KEYS[table] for table in (RUNS, FAILURES, NOISE, STUDIES, EXAMPLES)}
LOOKED_AT[TRIALS] = (*KEYS[TRIALS], "score", *_TRIAL_TIMES)
