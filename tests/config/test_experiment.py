"""Table files, how a cell's layers win over each other, and messages about bad ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fpl.config.cells import Cell, Resolver, multiply
from fpl.config.compose import load_config
from fpl.config.experiment import load_experiment, load_experiments, thresholds
from fpl.config.identity import recipe_digest, recipes_by_seed
from fpl.config.scale import read_scale
from fpl.errors import FplError

RECIPE = """
[data]
dataset = "cityscapes"
num_classes = 19
split = { fraction = "1/8" }
crop = [64, 64]
labeled_batch = 4
unlabeled_batch = 4
[model]
backbone = "resnet50"
pretrained = "imagenet"
[method]
name = "cps"
cutmix = true
weight = 5.0
[optim]
lr = 0.1
[train]
steps = 10
evaluate_every = 5
[eval]
protocol = "whole"
"""

TABLE = """
[about]
order = 2
[table]
recipe = "cps"
name = "wide"
number = "Table 9"
caption = "Two columns."
dataset = "city"
[[columns]]
key = "few"
header = "1/16"
set.data.split = { fraction = "1/16" }
set.train.steps = 20
[[columns]]
key = "many"
header = "1/4"
set.data.split = { fraction = "1/4" }
[[rows]]
key = "base"
label = "CPS"
role = "baseline"
values = [50.0, 60.0]
[[rows]]
key = "fpl"
label = "FPL+CPS"
role = "proposed"
over = "base"
set.loss.kind = "fpl"
threshold = [0.95, 0.85]
values = [51.0, "-"]
arrows = [1.0, "-"]
bold = ["few"]
[[rows]]
key = "half"
label = "Half"
role = "control"
multiply = { "method.weight" = 0.5 }
[[rows]]
key = "alone"
label = "Supervised"
role = "control"
set.method = { name = "supervised" }
[[rows]]
key = "old"
label = "Cited"
role = "cited"
values = ["-", 40.0]
[[rows]]
key = "later"
label = "AEL"
role = "baseline"
recipe = "ael"
pending = "not here yet"
values = [1.0, 2.0]
"""

SCALE = """
[scale]
name = "small"
seeds = 2
[launch]
launcher = "inline"
[train]
steps = 3
[[where]]
when = { method.name = "cps" }
method = { weight = 1.0, ramp = 0.1 }
[[where]]
when = { data.split.fraction = ["1/16", "1/32"], model.backbone = "resnet50" }
data = { split = { fraction = "1/2" } }
[[where]]
when = { data.split.fraction = "1/2" }
data = { dataset = "never" }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, file, text in (
        ("base", "city_cps", RECIPE),
        ("tables", "wide", TABLE),
        ("scale", "small", SCALE),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{file}.toml").write_text(text)
    return tmp_path


def cells(folder: Path, **options: Any) -> dict[str, Cell]:
    (experiment,) = load_experiments(folder / "tables")
    return {cell.name.removeprefix("wide."): cell for cell in Resolver(folder / "base", **options).cells(experiment)}


def change(folder: Path, old: str, new: str) -> Path:
    path = folder / "tables" / "wide.toml"
    assert old in TABLE
    path.write_text(TABLE.replace(old, new, 1))
    return path


def message(folder: Path, **options: Any) -> str:
    with pytest.raises(FplError) as caught:
        cells(folder, **options)
    return caught.value.message


def test_columns_rows_and_thresholds_make_the_configuration(folder: Path) -> None:
    config = cells(folder)["fpl.few"].configs[0]
    assert (config.data.split.fraction, config.train.steps) == ("1/16", 20)
    assert (config.loss.kind, config.loss.threshold, config.method.name) == ("fpl", 0.95, "cps")
    other = cells(folder)["base.many"].configs[0]
    assert (other.data.split.fraction, other.train.steps, other.loss.kind) == ("1/4", 10, "ce")


def test_a_row_wins_over_its_column(folder: Path) -> None:
    change(folder, 'set.loss.kind = "fpl"', 'set.loss.kind = "fpl"\nset.train.steps = 30')
    assert cells(folder)["fpl.few"].configs[0].train.steps == 30
    assert cells(folder)["base.few"].configs[0].train.steps == 20


def test_a_method_that_is_not_installed_leaves_its_row_out_unless_it_is_asked_for(folder: Path) -> None:
    (folder / "base" / "city_theirs.toml").write_text(RECIPE.replace('name = "cps"', 'name = "their_teacher"'))
    change(folder, 'over = "base"\n', 'over = "base"\nrecipe = "theirs"\n')
    found = cells(folder)
    assert found["fpl.few"].why_not == "method their_teacher is not installed here" and not found["fpl.few"].configs
    assert found["base.few"].configs
    for options in ({"names": ["wide.fpl"]}, {"overrides": ["method.name=their_teacher"]}):
        text = message(folder, **options)
        assert "method.name is one of" in text and "known where it is installed: `fpl doctor`" in text


def test_a_column_has_settings_for_one_recipe_alone(folder: Path) -> None:
    (folder / "base" / "city_ael.toml").write_text(RECIPE.replace("steps = 10", "steps = 11"))
    table = TABLE.replace('pending = "not here yet"\n', "").replace(
        "set.train.steps = 20\n",
        'set.train.steps = 20\nset.data.groups = 2\nset.loss.supervised = "ohem"\n'
        "recipes.ael.train = { steps = 40, evaluate_every = 8 }\nrecipes.cps.method.weight = 3.0\n",
    )
    path = folder / "tables" / "wide.toml"
    path.write_text(table)

    def length(name: str) -> tuple[int, int, float]:
        config = cells(folder)[name].configs[0]
        return config.train.steps, config.train.evaluate_every, config.method.model_dump()["weight"]

    # Rows of recipe cps: the column's own length, and the weight that is theirs.
    assert length("base.few") == length("fpl.few") == (20, 5, 3.0)
    # Those of ael: another length over the same `set`, and the weight of their recipe.
    assert length("later.few") == (40, 8, 5.0)
    assert cells(folder)["later.few"].configs[0].data.groups == 2
    # A column without such settings; the recipe's own length.
    assert (length("base.many"), length("later.many")) == ((10, 5, 5.0), (11, 5, 5.0))
    # The row still wins over both.
    path.write_text(table.replace('recipe = "ael"\n', 'recipe = "ael"\nset.train.steps = 50\n'))
    assert length("later.few") == (50, 8, 5.0)


def test_one_threshold_is_for_all_columns(folder: Path) -> None:
    change(folder, "threshold = [0.95, 0.85]", "threshold = 0.8")
    path = folder / "tables" / "wide.toml"
    path.write_text(path.read_text().replace('[51.0, "-"]', "[51.0, 61.0]"))
    found = cells(folder)
    assert [found[f"fpl.{column}"].configs[0].loss.threshold for column in ("few", "many")] == [0.8, 0.8]


def test_cells_without_a_run_say_why(folder: Path) -> None:
    found = cells(folder)
    reasons = {name: cell.why_not for name, cell in found.items() if not cell.configs}
    assert reasons == {
        "fpl.many": "not in the paper",
        "old.few": "cited",
        "old.many": "cited",
        "later.few": "not here yet",
        "later.many": "not here yet",
    }
    assert (found["old.few"].printed, found["old.many"].printed) == (None, 40.0)
    assert (found["fpl.few"].arrow, found["fpl.many"].arrow, found["base.few"].arrow) == (1.0, None, None)


def test_controls_can_be_left_out(folder: Path) -> None:
    assert {name.split(".")[0] for name in cells(folder, rows="paper")} == {"base", "fpl", "old", "later"}


def test_a_cited_system_with_a_recipe_is_run_where_all_rows_are(folder: Path) -> None:
    change(folder, 'role = "cited"\n', 'role = "cited"\nrecipe = "cps"\n')
    papers, every = cells(folder, rows="paper"), cells(folder)
    # Its number stands there in any case; a dash is no cell of the paper's.
    assert papers["old.many"].why_not.startswith("cited; --rows all") and papers["old.many"].printed == 40.0
    assert [bool(every[f"old.{column}"].configs) for column in ("few", "many")] == [False, True]
    assert every["old.few"].why_not == papers["old.few"].why_not == "not in the paper"
    asked = cells(folder, rows="paper", names=["wide.old"])
    assert asked["old.many"].recipes == every["old.many"].recipes


def test_seeds_make_runs_of_their_own(folder: Path) -> None:
    cell = cells(folder, seeds=(0, 1, 7))["base.few"]
    assert [config.seed for config in cell.configs] == [0, 1, 7]
    assert len(set(cell.recipes)) == 3
    assert cell.recipes[0] == cells(folder)["base.few"].recipes[0]


def test_a_scale_wins_over_rows_and_its_cases_look_at_the_recipe_before_it(folder: Path) -> None:
    found = cells(folder, scale=read_scale(folder / "scale" / "small.toml"))
    few, many = found["base.few"].configs[0], found["base.many"].configs[0]
    assert (few.train.steps, many.train.steps) == (3, 3)
    assert (few.method.model_dump()["weight"], few.method.model_dump()["ramp"]) == (1.0, 0.1)
    # "1/16" becomes "1/2" by the second case; the third, for "1/2", does not see that.
    assert (few.data.split.fraction, many.data.split.fraction) == ("1/2", "1/4")
    assert few.data.dataset == "cityscapes"
    assert found["alone.few"].configs[0].method.name == "supervised"


def test_a_case_needs_all_of_its_conditions(folder: Path) -> None:
    (folder / "base" / "city_cps.toml").write_text(RECIPE.replace("resnet50", "resnet101"))
    few = cells(folder, scale=read_scale(folder / "scale" / "small.toml"))["base.few"].configs[0]
    assert few.data.split.fraction == "1/16"


def test_a_factor_is_of_what_scale_and_override_give(folder: Path) -> None:
    scale = read_scale(folder / "scale" / "small.toml")

    def weights(**options: Any) -> list[float]:
        found = cells(folder, **options)
        return [found[f"{row}.few"].configs[0].method.model_dump()["weight"] for row in ("base", "half")]

    assert weights() == [5.0, 2.5]
    assert weights(scale=scale) == [1.0, 0.5]
    assert weights(scale=scale, overrides=["method.weight=3"]) == [3.0, 1.5]


def test_overrides_win_over_everything(folder: Path) -> None:
    scale = read_scale(folder / "scale" / "small.toml")
    config = cells(folder, scale=scale, overrides=["train.steps=7", "loss.threshold=0.5"])["fpl.few"].configs[0]
    assert (config.train.steps, config.loss.threshold) == (7, 0.5)


def test_an_override_of_a_method_passes_by_the_rows_of_others(folder: Path) -> None:
    found = cells(folder, overrides=["method.pair=same"])
    assert found["alone.few"].recipes == cells(folder)["alone.few"].recipes
    assert found["base.few"].configs[0].method.model_dump()["pair"] == "same"
    assert "unknown key method.pear" in message(folder, overrides=["method.pear=same"])


def test_resolving_leaves_tables_recipes_and_scale_as_they_were(folder: Path) -> None:
    # [data] comes from the columns alone, and the scale then changes what lies deep in it.
    head, _, rest = RECIPE.partition("[model]")
    (folder / "base" / "city_cps.toml").write_text("[model]" + rest)
    data = f"set.data = {{ {', '.join(head.split('[data]')[1].split(chr(10))[1:-1])} }}"
    path = folder / "tables" / "wide.toml"
    few = data.replace("1/8", "1/16")
    path.write_text(
        TABLE.replace('set.data.split = { fraction = "1/16" }', few).replace(
            'set.data.split = { fraction = "1/4" }', data
        )
    )
    (experiment,) = load_experiments(folder / "tables")
    before, scale = experiment.model_copy(deep=True), read_scale(folder / "scale" / "small.toml")
    resolver = Resolver(folder / "base", scale)
    first = [cell.recipes for cell in resolver.cells(experiment)]
    assert resolver.cells(experiment)[0].configs[0].data.split.fraction == "1/2"
    assert [cell.recipes for cell in resolver.cells(experiment)] == first
    assert experiment == before
    assert scale == read_scale(folder / "scale" / "small.toml")


def test_equal_recipes_have_equal_digests_and_data_pins_do_not_count(folder: Path) -> None:
    found = cells(folder)
    pins = ["data.version=0123456789abcdef", "data.split.labeled=0123456789abcdef"]
    assert cells(folder, overrides=pins)["base.few"].recipes == found["base.few"].recipes
    assert found["base.few"].recipes != found["base.many"].recipes
    # T of cross-entropy says nothing.
    assert cells(folder, overrides=["loss.threshold=0.5"])["base.few"].recipes == found["base.few"].recipes
    assert cells(folder, overrides=["loss.threshold=0.5"])["fpl.few"].recipes != found["fpl.few"].recipes


def test_recipes_of_all_seeds_at_once_are_those_of_each(folder: Path) -> None:
    (experiment,) = load_experiments(folder / "tables")
    found = [cell for cell in Resolver(folder / "base", seeds=(0, 3, 12)).cells(experiment) if cell.configs]
    for cell in found:
        assert cell.recipes == tuple(recipe_digest(config.model_dump(mode="json")) for config in cell.configs)
    assert found and len(set(found[0].recipes)) == 3


@pytest.mark.parametrize(
    "tree", [{}, {"a": {"seed": 0}}, {"a": [{"seed": 0}]}, {"z": [{"seed": 1}]}, {"a": '"seed": 0'}]
)
def test_the_runs_seed_is_told_from_others(tree: dict[str, Any]) -> None:
    recipe_of = recipes_by_seed(tree)
    assert [recipe_of(seed) for seed in (0, 1, 20)] == [recipe_digest({**tree, "seed": seed}) for seed in (0, 1, 20)]


def test_a_figure_without_printed_numbers_is_run(folder: Path) -> None:
    rows = TABLE.partition("[[rows]]")[0]
    path = folder / "tables" / "wide.toml"
    figure = rows.replace('dataset = "city"', 'dataset = "city"\nprinted = false')
    path.write_text(figure + '[[rows]]\nkey = "base"\nlabel = "CPS"\nrole = "baseline"\n')
    found = cells(folder)
    assert len(found["base.few"].configs) == 1 and found["base.few"].printed is None
    path.write_text(path.read_text() + "values = [1.0, 2.0]\n")
    assert "row base has values, but the paper prints no numbers for it" in message(folder)


def test_settings_are_no_runs_and_name_the_row_that_uses_them(folder: Path) -> None:
    settings = TABLE.partition("[[rows]]")[0].replace('"wide"', '"settings"').replace("order = 2", "order = 3")
    settings = settings.replace('caption = "Two columns."', 'caption = "T."\nmetric = "threshold"')
    row = '[[rows]]\nkey = "fpl"\nlabel = "FPL"\nrole = "proposed"\nof = "wide.fpl"\nvalues = [0.95, 0.85]\n'
    path = folder / "tables" / "settings.toml"
    path.write_text(settings + row)
    wide, found = load_experiments(folder / "tables")
    assert thresholds([wide, found], found.row("fpl")) == [0.95, 0.85]
    assert {cell.why_not for cell in Resolver(folder / "base").cells(found)} == {"a setting"}
    for bad in ("wide.base", "wide.none", "none.fpl"):
        path.write_text(settings + row.replace("wide.fpl", bad))
        loaded = load_experiment(path)
        with pytest.raises(FplError, match=f"of '{bad}', which has no T"):
            thresholds([wide, loaded], loaded.row("fpl"))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            'number = "Table 9"',
            'number = "Table 9"\ncolour = "red"',
            "table: unknown key colour\n  -> known here: name, number, ",
        ),
        (
            'header = "1/16"',
            'header = "1/16"\nwidth = 3',
            "column few: unknown key width\n  -> known here: key, header, ",
        ),
        (
            'label = "FPL+CPS"',
            'label = "FPL+CPS"\nlable = "x"',
            "row fpl: unknown key lable\n  -> did you mean label? known here: ",
        ),
        ("[about]", "[abuot]", "unknown key abuot\n  -> did you mean about? known here: table, columns, rows, about"),
        ('role = "baseline"', 'role = "best"', "row base: role: Input should be 'cited', "),
        ("values = [50.0, 60.0]", "values = [50.0]", "row base: 1 values for 2 columns"),
        ("values = [50.0, 60.0]", 'values = [50.0, "n/a"]', "row base.values.1"),
        ("values = [50.0, 60.0]\n", "", "row base has no printed values"),
        ('arrows = [1.0, "-"]', "arrows = [1.0]", "row fpl: 1 arrows for 2 columns"),
        ("threshold = [0.95, 0.85]", "threshold = [0.95]", "row fpl: 1 thresholds for 2 columns"),
        ('over = "base"', 'over = "bass"', "row fpl is over bass, which is no row"),
        ('over = "base"\n', "", "row fpl has arrows, but not what they are over"),
        ('bold = ["few"]', 'bold = ["fow"]', "row fpl: bold names no column fow"),
        ('key = "half"', 'key = "base"', "key base is used twice"),
        ('key = "many"', 'key = "few"', "key few is used twice"),
        ('label = "Half"', 'label = "Half"\nvalues = [1.0, 2.0]', "row half has values, but the paper prints none"),
        ('label = "FPL+CPS"', 'label = "FPL+CPS"\nof = "wide.base"', "row fpl: `of` belongs to every row"),
        ('label = "FPL+CPS"\n', 'lable = "FPL+CPS"\n', "row fpl: unknown key lable"),
        ('key = "fpl"', 'kye = "fpl"', "row 2: unknown key kye"),
        ('set.loss.kind = "fpl"', 'sets.loss.kind = "fpl"', "row fpl: unknown key sets\n  -> did you mean set?"),
        (
            "set.train.steps = 20",
            "recipes.eal.train.steps = 20",
            "column few: recipes.eal, but no row has this recipe; there are: ael, cps",
        ),
        ("set.train.steps = 20", "recipes.ael = 20", "column few.recipes: ael: "),
        ('name = "wide"', 'name = "Wide 1"', "table: name: "),
        ("[table]", "[table", "not valid TOML"),
    ],
)
def test_a_bad_table_is_refused_with_its_file(folder: Path, old: str, new: str, expected: str) -> None:
    path = change(folder, old, new)
    text = message(folder)
    assert text.startswith(f"{path}: ")
    assert expected.replace("the paper prints none", "the paper prints no numbers for it") in text


@pytest.mark.parametrize(
    ("old", "new", "where", "expected"),
    [
        (
            'set.loss.kind = "fpl"',
            'set.loss.knid = "fpl"',
            "wide.fpl.few, `set` of row fpl",
            "unknown key loss.knid\n  -> did you mean loss.kind?",
        ),
        (
            "set.train.steps = 20",
            "set.train.steps = -1",
            "wide.base.few, `set` of column few",
            "train.steps = -1 is not allowed",
        ),
        (
            "set.train.steps = 20",
            "recipes.cps.train.steps = -1",
            "wide.base.few, `recipes.cps` of column few",
            "train.steps = -1 is not allowed",
        ),
        (
            "threshold = [0.95, 0.85]",
            "threshold = [1.5, 0.85]",
            "wide.fpl.few, `threshold` of row fpl",
            "loss.threshold = 1.5 is not allowed",
        ),
        (
            '"method.weight" = 0.5',
            '"method.cutmix" = 0.5',
            "wide.half.few, method.cutmix",
            "multiply names method.cutmix, which the recipe does not set to a number",
        ),
        (
            'label = "Half"',
            'label = "Half"\nset.method.weight = -2.0',
            "wide.half.few, `set` of row half, times 0.5 by `multiply` of row half",
            "method.weight = -1.0 is not allowed",
        ),
    ],
)
def test_a_cell_without_a_valid_run_is_named(folder: Path, old: str, new: str, where: str, expected: str) -> None:
    change(folder, old, new)
    assert message(folder).startswith(f"{where}: {expected}")


def test_a_bad_value_of_recipe_or_override_is_placed_there(folder: Path) -> None:
    assert message(folder, overrides=["train.steps=0"]).startswith("wide.base.few, override train.steps: ")
    path = folder / "base" / "city_cps.toml"
    path.write_text(RECIPE.replace("lr = 0.1", "lr = -0.1"))
    line = RECIPE.splitlines().index("lr = 0.1") + 1
    assert message(folder).startswith(f"wide.base.few, {path}:{line}: optim.lr = -0.1 is not allowed")
    path.unlink()
    assert f"cannot read {path}" in message(folder)


@pytest.mark.parametrize("key", ["loss.stride", "method.none.deep", "data.crop.x", "nothing"])
def test_only_numbers_are_multiplied(key: str) -> None:
    tree = {"method": {"weight": 2, "cutmix": True}, "data": {"crop": [1, 2]}, "loss": {"stride": "4"}}
    with pytest.raises(FplError, match="does not set to a number"):
        multiply(tree, key, 0.5)
    multiply(tree, "method.weight", 0.5)
    assert tree["method"]["weight"] == 1.0


def test_tables_stand_in_their_order_under_names_of_their_own(folder: Path) -> None:
    other = TABLE.replace('"wide"', '"narrow"').replace("order = 2", "order = 1")
    (folder / "tables" / "z.toml").write_text(other)
    assert [experiment.name for experiment in load_experiments(folder / "tables")] == ["narrow", "wide"]
    (folder / "tables" / "zz.toml").write_text(other)
    with pytest.raises(FplError, match="table 'narrow' is in two files"):
        load_experiments(folder / "tables")
    with pytest.raises(FplError, match="no table files here"):
        load_experiments(folder / "nowhere")


def test_a_recipe_inherits_the_sizes_of_a_scale_and_a_scale_all_of_another(folder: Path) -> None:
    recipe = RECIPE.replace("steps = 10\n", "")
    path = folder / "base" / "small.toml"
    path.write_text('inherit = "../scale/small.toml"\n' + recipe)
    config = load_config(path)
    assert (config.train.steps, config.method.model_dump()["weight"]) == (3, 5.0)
    # By itself a recipe has no such tables.
    path.write_text(RECIPE + '[launch]\nlauncher = "inline"\n')
    with pytest.raises(FplError, match="unknown key launch"):
        load_config(path)
    tiny = folder / "scale" / "tiny.toml"
    tiny.write_text('inherit = "small.toml"\n[train]\nsteps = 1\n')
    scale = read_scale(tiny)
    assert (scale.layer["train"]["steps"], len(scale.where), scale.launch) == (1, 3, {"launcher": "inline"})


def test_a_case_without_conditions_is_refused(folder: Path) -> None:
    path = folder / "scale" / "small.toml"
    path.write_text("[[where]]\ntrain = { steps = 1 }\n")
    with pytest.raises(FplError, match=r"needs conditions") as caught:
        read_scale(path)
    assert caught.value.where == str(path)


OURS = """
[table]
name = "wide"
number = "Ours"
caption = "variants"
dataset = "city"
printed = false
set.train.steps = 20
recipes.mt.train.steps = 40
[[columns]]
key = "own"
header = "own"
[[columns]]
key = "ce"
header = "CE"
over = "own"
set.loss.kind = "ce"
[[columns]]
key = "half"
header = "half"
over = "ce"
set.loss.kind = "ce"
multiply = { "method.weight" = 0.5 }
[[rows]]
key = "cps"
label = "CPS"
role = "control"
recipe = "cps"
without = { half = "no gate" }
[[rows]]
key = "mt"
label = "MT"
role = "control"
recipe = "mt"
matched_weight = 0.1
[[rows]]
key = "log"
label = "A log"
role = "cited"
source = "somebody"
values = [70.0, "-", "-"]
"""


@pytest.fixture
def ours(folder: Path) -> Path:
    """The folder with a table whose rows are all ours."""
    mt = RECIPE.partition("[method]")[0] + '[method]\nname = "mean_teacher"\nweight = 8.0\n[loss]\nkind = "mse"\n'
    (folder / "base" / "city_mt.toml").write_text(mt + "[optim]" + RECIPE.partition("[optim]")[2])
    (folder / "tables" / "wide.toml").write_text(OURS)
    return folder


def test_columns_may_be_variants_of_what_the_rows_are(ours: Path) -> None:
    found = cells(ours)
    assert [found[f"cps.{column}"].why_not for column in ("own", "ce", "half")] == ["", "", "no gate"]
    assert found["cps.own"].recipes == found["cps.ce"].recipes
    assert (found["log.own"].why_not, found["log.own"].printed, found["log.ce"].printed) == ("cited", 70.0, None)
    assert [found[f"{row}.own"].configs[0].train.steps for row in ("cps", "mt")] == [20, 40]
    weights = {name: getattr(cell.configs[0].method, "weight", None) for name, cell in found.items() if cell.configs}
    # Of the own loss the weight is the recipe's; elsewhere a tenth of it, and half of that.
    assert weights == pytest.approx({"cps.own": 5.0, "cps.ce": 5.0, "mt.own": 8.0, "mt.ce": 0.8, "mt.half": 0.4})
    (experiment,) = load_experiments(ours / "tables")
    origins = Resolver(ours / "base").origins(Resolver(ours / "base").cells(experiment)[5])
    assert origins["method.weight"].endswith(
        "times 0.5 by `multiply` of column half, times 0.1 by `matched_weight` of row mt"
    )
    assert origins["train.steps"] == "`recipes.mt` of the table"


def test_a_table_of_ours_is_read_where_it_is_asked_for_alone(ours: Path) -> None:
    assert cells(ours, rows="paper") == {}
    assert list(cells(ours, rows="paper", names=["wide.mt"])) == ["mt.own", "mt.ce", "mt.half"]
    assert len(cells(ours, rows="paper", names=["wide"])) == 9


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('over = "own"', 'over = "none"', "column ce is over none, which is no column"),
        ("{ half", "{ none", "row cps: without names no column none"),
        ("recipes.mt.train", "recipes.ael.train", "table: recipes.ael, but no row has this recipe"),
        ("matched_weight = 0.1", "matched_weight = 0", "matched_weight"),
    ],
)
def test_slips_in_a_table_of_ours_are_told(ours: Path, old: str, new: str, said: str) -> None:
    assert old in OURS
    (ours / "tables" / "wide.toml").write_text(OURS.replace(old, new, 1))
    assert said in message(ours)
