"""The claims of the figure files: all can be decided, wrong ones are explained, and verdicts become texts."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from fpl.config.campaign import load_campaign
from fpl.config.figure import Series, load_figures
from fpl.errors import FplError
from fpl.report.claims.check_claims import (
    CHECKS,
    Verdict,
    check_claims,
    check_of,
    claims_frame,
    claims_html,
    claims_markdown,
    count_text,
    write_claims,
)
from fpl.report.figures.series import find_series, make_source
from fpl.store.lookup import look_up
from tests.report.world_claims import RUN, make_figure

EXPERIMENTS = Path(__file__).parents[3] / "experiments"


def test_texts(tmp_path: Path) -> None:
    verdicts = [
        Verdict("figure_4", "Figure 4", "one", "K <grows>.", "paper", "holds", "1 < 2; 1 run"),
        Verdict("figure_4", "Figure 4", "two", "It falls.", "paper", "does not hold", "3"),
        Verdict("figure_6", "Figure 6", "three", "It is there.", "paper", "not run", "no finished run of a.b_c.d"),
        Verdict("figure_6", "Figure 6", "four", "Always so.", "paper", "holds", "0 < 1", by_formula=True),
        Verdict("figure_6", "Figure 6", "five", "Never so.", "paper", "does not hold", "1 < 0", by_formula=True),
        Verdict("figure_6", "Figure 6", "six", "Unseen.", "paper", "not run", "no run", by_formula=True),
    ]
    # What holds by its formula is not found; what should and does not is as wrong as any other, and said louder.
    assert count_text(verdicts) == (
        "claims of the paper: 1 found to hold, 2 not, 1 by their formula (checked), 2 not run"
    )
    html = claims_html(verdicts)
    assert html.count("<li>") == 6 and "K &lt;grows&gt;." in html and claims_html([]) == ""
    markdown = claims_markdown(verdicts)
    assert "- – **not run**: It is there. (paper): no finished run of a.b\\_c.d" in markdown
    assert "- ≡ **holds by its formula**: Always so. (paper): 0 \\< 1" in markdown
    assert "- ✗ **does not hold, though its formula says it should**: Never so." in markdown
    assert "✗ **does not hold**: It falls. (paper): 3" in markdown and "≡ holds by its formula</b>" in html
    assert "- – **not run**: Unseen. (paper): no run" in markdown
    ours = Verdict("figure_0", "Figure 0", "seven", "It gains.", "this suite", "does not hold", "-1")
    assert count_text([*verdicts, ours]).endswith(
        "2 not run; of this suite: 0 found to hold, 1 not, 0 by their formula (checked), 0 not run"
    )
    assert "**Figure 6**" in markdown and markdown.startswith(count_text(verdicts))
    write_claims(tmp_path, verdicts)
    assert (tmp_path / "claims.md").read_text().endswith(markdown)
    read = pd.read_csv(tmp_path / "claims.csv")
    assert list(read["state"]) == ["holds", "does not hold", "not run"] * 2
    assert list(read["by_formula"]) == [False] * 3 + [True] * 3
    pd.testing.assert_frame_equal(read, claims_frame(verdicts), check_dtype=False)


def test_unknown_checks_and_options_are_explained() -> None:
    for check, options, word in (
        ("compared", {}, "did you mean compare"),
        ("compare", {"quantity": "mean_k", "limit": 1}, "its options: quantity, side, to, most, window"),
        ("fewer_uncertain", {"share": 1}, "its options: none"),
    ):
        figure = make_figure([RUN], check, options)
        with pytest.raises(FplError) as caught:
            check_of(figure, figure.claims[0])
        assert word in str(caught.value.hint) and "claim it_is_so" in str(caught.value.where)


def test_claims_name_checks_quantities_and_cells() -> None:
    """Every claim of every figure can be decided as it stands, even on an empty store."""
    figures = load_figures(EXPERIMENTS)
    campaign = load_campaign(EXPERIMENTS, "mini", rows="all")
    lookup = look_up(None)
    names = [claim.name for figure in figures for claim in figure.claims]
    assert len(names) == len(set(names)) > 30
    for figure in figures:
        source = make_source(figure, campaign, None, lookup)
        for claim, verdict in zip(figure.claims, check_claims(figure, source), strict=True):
            needs_runs = claim.check != "weights_in_order"
            assert verdict.state == ("not run" if needs_runs else "holds"), claim.name
            named = [claim.options[key] for key in ("cell",) if key in claim.options]
            series = claim.options.get("series", [item.cells for item in figure.series])
            copy = figure.model_copy(update={"series": tuple(Series(cells=cells) for cells in series)})
            cells = {item.cell.name for item in find_series(copy, campaign, lookup)}
            assert set(named) <= cells, claim.name
    used = {claim.check for figure in figures for claim in figure.claims}
    assert used == set(CHECKS)
