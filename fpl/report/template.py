"""Pages as Jinja2 templates, whose every value is escaped but for markup that was made by another."""

from __future__ import annotations

import functools

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


@functools.cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("fpl.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render(template: str, /, **values: object) -> Markup:
    """Fill a template.

    Args:
        template: Name of a file of `fpl/report/templates`.
        values: What it needs. Text is escaped; `Markup` stays what it is.

    Raises:
        jinja2.UndefinedError: A value that it needs was not given: a programming error.
    """
    return Markup(_environment().get_template(template).render(values))
