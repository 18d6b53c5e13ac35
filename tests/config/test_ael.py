"""The configuration of AEL: what its unset keys become, what makes no other run, and what is refused."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from fpl.config.checks import warnings_of, worker_problem
from fpl.config.compose import load_config, validate
from fpl.config.identity import recipe_digest
from fpl.config.schema import RunConfig
from fpl.errors import FplError
from fpl.methods.ael.options import AelOptions

BASE = """
[data]
dataset = "cityscapes"
num_classes = 19
split = { fraction = "1/8" }
crop = [64, 64]
labeled_batch = 16
unlabeled_batch = 8
[model]
backbone = "tiny"
pretrained = "none"
network = "ael"
[method]
name = "ael"
[optim]
lr = 0.1
[train]
steps = 10
evaluate_every = 5
[eval]
protocol = "sliding"
"""
RELEASED = "method.fidelity=released"
VOC = ["data.dataset=voc", "data.num_classes=21"]
FPL = "loss.kind=fpl"
GATE = "method.confidence_gate=0.7"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "base.toml"
    path.write_text(BASE)
    return path


def method_of(config: RunConfig) -> AelOptions:
    assert isinstance(config.method, AelOptions)
    return config.method


def config_of_dump(config: RunConfig, **method: Any) -> dict[str, Any]:
    tree: dict[str, Any] = config.model_dump(mode="json")
    tree["method"] |= method
    return tree


def recipe(base: Path, *overrides: str) -> str:
    return recipe_digest(load_config(base, overrides=overrides).model_dump(mode="json"))


def message(base: Path, *overrides: str) -> str:
    with pytest.raises(FplError) as caught:
        load_config(base, overrides=overrides)
    return caught.value.message


# fidelity, loss, data set -> padding label, gate (0.7 is given), partner. FPL's copy of AEL's code drops the gate,
# and on VOC pastes an image onto itself; AEL's own code pads with class 0; the paper has none of this.
RESOLVED: dict[tuple[str, str, str], tuple[int, float, str]] = {
    ("paper", "ce", "cityscapes"): (255, 0.7, "other"),
    ("paper", "ce", "voc"): (255, 0.7, "other"),
    ("paper", "fpl", "cityscapes"): (255, 0.7, "other"),
    ("paper", "fpl", "voc"): (255, 0.7, "other"),
    ("released", "ce", "cityscapes"): (0, 0.7, "other"),
    ("released", "ce", "voc"): (0, 0.7, "other"),
    ("released", "fpl", "cityscapes"): (0, 0.0, "other"),
    ("released", "fpl", "voc"): (0, 0.0, "same"),
}


@pytest.mark.parametrize(("fidelity", "kind", "dataset"), RESOLVED)
def test_unset_keys_follow_fidelity_loss_and_data_set(base: Path, fidelity: str, kind: str, dataset: str) -> None:
    overrides = [f"method.fidelity={fidelity}", f"loss.kind={kind}", GATE, *(VOC if dataset == "voc" else [])]
    config = load_config(base, overrides=overrides)
    method = method_of(config)
    found = (config.data.padding_label, method.confidence_gate, method.paste_partner)
    assert found == RESOLVED[fidelity, kind, dataset]
    # What is recorded must not say that a gate was kept which was dropped.
    assert method.gate_under_fpl is (True if kind == "fpl" and fidelity == "paper" else None)


def test_drawn_objects_are_as_voc(base: Path) -> None:
    drawn = ["data.dataset=synthetic_voc", "data.num_classes=21", RELEASED, FPL]
    assert method_of(load_config(base, overrides=drawn)).paste_partner == "same"


def test_what_is_given_wins_over_fidelity(base: Path) -> None:
    given = ["data.padding_label=255", "method.gate_under_fpl=true", "method.paste_partner=other", GATE]
    config = load_config(base, overrides=[RELEASED, FPL, *VOC, *given])
    method = method_of(config)
    assert (config.data.padding_label, method.confidence_gate, method.paste_partner) == (255, 0.7, "other")
    dropped = load_config(base, overrides=[FPL, GATE, "method.gate_under_fpl=false"])
    assert method_of(dropped).confidence_gate == 0.0
    again = validate(config_of_dump(load_config(base, overrides=[RELEASED, FPL, GATE]), confidence_gate=0.7))
    assert method_of(again).confidence_gate == 0.0, "what was dropped stays dropped when a gate is given again"
    padded = load_config(base, overrides=["data.padding_label=0"])
    assert padded.data.padding_label == 0 and method_of(padded).fidelity == "paper"


def test_other_methods_ignore_padding(base: Path) -> None:
    for method in ("method={name='supervised'}", "method={name='cps', cutmix=true, weight=1.0}"):
        assert load_config(base, overrides=[method]).data.padding_label == 255


@pytest.mark.parametrize(
    ("overrides", "coefficient"),
    [
        ([], 4.0),
        (["loss.fidelity=released"], 4.0),
        (["loss.fidelity=released", "loss.convex_coefficient=1.0"], 1.0),
        (["loss.convex_coefficient=2.0"], 2.0),
        # The released CPS code has another one.
        (["loss.fidelity=released", "method={name='cps', cutmix=true, weight=1.0}"], 1.0),
        (["method={name='cps', cutmix=true, weight=1.0}"], 4.0),
    ],
)
def test_convex_coefficient(base: Path, overrides: list[str], coefficient: float) -> None:
    config = load_config(base, overrides=[FPL, "loss.weight=convex", *overrides])
    assert config.loss.convex_coefficient == coefficient


@pytest.mark.parametrize(
    ("settings", "without_effect"),
    [
        (
            ["method.copy_paste=false"],
            [
                "method.paste_probability=0.9",
                "method.paste_classes=5",
                "method.paste_excluded=[3]",
                "method.paste_scales=[0.5,1.5]",
                "method.paste_partner=same",
            ],
        ),
        (["method.sampling=false"], ["method.sampling_power=3.0"]),
        ([], ["method.gate_under_fpl=false"]),
        ([GATE], ["method.gate_under_fpl=true"]),
        ([GATE, FPL, "method.gate_under_fpl=false"], ["method.confidence_gate=0.5"]),
        (["method.paste_excluded=[1,3]"], ["method.paste_excluded=[3,1,3]"]),
        (["data.scale_sampling=balanced", "data.scales=[0.5,2.0]"], ["data.scales=[0.5,1.0,2.0]"]),
        (["model.network=cps"], ["model.dropout=0.4", "loss.auxiliary_weight=0.9"]),
        (["method.name=supervised", "model.network=ael"], ["loss.kind=fpl"]),
    ],
)
def test_settings_that_nothing_reads_make_no_other_run(
    base: Path, settings: list[str], without_effect: list[str]
) -> None:
    for override in without_effect:
        assert recipe(base, *settings, override) == recipe(base, *settings), override


@pytest.mark.parametrize(
    "override",
    [
        "method.weight=0.5",
        "method.ramp=0.1",
        "data.groups=4",
        "method.confidence_momentum=0.9",
        GATE,
        "method.confidence_power=1.0",
        "method.sampling=false",
        "method.sampling_power=2.0",
        "method.copy_paste=false",
        "method.paste_probability=0.9",
        "method.paste_classes=1",
        "method.paste_excluded=[0]",
        "method.paste_scales=[0.5,1.5]",
        "method.paste_partner=same",
        "method.component_area=0.03",
        "method.bank_area=0.03",
        "method.ema_decay=0.9",
        "method.ema_buffers=true",
        "method.fidelity=released",
        "data.padding_label=0",
        "model.dropout=0.2",
        "model.network=cps",
        "loss.auxiliary_weight=0.1",
        "eval.protocol=center",
        "eval.subsample=9",
    ],
)
def test_every_other_setting_makes_another_run(base: Path, override: str) -> None:
    assert recipe(base, override) != recipe(base)


def test_auxiliary_weight_of_a_supervised_run_counts(base: Path) -> None:
    supervised = ["method.name=supervised", "loss.auxiliary_weight=0.1"]
    assert load_config(base, overrides=supervised).loss.auxiliary_weight == 0.1


def variants() -> list[list[str]]:
    choices: list[list[list[str]]] = [
        [[], [RELEASED]],
        [[], [FPL], [FPL, "loss.weight=convex", "loss.fidelity=released"]],
        [[], VOC],
        [[], [GATE], [GATE, "method.gate_under_fpl=false"], [GATE, "method.gate_under_fpl=true"]],
        [[], ["method.copy_paste=false"], ["method.sampling=false"], ["model.network=cps"]],
    ]
    return [[*itertools.chain(*parts)] for parts in itertools.product(*choices)]


def test_a_validated_configuration_stays_as_it_is(base: Path) -> None:
    for overrides in variants():
        config = load_config(base, overrides=overrides)
        assert validate(config.model_dump()) == config, overrides
        assert validate(config.model_dump(mode="json")) == config, overrides


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["data.labeled_batch=12", "data.groups=8"], "data.labeled_batch = 12 is no multiple of data.groups = 8"),
        (["data.unlabeled_batch=4", "data.groups=8"], "data.unlabeled_batch = 4 is no multiple of data.groups = 8"),
        (["data.unlabeled_batch=0"], "needs at least 1 unlabeled image"),
        (["method.paste_excluded=[19]"], "method.paste_excluded has 19, but classes are 0 to 18"),
        ([f"method.paste_excluded={list(range(19))}"], "method.paste_excluded leaves no class to paste"),
        (["method.paste_excluded=[-1]"], "method.paste_excluded"),
        (["method.paste_scales=[0.1,0.5]"], "must enclose 1"),
        (["method.paste_scales=[2.0,0.5]"], "not ordered from small to large"),
        (["method.teacher_mode=eval"], "set ema_buffers = true"),
        (["method.confidence_gate=1.0"], "method.confidence_gate = 1.0 is not allowed"),
        (["method.ema_decay=1.0"], "method.ema_decay = 1.0 is not allowed"),
        (["method.paste_clases=2"], "did you mean method.paste_classes?"),
        (["method.cutmix=true"], "unknown key method.cutmix"),
        (["data.padding_label=7"], "data.padding_label = 7 is not allowed"),
        (["data.scale_sampling=balanced", "data.scales=[1.5,2.0]"], "needs scales on both sides of 1"),
        (["data.groups=3"], "no multiple of data.groups = 3"),
        (["model.dropout=1.0"], "model.dropout = 1.0 is not allowed"),
    ],
)
def test_contradictions_are_explained(base: Path, overrides: list[str], expected: str) -> None:
    assert expected in message(base, *overrides)


def test_what_copy_paste_does_not_read_is_no_contradiction(base: Path) -> None:
    without = ["method.copy_paste=false", "method.paste_excluded=[19]"]
    assert not method_of(load_config(base, overrides=without)).copy_paste


@pytest.mark.parametrize(
    ("gate", "threshold", "kind", "strategy", "warns"),
    [
        (0.7, 0.9, "fpl", "n-1", False),
        (0.9, 0.9, "fpl", "n-1", True),
        (0.95, 0.9, "fpl", "n-1", True),
        (0.95, 0.9, "fpl", "fixed", False),
        (0.95, 0.9, "ce", "n-1", False),
    ],
)
def test_a_gate_that_leaves_fpl_nothing_is_warned_about(
    base: Path, gate: float, threshold: float, kind: str, strategy: str, warns: bool
) -> None:
    overrides = [f"method.confidence_gate={gate}", f"loss.kind={kind}"]
    overrides += [f"loss.threshold={threshold}", f"loss.strategy={strategy}"] if kind == "fpl" else []
    found: list[Any] = warnings_of(load_config(base, overrides=overrides))
    assert [("lower the gate" in warning) for warning in found] == ([True] if warns else [])


@pytest.mark.parametrize(("workers", "fits"), [(1, True), (2, True), (3, False), (4, True), (8, True), (16, False)])
def test_workers_share_the_groups(base: Path, workers: int, fits: bool) -> None:
    config = load_config(base, overrides=["loss.supervised=ohem", "loss.ohem_min_kept=100"])
    assert (worker_problem(config, workers) is None) is fits


def test_groups_that_workers_cannot_share_are_refused(base: Path) -> None:
    config = load_config(base, overrides=["data.groups=2"])
    assert worker_problem(config, 2) is None
    assert worker_problem(config, 4) == "data.groups = 2 cannot be shared equally by 4 workers: [1, 2] can"
