"""Tables as LaTeX: one booktabs table each, for `\\input` in a paper, and a document with all of them."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from itertools import groupby

from fpl.report.tables.entry import Entry, Grid, Line
from fpl.report.tables.numbers import show
from fpl.report.tables.remarks import READING, gaps, head, legend, notes, number_name, scale_notes, warnings

PREAMBLE = r"""\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage{lmodern}
\usepackage[a4paper,landscape,margin=10mm]{geometry}
\usepackage{amssymb}
\usepackage{booktabs}
\setlength{\parindent}{0pt}
\begin{document}
"""

SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
    "±": r"$\pm$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "→": r"$\rightarrow$",
    "≈": r"$\approx$",
    "✓": r"$\checkmark$",
    "✗": r"$\times$",
    "×": r"$\times$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "−": r"$-$",
    "–": "--",
    "—": "---",
    "†": r"\dag{}",
    "‡": r"\ddag{}",
    "’": "'",
    "“": "``",
    "”": "''",
    "…": r"\ldots{}",
    "λ": r"$\lambda$",
    "β": r"$\beta$",
    "τ": r"$\tau$",
    "α": r"$\alpha$",
}


def latex(grids: Sequence[Grid], tables: Sequence[str] = ()) -> str:
    """A document with all tables.

    Args:
        grids: Tables of one scale, at least one.
        tables: What stands for each of them, such as `\\input{tables/table1}`; empty for the tables themselves.
    """
    parts = [" ".join(map(escape, scale_notes(grids[0].scale)))]
    parts.append(escape(READING))
    parts.append("; ".join(map(escape, legend(grids))))
    opening = "\n\n".join(filter(None, parts))
    return PREAMBLE + "\n\n".join([opening, *(tables or map(latex_table, grids))]) + "\n\\end{document}\n"


def latex_table(grid: Grid) -> str:
    """One `table` environment; it needs the packages booktabs and amssymb."""
    texts, marks = notes(grid)
    lines = [
        r"\begin{table}[!htbp]",
        r"\centering\scriptsize\setlength{\tabcolsep}{4pt}",
        # Classes leave room below a figure's caption, where a table has its rule.
        r"\setlength{\abovecaptionskip}{0pt}\setlength{\belowcaptionskip}{6pt}",
        rf"\caption{{{escape(_caption(grid))}}}",
        rf"\label{{tab:{grid.name}}}",
        rf"\begin{{tabular}}{{@{{}}l{'l' * len(grid.columns)}@{{}}}}",
        r"\toprule",
        *_header(grid),
        r"\midrule",
    ]
    for line in grid.lines:
        lines += _rows(line, marks.get(line.row.key, []))
    lines += [r"\bottomrule", r"\end{tabular}"]
    below = [rf"\textsuperscript{{{number}}}\,{escape(note)}" for number, note in enumerate(texts, start=1)]
    below += [escape(gap) for gap in gaps(grid)]
    below += [f"Warning: {escape(warning)}" for warning in warnings(grid)]
    if below:
        lines += [r"\par\medskip\begin{minipage}{0.95\linewidth}\raggedright", "\n".join(below), r"\end{minipage}"]
    return "\n".join([*lines, r"\end{table}"])


def _caption(grid: Grid) -> str:
    """The paper's caption with its number behind it: LaTeX puts its own in front."""
    caption = grid.experiment.table.caption.removesuffix(".")
    about = "; ".join(head(grid))
    return f"{caption} (the paper's {number_name(grid)}). {about[:1].upper()}{about[1:]}."


def _header(grid: Grid) -> list[str]:
    lines = []
    if any(column.group for column in grid.columns):
        spans, rules, begin = [], [], 2
        for group, columns in groupby(grid.columns, key=lambda column: column.group):
            count = len(list(columns))
            spans.append(rf"\multicolumn{{{count}}}{{l}}{{{escape(group)}}}")
            if group:
                rules.append(rf"\cmidrule(lr){{{begin}-{begin + count - 1}}}")
            begin += count
        lines.append(" & ".join(["", *spans]) + r" \\")
        lines.append("".join(rules))
    return [*lines, " & ".join(["", *(escape(column.header) for column in grid.columns)]) + r" \\"]


def _rows(line: Line, marks: Sequence[int]) -> list[str]:
    """One line of ours and one of the paper's; one alone where the other would be empty."""
    numbers = ",".join(map(str, marks))
    label = escape(line.row.label) + (rf"\textsuperscript{{{numbers}}}" if numbers else "")
    ours, paper = [_ours(entry) for entry in line.entries], [_paper(entry) for entry in line.entries]
    cited = line.row.role == "cited"
    label = rf"\textit{{{label}}}" if cited else label
    if not any(ours) or all(entry.state in ("cited", "dash") for entry in line.entries):
        return [" & ".join([label, *(cell or "--" for cell in paper)]) + r" \\"]
    rows = [" & ".join([label, *ours]) + r" \\"]
    if any(paper):
        rows.append(" & ".join([r"\quad cited" if cited else r"\quad paper", *paper]) + r" \\[2pt]")
    return rows


def _ours(entry: Entry) -> str:
    shown = show(entry)
    if not shown.ours:
        return escape(shown.word) or "--"
    rest = " ".join(filter(None, (shown.spread, shown.arrow, shown.mark)))
    partial = "".join(f" ({text})" for text in (shown.word, *shown.notes) if text)
    return escape(" ".join(filter(None, (shown.ours, rest))) + partial)


def _paper(entry: Entry) -> str:
    shown = show(entry)
    if not shown.paper:
        return ""
    number = rf"\textbf{{{shown.paper}}}" if shown.bold else shown.paper
    if shown.cited:
        number = rf"\textit{{{number}}}"
    return number + (f" {escape(shown.paper_arrow)}" if shown.paper_arrow else "")


def escape(text: str) -> str:
    """Text that LaTeX sets as it is; letters that its fonts lack lose their accents or become a question mark."""
    # An empty line would end a caption; a bracket or star behind `\\\\` would be an argument of it.
    made = "".join(SPECIAL.get(letter) or _plain(letter) for letter in " ".join(text.split()))
    return "{}" + made if made[:1] in ("[", "*") else made


def _plain(letter: str) -> str:
    if unicodedata.category(letter).startswith("C"):
        return "?"
    if ord(letter) < 0x180:
        return letter
    plain = unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode()
    return plain or "?"
