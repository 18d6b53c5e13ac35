"""Rows of a frame by an expression of pandas, which sees the columns and nothing of this program.

A query may come from anywhere: pandas alone would let it reach the names of this program (`@name`), write files
(`run_id.to_csv(...)`) and go on from there to anything that Python can do.
"""

from __future__ import annotations

import ast
import difflib
import functools
import keyword
import re
import warnings

import pandas as pd
from pandas.api.types import is_bool_dtype

from fpl.errors import FplError

ALLOWED = (
    "columns, values, comparisons, and what asks something of a column: run_id.str.contains('fpl'), seed.isin([0, 1]), "
    "miou_whole_last.notna(), finished_at.dt.year"
)
# Of a column; none of them writes, or calls what it is given.
_OF_COLUMNS = frozenset(
    (
        *("str", "dt", "cat", "codes", "isin", "isna", "isnull", "notna", "notnull", "between", "eq"),
        *("ne", "lt", "le", "gt", "ge", "add"),
        *("sub", "mul", "div", "truediv", "floordiv", "mod", "pow", "abs", "round", "clip"),
        *("fillna", "astype", "duplicated", "rank", "shift", "diff", "cumsum", "cummax", "cummin"),
        *("mean", "median", "min", "max", "std", "var", "sum", "skew"),
        *("quantile", "nunique", "any", "all", "count", "idxmin", "idxmax", "size", "values", "empty"),
    )
)
_TEXT = r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\""


def rows_of(frame: pd.DataFrame, query: str) -> pd.DataFrame:
    """The rows for which an expression holds; dotted names go in backticks.

    Raises:
        FplError: It is no condition, pandas refuses it, or it asks for more than the columns.
    """
    hint = (
        f"{_meant(frame, query)}dotted names need backticks: `loss.kind` == 'fpl'; "
        "`fpl results --columns all` shows the names"
    )
    try:
        beyond = _beyond(query)
        # Empty, or the names of this function would be known to it.
        holds = None if beyond else frame.eval(query, local_dict={}, global_dict={})
    except Exception as error:
        # pandas raises almost anything from query: SyntaxError, NameError, TypeError, its own classes ...
        raise FplError(f"pandas cannot evaluate {query!r}: {error}", where="--query", hint=hint) from None
    if beyond in frame:
        raise FplError(f"{query!r} has {beyond} without backticks", where="--query", hint=hint)
    if beyond:
        what = f"{query!r} asks for {beyond}, which no query may"
        raise FplError(what, where="--query", hint=f"allowed are {ALLOWED}; {hint}")
    # pandas' own `query` takes what is neither true nor false as labels of rows.
    if not isinstance(holds, pd.Series) or not (is_bool_dtype(holds) or holds.empty):
        raise FplError(f"{query!r} is no condition", where="--query", hint="write one: seed == 0")
    return frame[holds.fillna(False).astype(bool)]


def near(frame: pd.DataFrame, name: str) -> str:
    """The columns most like a name, those that hold something alone; empty if none is."""
    held = list(frame.columns[frame.notna().any()])
    found = difflib.get_close_matches(name, held, n=3, cutoff=0.6)
    return f"did you mean {', '.join(found)}? " if found else ""


def _meant(frame: pd.DataFrame, query: str) -> str:
    """What a query may have meant by the first name in it that is no column."""
    words = re.findall(r"[A-Za-z_][\w.]*", re.sub(_TEXT, "", query))
    unknown = [word for word in words if word not in frame and not keyword.iskeyword(word)]
    return near(frame, unknown[0]) if unknown else ""


def _beyond(query: str) -> str:
    """What a query asks for that is no question about columns; empty if nothing.

    Raises:
        Exception: It cannot be parsed, by the rules that are those of pandas, too.
    """
    # Names in backticks as pandas has them in the end: one word.
    plain = re.sub(rf"({_TEXT})|`[^`\n]*`", lambda found: found[1] or "column", query)
    if local := re.search(r"@\s*\w*", re.sub(_TEXT, "", plain)):
        return f"a name of the program, {local[0]}"
    with warnings.catch_warnings():
        # Of Python about odd escapes in texts.
        warnings.simplefilter("ignore")
        tree = ast.parse("\n".join(line.strip() for line in plain.splitlines()))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id.startswith("__"):
            return f"a name of the program, {node.id}"
        if isinstance(node, ast.Attribute) and node.attr not in _attributes():
            return ast.unparse(node)
    return ""


@functools.cache
def _attributes() -> frozenset[str]:
    """What may follow a dot."""
    of_values = (name for kind in ("str", "dt") for name in dir(getattr(pd.Series, kind)))
    return _OF_COLUMNS.union(name for name in of_values if not name.startswith("_"))
