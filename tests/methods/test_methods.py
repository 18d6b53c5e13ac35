"""What every method must satisfy, and CPS against hand-built expectations."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from fpl.config.compose import load_config
from fpl.config.schema import RunConfig
from fpl.config.sections import LossConfig
from fpl.data.augment import cutmix_masks
from fpl.losses import cross_entropy, fuzzy_positive_loss
from fpl.train.runtime import autocast
from tests.methods.support import CLOCK, assert_all_learn, batch_for, build


def losses(config: RunConfig) -> Any:
    method = build(config)
    return method.losses(batch_for(config, method.request.draws), CLOCK)


def choices(field: str) -> tuple[Any, ...]:
    return get_args(LossConfig.model_fields[field].annotation)


@pytest.mark.parametrize(("cutmix", "on_labeled"), [("true", "false"), ("false", "true"), ("false", "false")])
def test_terms_are_named(run_file: Path, cutmix: str, on_labeled: str) -> None:
    config = load_config(run_file, overrides=[f"method.cutmix={cutmix}", f"method.on_labeled={on_labeled}"])
    found = losses(config)
    assert set(found.terms) == {"supervised_1", "supervised_2", "cross"}
    assert set(found.pixel_terms) == {"12", "21"}
    assert found.objectives["main"].isfinite()


def test_supervised_has_no_unsupervised_term(run_file: Path) -> None:
    found = losses(load_config(run_file, overrides=["method.name=supervised"]))
    assert found.unsupervised is None and set(found.terms) == {"supervised"} and not found.pixel_terms
    assert torch.equal(found.objectives["main"], found.supervised)


@pytest.mark.parametrize("kind", choices("kind"))
def test_every_pixel_loss_trains_both_networks(run_file: Path, kind: str) -> None:
    config = load_config(run_file, overrides=[f"loss.kind={kind}"])
    method = build(config)
    losses = method.losses(batch_for(config, method.request.draws), CLOCK)
    losses.objectives["main"].backward()
    for parameter in method.parameters():
        assert parameter.grad is not None and bool(parameter.grad.isfinite().all())


@pytest.mark.parametrize("cutmix", ["true", "false"])
def test_every_parameter_learns_under_bf16(run_file: Path, cutmix: str) -> None:
    config = load_config(run_file, overrides=["train.precision=bf16", f"method.cutmix={cutmix}", "loss.kind=fpl"])
    method = build(config)
    with autocast(config.train, torch.device("cpu")):
        found = method.losses(batch_for(config, method.request.draws), CLOCK)
    found.objectives["main"].backward()
    assert_all_learn(method)


@pytest.mark.parametrize(
    ("field", "value"),
    [(field, value) for field in ("strategy", "weight", "fidelity", "supervised") for value in choices(field)],
)
def test_every_option_of_the_loss_is_exercised(run_file: Path, field: str, value: str) -> None:
    found = losses(load_config(run_file, overrides=["loss.kind=fpl", f"loss.{field}={value}"]))
    assert found.objectives["main"].isfinite()


def test_cps_without_cutmix_by_hand(run_file: Path) -> None:
    overrides = ["method.cutmix=false", "method.weight=1.5", "loss.kind=ce"]
    config = load_config(run_file, overrides=overrides)
    method = build(config)
    batch = batch_for(config, 1)
    found = method.losses(batch, CLOCK)
    # BatchNorm in train mode gives the same outputs for the same batch, whatever its running statistics are.
    both = method.networks()
    labeled = [network(batch.image) for network in both]
    joined = [torch.cat([own, network(batch.unlabeled[0].image)]) for own, network in zip(labeled, both, strict=True)]
    cross = torch.nn.functional.cross_entropy(joined[0], joined[1].argmax(1))
    cross = cross + torch.nn.functional.cross_entropy(joined[1], joined[0].argmax(1))
    supervised = sum(torch.nn.functional.cross_entropy(logits, batch.label, ignore_index=255) for logits in labeled)
    torch.testing.assert_close(found.terms["cross"], cross)
    torch.testing.assert_close(found.objectives["main"], supervised + 1.5 * cross)


def test_cps_with_cutmix_and_fpl_by_hand(run_file: Path) -> None:
    config = load_config(run_file, overrides=["loss.kind=fpl", "loss.threshold=0.5"])
    method = build(config)
    batch = batch_for(config, 2)
    found = method.losses(batch, CLOCK)
    first, second = batch.unlabeled
    mask = cutmix_masks(config.seed, first.position, config.data.crop)[:, None]
    assert 0 < mask.float().mean() < 1
    both = method.networks()
    with torch.no_grad():
        teachers = [torch.where(mask, network(second.image), network(first.image)) for network in both]
    students = [network(torch.where(mask, second.image, first.image)) for network in both]
    cross = fuzzy_positive_loss(students[0], teachers[1], threshold=0.5)
    cross = cross + fuzzy_positive_loss(students[1], teachers[0], threshold=0.5)
    torch.testing.assert_close(found.terms["cross"], cross)


def test_release_rescales_to_the_value_of_cross_entropy(run_file: Path) -> None:
    released = losses(load_config(run_file, overrides=["loss.kind=fpl", "loss.fidelity=released"]))
    plain = losses(load_config(run_file, overrides=["loss.kind=ce"]))
    torch.testing.assert_close(released.terms["cross"], plain.terms["cross"])


@pytest.mark.parametrize(("ramp", "factor"), [(0.0, 1.0), (1.0, 0.5), (0.5, 1.0), (0.75, 2 / 3)])
def test_ramp_is_a_function_of_the_step(run_file: Path, ramp: float, factor: float) -> None:
    found = losses(load_config(run_file, overrides=[f"method.ramp={ramp}", "method.weight=2.0"]))
    torch.testing.assert_close(found.unsupervised, 2.0 * factor * found.terms["cross"])


def test_teachers_get_no_gradient_and_keep_train_mode(run_file: Path) -> None:
    config = load_config(run_file, overrides=["loss.kind=fpl"])
    method = build(config)
    before = method.network.backbone.state_dict()
    counters = {name: int(value) for name, value in before.items() if name.endswith("num_batches_tracked")}
    method.losses(batch_for(config, 2), CLOCK)
    after = method.network.backbone.state_dict()
    # Two teacher passes, the mixed images and the labeled images, as in the released code.
    assert counters and all(int(after[name]) - count == 4 for name, count in counters.items())


def test_weight_decay_spares_norms_and_biases(run_file: Path) -> None:
    config = load_config(run_file, overrides=["optim.head_lr_multiplier=10.0", "optim.weight_decay=0.01"])
    method = build(config)
    (optimizer,) = method.optimizers().values()
    names = {id(parameter): name for name, parameter in method.named_parameters()}
    seen = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            name = names[id(parameter)]
            seen.append(name)
            assert group["weight_decay"] == (0.01 if parameter.ndim == 4 else 0.0), name
            assert group["lr_multiplier"] == (1.0 if ".backbone." in f".{name}" else 10.0), name
    assert sorted(seen) == sorted(names.values())
    everything = load_config(run_file, overrides=["optim.decay_norm_and_bias=true"])
    (optimizer,) = build(everything).optimizers().values()
    assert {group["weight_decay"] for group in optimizer.param_groups} == {1e-4}


def test_supervised_losses_are_means_of_the_means_of_groups(run_file: Path) -> None:
    logits = torch.randn(4, 19, 5, 5, generator=torch.Generator().manual_seed(0))
    label = torch.arange(100).view(4, 5, 5) % 19
    label[1, 1:] = 255
    label[2:] = 255
    for name, images in (("supervised", 4), ("cps", 2)):
        groups = [slice(start, start + images) for start in range(0, 4, images)]
        config = load_config(run_file, overrides=[f"method.name={name}", f"data.groups={len(groups)}"])
        # Two of the images have no labeled pixel: alone in a group they add 0 and are counted.
        parts = [cross_entropy(logits[group], label[group])[0] for group in groups]
        torch.testing.assert_close(build(config).supervised_loss(logits, label), torch.stack(parts).mean())


def test_networks_start_with_different_heads(run_file: Path) -> None:
    first, second = build(load_config(run_file)).networks()
    assert not torch.equal(first.classifier.weight, second.classifier.weight)


@pytest.mark.parametrize("name", ["supervised", "cps"])
def test_thinned_losses_see_every_fourth_pixel(config: RunConfig, name: str) -> None:
    """At 37 = 4 * 9 + 1 pixels, aligned corners put every fourth pixel exactly on a position of the small logits."""
    tree = config.model_dump(mode="json")
    tree["loss"]["stride"] = 4
    if name == "supervised":
        tree["method"] = {"name": name}
    method = build(RunConfig.model_validate(tree)).eval()
    image = torch.randn(2, 3, 37, 37, generator=torch.Generator().manual_seed(3))
    label = torch.arange(37 * 37).reshape(1, 37, 37)
    with torch.no_grad():
        thin, full = method.train_logits(method.network, image), method.network(image)
    assert thin.shape[-2:] == (10, 10)
    torch.testing.assert_close(thin, full[..., ::4, ::4], rtol=1e-4, atol=1e-5)
    assert torch.equal(method.thin(label), label[..., ::4, ::4])
