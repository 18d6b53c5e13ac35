"""JSON schemas of a Kubernetes resource: of our own list of fields, and of an operator's definition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema

Schema = dict[str, Any]
# As the definitions of operators write it.
QUANTITY: Schema = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}


def schema_of(fields: Any) -> Schema:
    """The schema of a list of fields as `rayjob_fields.yaml` has it, which allows nothing else."""
    if isinstance(fields, str):
        return QUANTITY if fields == "quantity" else {"type": fields}
    if isinstance(fields, list):
        (one,) = fields
        return {"type": "array", "items": schema_of(one)}
    if "*" in fields:
        return {"type": "object", "additionalProperties": schema_of(fields["*"])}
    return {
        "type": "object",
        "properties": {name.removesuffix("!"): schema_of(value) for name, value in fields.items()},
        "required": [name.removesuffix("!") for name in fields if name.endswith("!")],
        "additionalProperties": False,
    }


def closed(schema: Schema) -> Schema:
    """The same schema, which refuses what an API server would drop: fields that it does not name."""
    copy = dict(schema)
    if "properties" in schema:
        copy["properties"] = {name: closed(value) for name, value in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            copy.setdefault("additionalProperties", False)
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            copy[name] = closed(schema[name])
    return copy


def schema_of_version(definition: dict[str, Any], version: str) -> Schema:
    """What a CustomResourceDefinition says of one of its versions."""
    (found,) = (each for each in definition["spec"]["versions"] if each["name"] == version)
    schema: Schema = found["schema"]["openAPIV3Schema"]
    return schema


def problems(schema: Schema, document: Any) -> list[str]:
    """What is wrong with a document, each with its place in it."""
    return [f"{error.json_path}: {error.message}" for error in _Validator(schema).iter_errors(document)]


def _unique(validator: Any, keys: list[str], entries: Any, schema: Schema) -> Iterator[jsonschema.ValidationError]:
    """Entries of a list that is a map must differ in its keys, and those have the definition's defaults."""
    defaults = {key: schema["items"]["properties"][key].get("default") for key in keys}
    seen = [tuple(entry.get(key, defaults[key]) for key in keys) for entry in entries]
    if len(set(seen)) < len(seen):
        yield jsonschema.ValidationError(f"two entries have the same {' and '.join(keys)}")


_Validator = jsonschema.validators.extend(jsonschema.Draft202012Validator, {"x-kubernetes-list-map-keys": _unique})
