"""Composition of TOML layers, messages about bad ones, and the run's identity."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from fpl.config import layers
from fpl.config.checks import warnings_of, worker_problem
from fpl.config.compose import load_config, validate, without_effect
from fpl.config.identity import canonical, digest, run_id
from fpl.config.layers import parse_override
from fpl.errors import FplError

BASE = """
[data]
dataset = "camvid"
num_classes = 11
split = { fraction = "1/8" }
crop = [64, 64]
labeled_batch = 4
unlabeled_batch = 4
[model]
backbone = "tiny"
pretrained = "none"
[method]
name = "cps"
cutmix = true
weight = 1.5
[optim]
lr = 0.1
[train]
steps = 10
evaluate_every = 5
[eval]
protocol = "whole"
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "base.toml"
    path.write_text(BASE)
    return path


def child(base: Path, text: str, name: str = "child.toml") -> Path:
    path = base.parent / name
    path.write_text('inherit = "base.toml"\n' + text)
    return path


def message(path: Path, *overrides: str, **options: Any) -> str:
    with pytest.raises(FplError) as caught:
        load_config(path, overrides=overrides, **options)
    return caught.value.message


def test_layers_win_in_order(base: Path) -> None:
    folder = base.parent / "scale"
    folder.mkdir()
    (folder / "small.toml").write_text("[train]\nsteps = 6\n[optim]\nlr = 0.3\n")
    path = child(base, "[train]\nsteps = 8\n[optim]\nmomentum = 0.5\n")
    config = load_config(path, scale="small", overrides=["optim.lr=0.4", "data.crop=[80, 96]"])
    assert config.train.steps == 6  # scale over file
    assert config.optim.momentum == 0.5  # file over base, merged key by key
    assert config.optim.lr == 0.4  # override over scale
    assert config.data.crop == (80, 96)
    assert config.data.labeled_batch == 4  # base untouched


def test_another_method_starts_from_nothing(base: Path) -> None:
    config = load_config(child(base, '[method]\nname = "supervised"\n'))
    assert config.method.name == "supervised"
    assert config.data.unlabeled_batch == 0  # a supervised run draws none, so the key cannot make it another run


def test_unknown_key_names_the_nearest_with_file_and_line(base: Path) -> None:
    path = child(base, "[loss]\nkind = 'fpl'\ntreshold = 0.9\n")
    text = message(path)
    assert "unknown key loss.treshold" in text
    assert "did you mean loss.threshold?" in text
    assert f"{path}:4" in text


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("loss.weight=concav", "did you mean 'concave'?"),
        ("method.cutmx=true", "did you mean method.cutmix?"),
        ("train.steps=0", "train.steps = 0 is not allowed"),
        # Pydantic takes it for 1.
        ("train.steps=true", "train.steps = true is not allowed"),
        ("optim.lr=true", "optim.lr = true is not allowed"),
        ("seed=false", "seed = false is not allowed"),
        ("data.crop=[true,64]", "data.crop.0 = true is not allowed"),
        ("data.split.fraction=half", "data.split.fraction = 'half' is not allowed"),
        ("data.split.fraction=1/1\uff16", "data.split.fraction = '1/1\uff16' is not allowed"),
        ("seed=1\nloss.threshold=0.1", "holds more than one override"),
        ("method.cutmix_area=[0.5,0.2]", "not ordered"),
        ("method.on_labeled=true", "on_labeled = true with cutmix = true"),
        ("data.crop=[32,64]", "data.crop = [32, 64] is below 33 x 33"),
        ("data.crop=[64]", "data.crop = [64] is not allowed"),
        ("optim.lr=inf", "optim.lr = inf is not allowed"),
        ("loss.supervised=hinge", "loss.supervised = 'hinge' is not allowed"),
        ("data.labeled_batch=1", "data.labeled_batch = 1 with BatchNorm"),
        ("data.unlabeled_batch=1", "data.unlabeled_batch = 1 with BatchNorm"),
        ("data.unlabeled_batch=0", "needs at least 1 unlabeled image"),
        ("model.norm=frozen", 'needs model.pretrained = "imagenet"'),
        ("data.scales=[]", "at least 1 item"),
        ("loss.weight", "is no override"),
        ("spead=3", "unknown key spead"),
        ("threshold=0.8", "did you mean loss.threshold?"),
    ],
)
def test_bad_values_are_explained(base: Path, override: str, expected: str) -> None:
    assert expected in message(base, override)


def test_groups_must_divide_both_batches(base: Path) -> None:
    assert "is no multiple of data.groups = 3" in message(base, "data.groups=3")
    fitting = ["data.labeled_batch=4", "data.groups=4"]
    assert "data.unlabeled_batch = 6 is no multiple" in message(base, *fitting, "data.unlabeled_batch=6")


@pytest.mark.parametrize(("labeled", "unlabeled", "groups"), [(8, 8, 8), (16, 8, 8), (4, 6, 2), (6, 0, 6)])
def test_without_a_word_there_are_as_many_groups_as_the_batches_allow(
    base: Path, labeled: int, unlabeled: int, groups: int
) -> None:
    batches = [f"data.labeled_batch={labeled}", f"data.unlabeled_batch={unlabeled}"]
    method = [] if unlabeled else ["method.name=supervised"]
    config = load_config(base, overrides=[*batches, *method])
    assert config.data.groups == groups
    # Written out they are the same run.
    assert load_config(base, overrides=[*batches, *method, f"data.groups={groups}"]) == config


def test_a_part_of_the_validation_images_and_held_out_ones_exclude_each_other(base: Path) -> None:
    text = message(base, "eval.subsample=92", "data.split.holdout=4")
    assert "eval.subsample = 92" in text and "data.split.holdout = 4" in text
    load_config(base, overrides=["data.split.holdout=4"])


@pytest.mark.parametrize("classes", [2, 3])
def test_fixed_k_is_checked_against_the_classes(base: Path, classes: int) -> None:
    overrides = ["loss.kind=fpl", "loss.strategy=fixed", f"data.num_classes={classes}"]
    text = message(base, *overrides, f"loss.fixed_k={classes}")
    assert f"at most {classes - 1} is allowed" in text
    assert load_config(base, overrides=[*overrides, f"loss.fixed_k={classes - 1}"]).loss.fixed_k == classes - 1


def test_missing_key_file_and_circle(base: Path) -> None:
    path = base.parent / "broken.toml"
    path.write_text(BASE.replace("lr = 0.1", ""))
    assert "optim.lr is missing" in message(path)
    assert "cannot read" in message(base.parent / "nowhere.toml")
    path.write_text("[data\n")
    assert "not valid TOML" in message(path) and "line 1" in message(path)
    one, two = base.parent / "one.toml", base.parent / "two.toml"
    one.write_text('inherit = "two.toml"')
    two.write_text('inherit = "one.toml"')
    assert "in a circle" in message(one)
    for number in range(1200):
        (base.parent / f"c{number}.toml").write_text(f'inherit = "c{number + 1}.toml"')
    assert "inherits over more than 20 files" in message(base.parent / "c0.toml")


def test_a_value_where_a_table_is_meant_takes_nothing_away(base: Path) -> None:
    """Neither what it inherits, nor what is put over it: the next layer would bring back a table of its own keys."""
    (base.parent / "scale").mkdir()
    (base.parent / "scale" / "small.toml").write_text("[loss]\nstride = 4\n[train]\nsteps = 9\n")
    path = base.parent / "mine.toml"
    for key, scale in (("loss", "small"), ("train", "small"), ("train", None), ("optim", None)):
        path.write_text(f"inherit = '{base.name}'\n{key} = 'fpl'\n")
        text = message(path, scale=scale)
        assert f"{path}:2: {key} = 'fpl' is no table" in text and f"{key}.KEY = VALUE" in text
    # Of the recipe, where the scale alone has the table.
    path.write_text("eval = 5\n")
    (base.parent / "scale" / "small.toml").write_text("[eval]\nabsent = 'zero'\n")
    assert f"{path}:1: eval = 5 is no table" in message(path, scale="small")
    for overrides in (["train=5", "train.steps=9"], ["optim=false", "optim.lr=0.1"], ["data.split=5"]):
        text = message(base, *overrides)
        key = overrides[0].partition("=")[0]
        assert text.startswith(f"override {key}: {key} = ") and "is no table" in text
    assert "loss.kind = 'ce' is no table" in message(base, "loss.kind='ce'", "loss.kind.x=1")


def test_what_several_files_inherit_is_read_once(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two parents a level were twice the work a level: with 20 levels a million files."""
    read: list[Path] = []
    real = layers._read_toml
    monkeypatch.setattr(layers, "_read_toml", lambda path, where="": (read.append(path), real(path, where))[1])
    for number in range(18):
        below = f"d{number + 1}.toml" if number < 17 else base.name
        (base.parent / f"d{number}.toml").write_text(f"inherit = ['{below}', '{below}']\nseed = {number}")
    assert load_config(base.parent / "d0.toml").seed == 0 and len(read) == 19


def test_a_table_of_a_scale_in_a_recipe_is_told_as_the_recipes(base: Path) -> None:
    (base.parent / "scale").mkdir()
    (base.parent / "scale" / "small.toml").write_text("[scale]\ntitle = 'small'\n[train]\nsteps = 9\n")
    path = child(base, "[scale]\ntitle = 'mine'\n")
    assert f"{path}:" in message(path, scale="small")


def test_unknown_scale_lists_those_there(base: Path) -> None:
    (base.parent / "scale").mkdir()
    (base.parent / "scale" / "mini.toml").write_text("")
    text = message(base, scale="maxi")
    assert "no scale 'maxi'" in text and "mini" in text


def test_overrides_are_toml_or_text() -> None:
    assert parse_override("loss.threshold=0.85") == ("loss.threshold", 0.85)
    assert parse_override("data.flip=false") == ("data.flip", False)
    assert parse_override("loss.kind=ce+negative") == ("loss.kind", "ce+negative")
    assert parse_override("loss.strategy=n-1") == ("loss.strategy", "n-1")
    assert parse_override("data.split.fraction=1/16") == ("data.split.fraction", "1/16")


def test_unset_options_resolve_to_the_release(base: Path) -> None:
    plain = load_config(base, overrides=["method.cutmix=false"])
    assert plain.method.on_labeled is True  # type: ignore[union-attr]
    assert load_config(base).method.on_labeled is False  # type: ignore[union-attr]
    fpl = ["loss.kind=fpl"]
    assert load_config(base, overrides=fpl).loss.balance is False
    assert load_config(base, overrides=[*fpl, "loss.fidelity=released"]).loss.balance is True
    assert load_config(base, overrides=[*fpl, "loss.fidelity=released", "loss.balance=false"]).loss.balance is False


def filled(path: Path, *overrides: str) -> Any:
    pins = ["data.split.labeled=0123456789abcdef", "data.split.unlabeled=fedcba9876543210"]
    return load_config(path, overrides=[*pins, *overrides])


def test_equal_trainings_have_equal_identities(base: Path) -> None:
    one = run_id(filled(base))
    # Cross-entropy reads none of these keys.
    assert run_id(filled(base, "loss.threshold=0.5", "loss.curvature=3.0")) == one
    assert run_id(filled(base, "loss.kind=fpl")) != one
    linear = run_id(filled(base, "loss.kind=fpl", "loss.weight=linear"))
    assert run_id(filled(base, "loss.kind=fpl", "loss.weight=linear", "loss.curvature=9.0")) == linear
    fixed = run_id(filled(base, "loss.kind=fpl", "loss.strategy=fixed"))
    assert run_id(filled(base, "loss.kind=fpl", "loss.strategy=fixed", "loss.threshold=0.5")) == fixed


@pytest.mark.parametrize(
    ("settings", "without_effect"),
    [
        (["method.cutmix=false"], ["method.pair=same", "method.cutmix_boxes=5"]),
        (["model.backbone=resnet50"], ["model.tiny_width=32", "model.tiny_depth=2"]),
        (["eval.protocol=whole"], ["eval.stride_rate=0.5", "eval.crop=[90,90]"]),
        (["eval.protocol=sliding"], ["eval.crop=[64,64]"]),  # the training crop
        (["data.scale_sampling=uniform", "data.scales=[0.5,2.0]"], ["data.scales=[0.5,1.0,2.0]"]),
        (["loss.kind=fpl", "loss.weight=convex"], ["loss.convex_coefficient=4.0"]),
        (["loss.kind=fpl", "loss.weight=convex", "loss.fidelity=released"], ["loss.convex_coefficient=1.0"]),
        (["train.evaluate_every=10"], ["train.evaluate_every=99"]),
        ([], ["model.pretrained_sha256=0123456789"]),
        (["method.name=supervised"], ["loss.kind=fpl", "data.unlabeled_batch=6"]),
    ],
)
def test_settings_that_nothing_reads_make_no_other_run(
    base: Path, settings: list[str], without_effect: list[str]
) -> None:
    assert run_id(filled(base, *settings, *without_effect)) == run_id(filled(base, *settings))


def test_a_problem_between_sections_names_what_was_typed_last(base: Path) -> None:
    assert message(base, "data.unlabeled_batch=1").startswith("override data.unlabeled_batch: ")
    assert message(base, "loss.kind=fpl", "loss.strategy=fixed", "loss.fixed_k=11").startswith(
        "override loss.fixed_k: "
    )


def test_doubtful_choices_are_warned_about(base: Path) -> None:
    assert warnings_of(load_config(base)) == []
    for overrides, expected in [
        (["method.weight=0.0"], "have no influence"),
        (["loss.supervised=ohem"], "ohem is plain cross-entropy here"),
        (["loss.kind=fpl", "loss.strategy=n", "loss.balance=true"], "divides by a loss"),
        (["loss.kind=fpl", "loss.strategy=step", "data.num_classes=3"], "3 classes cap it"),
    ]:
        (warning,) = warnings_of(load_config(base, overrides=overrides))
        assert expected in warning


@pytest.mark.parametrize(
    "override",
    [
        *("seed=1", "optim.lr=0.2", "data.split.labeled=1123456789abcdef", "method.pair=same", "loss.kind=fpl"),
        "data.split.holdout=4",
    ],
)
def test_a_changed_value_is_another_run(base: Path, override: str) -> None:
    assert run_id(filled(base)) != run_id(filled(base, override))


def test_identity_is_stable_across_key_order_and_number_type(base: Path) -> None:
    reordered = base.parent / "reordered.toml"
    sections = BASE.strip().split("\n[")
    reordered.write_text("\n[".join(["[optim]\nlr = 1e-1", *(f"{part}" for part in sections[1:] if "lr" not in part)]))
    text = reordered.read_text() + "\n" + sections[0]
    reordered.write_text(text)
    assert canonical(filled(reordered)) == canonical(filled(base))
    assert digest(filled(base)) == hashlib.sha256(canonical(filled(base)).encode()).hexdigest()[:16]


def test_run_without_split_digests_has_no_identity(base: Path) -> None:
    with pytest.raises(FplError, match="no identity before its split is read"):
        run_id(load_config(base))


def test_run_id_reads_like_the_run(base: Path) -> None:
    config = filled(base, "loss.kind=fpl", "seed=2")
    assert run_id(config) == f"camvid-cpscutmix-fpl-tiny-1_8-s2-{digest(config)[:8]}"


def test_override_without_effect_is_noted(base: Path) -> None:
    config = load_config(base, overrides=["loss.threshold=0.5", "seed=1"])
    notes = without_effect(config, ["loss.threshold=0.5", "seed=1"])
    assert len(notes) == 1 and "loss.threshold = 0.5 has no effect" in notes[0]


@pytest.mark.parametrize(
    "override", ['seed="1"', "data.split.fraction=3", 'train.steps="8"', 'optim.lr="0.1"', 'loss.threshold=".8"',
                 'method.cutmix="no"', "data.scales=[2,1]"],
)  # fmt: skip
def test_an_override_that_is_taken_otherwise_than_written_has_its_effect(base: Path, override: str) -> None:
    try:
        config = load_config(base, overrides=["loss.kind=fpl", override])
    except FplError:
        pytest.skip("refused: nobody is told that it has no effect")
    assert without_effect(config, [override]) == []


@pytest.mark.parametrize(
    "text", ["a." * 50_000 + "b = 1\n", "[" + "a." * 50_000 + "b]\n", "x = {" + "a." * 9000 + "b = 1}"]
)
def test_dotted_keys_of_thousands_of_parts_are_refused_at_once(tmp_path: Path, text: str) -> None:
    """They took the reader half a minute and more, which grows with the square."""
    path = tmp_path / "run.toml"
    path.write_text(text)
    with pytest.raises(FplError, match="deep in each other") as caught:
        load_config(path)
    assert caught.value.where == str(path)


def test_config_is_frozen(base: Path) -> None:
    with pytest.raises(Exception, match="frozen"):
        load_config(base).seed = 3  # type: ignore[misc]


def test_validate_takes_plain_tables(base: Path) -> None:
    config = load_config(base)
    assert validate(config.model_dump()) == config


@pytest.mark.parametrize(("workers", "fits"), [(1, True), (2, True), (3, False), (4, True), (8, False)])
def test_workers_share_the_batch_exactly_or_are_refused(base: Path, workers: int, fits: bool) -> None:
    problem = worker_problem(load_config(base), workers)
    assert (problem is None) is fits
    if problem:
        assert "[1, 2, 4] can" in problem


def test_every_experiment_file_loads() -> None:
    files = sorted((Path(__file__).parents[2] / "experiments" / "base").glob("*.toml"))
    assert files
    for path in files:
        load_config(path)
        load_config(path, scale="smoke")


def test_paper_recipes_keep_their_method_at_the_scale_of_camvid() -> None:
    base = Path(__file__).parents[2] / "experiments" / "base"
    paper, small = (load_config(base / "cityscapes_cps.toml", scale=scale) for scale in (None, "camvid"))
    assert (small.method.cutmix, small.loss.kind) == (paper.method.cutmix, paper.loss.kind)
    assert small.data == load_config(base / "camvid_cps.toml").data
    # The rates that one process needs to train as the released code does on its 8 and 4 GPUs.
    assert (paper.optim.lr, paper.optim.weight_decay) == (0.02 / 8, 1e-4 * 8)
    voc = load_config(base / "voc_cps.toml")
    assert (voc.optim.lr, voc.optim.weight_decay) == (0.01 / 4, 1e-4 * 4)
    assert (paper.train.steps, voc.train.steps) == (137 * 325, 34 * 1157)
