"""Pages of the reference that are made of the code when the site is built, so that they cannot fall behind it."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from pydantic import BaseModel
from typer import Context
from typer.cli import get_docs_for_click
from typer.main import get_command

from fpl.cli.main import app
from fpl.config.registry import method_names, options_class
from fpl.config.schema import RunConfig
from fpl.store.columns import CELLS, COLUMNS, DERIVED, SCHEMAS, TABLES

LOSSES = """# The loss

::: fpl.losses.fuzzy_positive_loss

::: fpl.losses.assign

::: fpl.losses.PixelLoss
"""

RESULTS = """# Results and trained networks

::: fpl.store.read.load_results

::: fpl.store.read.Results

::: fpl.train.model.load_model

::: fpl.train.model.SegmentationModel
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    pages = {"config": config_page(), "methods": methods_page(), "columns": columns_page(), "commands": commands_page()}
    for name, text in (pages | {"losses": LOSSES, "results": RESULTS}).items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def config_page() -> str:
    """Every key of an experiment file but those of `[method]`."""
    lines = [
        "# Keys of the configuration",
        "",
        "An experiment file is TOML; `fpl train FILE key=value` overrides a key. ",
        "",
    ]
    for name, field in RunConfig.model_fields.items():
        model = field.annotation
        if isinstance(model, type) and issubclass(model, BaseModel) and name != "method":
            lines += [f"## [{name}]", "", _text(model), "", *_table(model, f"{name}.")]
    return "\n".join(lines)


def methods_page() -> str:
    """Every method with the keys of its `[method]` table."""
    lines = ["# Methods and their keys", "", "`method.name` chooses one. What each is: [systems](../systems.md).", ""]
    for name in method_names():
        model = options_class(name)
        native = f'Natively its unlabeled term is `loss.kind = "{model.native_kind}"`.' if model.unlabeled else ""
        lines += [f"## {name}", "", _text(model), "", native, "", *_table(model, "method.")]
    return "\n".join(lines)


def columns_page() -> str:
    """The data dictionary: every column of every Parquet table."""
    lines = ["# Columns of the tables", "", 'In pandas `frame.attrs["columns"]` says the same.', ""]
    for name, schema in SCHEMAS.items():
        lines += [f"## {name}", "", TABLES[name], "", "| column | type | unit | what |", "|---|---|---|---|"]
        for field in schema:
            unit, what = COLUMNS[name][field.name]
            lines.append(f"| `{field.name}` | {field.type} | {_cell(unit)} | {_cell(what)} |")
        lines.append("")
    frames = {
        "Results.cells": ("One row a scale, table of the paper, row, column and seed.", CELLS),
        "Other columns of frames": ("Frames have them beside those of their table.", DERIVED),
    }
    for name, (words, columns) in frames.items():
        lines += [f"## {name}", "", words, "", "| column | unit | what |", "|---|---|---|"]
        lines += [f"| `{key}` | {_cell(unit)} | {_cell(what)} |" for key, (unit, what) in columns.items()]
        lines.append("")
    return "\n".join(lines)


def commands_page() -> str:
    """Every command with its options, as `--help` has them."""
    command = get_command(app)
    context = Context(command, info_name="fpl")
    with context:
        return "# Commands\n\n" + get_docs_for_click(obj=command, ctx=context, name="fpl")


def _text(model: type[BaseModel]) -> str:
    return inspect.getdoc(model) or ""


def _table(model: type[BaseModel], prefix: str) -> list[str]:
    lines = ["| key | values | default | |", "|---|---|---|---|"]
    lines += [f"| `{prefix}{key}` | {' | '.join(map(_cell, cells))} |" for key, cells in _keys(model)]
    return [*lines, ""]


def _keys(model: type[BaseModel], before: str = "") -> Iterator[tuple[str, tuple[str, str, str]]]:
    comments, schema = _comments(model), model.model_json_schema()
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _keys(inner, f"{before}{name}.")
            continue
        values = _values(schema["properties"][name])
        default = "required" if field.is_required() else json.dumps(schema["properties"][name].get("default"))
        yield f"{before}{name}", (values, "unset" if default == "null" else default, comments.get(name, ""))


def _values(schema: Mapping[str, Any]) -> str:
    """What a key may be, from its JSON schema."""
    if "anyOf" in schema:
        return " or ".join(_values(one) for one in schema["anyOf"] if one.get("type") != "null")
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return ", ".join(json.dumps(one) for one in schema["enum"])
    if schema.get("type") == "array":
        items = schema.get("prefixItems") or [schema.get("items", {})]
        return f"{len(items) if 'prefixItems' in schema else 'list'} of {_values(items[0])}"
    limits = {"minimum": ">= {}", "exclusiveMinimum": "> {}", "maximum": "<= {}", "exclusiveMaximum": "< {}"}
    said = [words.format(schema[key]) for key, words in limits.items() if key in schema]
    return f"{schema.get('type', 'any')} {', '.join(said)}".strip()


def _comments(model: type[BaseModel]) -> dict[str, str]:
    """The comment above each field, where one stands there."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if not (issubclass(base, BaseModel) and base is not BaseModel):
            continue
        said: list[str] = []
        for line in inspect.getsource(base).splitlines():
            if comment := re.match(r"    # (.*)", line):
                said.append(comment[1])
                continue
            if (field := re.match(r"    (\w+):", line)) and said:
                found[field[1]] = " ".join(said)
            said = []
    return found


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
