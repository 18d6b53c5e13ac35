"""PseudoSeg against the arithmetic of its released code, written down a second time, in float64 and mostly in loops."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fpl.config.checks import warnings_of
from fpl.config.compose import load_config
from fpl.config.schema import RunConfig
from fpl.data.batches import Batch
from fpl.errors import FplError
from fpl.losses import fuzzy_positive_loss
from fpl.methods.base import Clock
from fpl.methods.pseudoseg.activation import ActivationBranch, attend, normalised_maps
from fpl.methods.pseudoseg.fusion import fused_label
from fpl.methods.pseudoseg.method import PseudoSeg
from fpl.methods.pseudoseg.options import PseudoSegOptions
from fpl.methods.views import JITTER, cutout_masks
from fpl.models.backbone import Features
from fpl.train.runtime import autocast
from tests.methods.support import CLOCK, assert_all_learn, batch_for, build

KEYS = ["method.name=pseudoseg", "data.groups=2", "loss.kind=soft"]
# The run file's data are street scenes; these have a background.
VOC = ["data.dataset=synthetic_voc", "data.num_classes=21", "method.attention_channels=8"]


def configured(run_file: Path, *more: str) -> RunConfig:
    return load_config(run_file, overrides=[*KEYS, *more])


def options(run_file: Path, *more: str) -> PseudoSegOptions:
    found = configured(run_file, *more).method
    assert isinstance(found, PseudoSegOptions)
    return found


def pseudoseg(run_file: Path, *more: str) -> PseudoSeg:
    method = build(configured(run_file, *more))
    assert isinstance(method, PseudoSeg)
    return method


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


def padded(config: RunConfig) -> Batch:
    """Float64 images with padding below and right of them, and unknown labels there."""
    batch = batch_for(config, 1)
    draw = batch.unlabeled[0]
    valid = torch.ones_like(batch.valid)
    valid[0, 24:] = valid[1:, :, 30:] = False
    batch.valid, batch.label = valid, batch.label.masked_fill(~valid, 255)
    batch.image = batch.image.double() * valid.unsqueeze(1)
    object.__setattr__(draw, "valid", valid.flip(0))
    object.__setattr__(draw, "image", draw.image.double() * draw.valid.unsqueeze(1))
    return batch


# --- options


def test_the_data_say_whether_tags_are_of_use(run_file: Path) -> None:
    assert options(run_file).class_activation is False
    assert options(run_file, *VOC).class_activation is True
    forced = configured(run_file, "method.class_activation=true")
    assert any("method.class_activation" in warning for warning in warnings_of(forced))
    assert not warnings_of(configured(run_file))


def test_keys_that_nothing_reads_make_no_other_run(run_file: Path) -> None:
    unread = ["method.attention_channels=4", "method.activation_mode=train", "method.decoder_share=0.3"]
    assert options(run_file, *unread, "method.normalised=false") == options(run_file)
    for key in unread:
        assert options(run_file, *VOC, key) != options(run_file, *VOC)
    frozen = [*VOC, "model.norm=frozen", "model.pretrained=imagenet"]
    assert options(run_file, *frozen, "method.activation_mode=train") == options(run_file, *frozen)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (["loss.kind=fpl", "loss.threshold=0.9", "method.confidence_gate=0.95"], "method.confidence_gate = 0.95"),
        ([*VOC, "model.norm=frozen", "model.pretrained=imagenet"], "model.norm = frozen"),
        (["method.weight=0"], "method.weight = 0"),
        (["loss.kind=mse"], "another scale"),
    ],
)
def test_what_is_doubtful_is_said(run_file: Path, keys: list[str], words: str) -> None:
    assert any(words in warning for warning in warnings_of(configured(run_file, *keys)))


@pytest.mark.parametrize("key", ["decoder_share=1.0", "temperature=0", "cutout_side=1", "activation_mode=both"])
def test_problems_name_the_key(run_file: Path, key: str) -> None:
    with pytest.raises(FplError, match=f"method.{key.split('=', maxsplit=1)[0]}"):
        configured(run_file, f"method.{key}")


# --- class activation maps


def branch_for(background: bool, classes: int = 5) -> ActivationBranch:
    torch.manual_seed(2)
    return ActivationBranch(3, 4, classes, background=background, attention_channels=6).double()


def grad_cam(branch: ActivationBranch, high: Tensor, tags: Tensor) -> Tensor:
    """As released: gradients of each class's logit by the features, their mean over positions as channels' weights."""
    features = high.detach().requires_grad_()
    weight, bias = branch.classifier.weight.detach().flatten(1), branch.classifier.bias
    assert bias is not None
    logits = features.mean((2, 3)) @ weight.T + bias.detach()
    maps = []
    for number in range(logits.shape[1]):
        (gradient,) = torch.autograd.grad(logits[:, number].sum(), features, retain_graph=True)
        weights = gradient.mean((2, 3), keepdim=True)
        maps.append((weights * features).sum(1).relu().detach() * tags[:, number, None, None])
    stacked = torch.stack(maps, 1)
    highest = stacked.amax((2, 3), keepdim=True)
    return torch.where(highest > 0, stacked / highest.clamp_min(1e-5), torch.zeros_like(stacked))


@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("scale", [1.0, 1e-4], ids=["usual", "tiny"])
def test_activations_are_grad_cam(background: bool, scale: float) -> None:
    branch = branch_for(background)
    with torch.no_grad():
        assert branch.classifier.bias is not None
        branch.classifier.bias.uniform_(-1, 1)
    high = numbers(3, 4, 6, 7) * scale
    features = Features(high, high, high)
    logits, activations = branch.classify(features)
    tags = torch.rand(3, 5 - background, generator=torch.Generator().manual_seed(1)) < 0.6
    expected = grad_cam(branch, high, tags)
    torch.testing.assert_close(normalised_maps(activations, tags), expected, rtol=1e-9, atol=1e-9)
    assert bool(expected.any()) and not bool(expected[~tags].any()) and not activations.requires_grad
    if scale == 1.0:
        assert set(expected.amax((2, 3)).flatten().tolist()) == {0.0, 1.0}
    weight = branch.classifier.weight.flatten(1)
    torch.testing.assert_close(logits, high.mean((2, 3)) @ weight.T + branch.classifier.bias)


def test_tags_are_the_classes_of_a_label() -> None:
    label = torch.full((2, 4, 4), 255)
    label[0, :2] = torch.tensor([0, 3, 3, 4])
    with_background, without = branch_for(True).tags(label), branch_for(False).tags(label)
    assert with_background.tolist() == [[False, False, True, True], [False] * 4]
    assert without.tolist() == [[True, False, False, True, True], [False] * 5]


def attended_by_loops(query: Tensor, key: Tensor, values: Tensor, valid: Tensor) -> Tensor:
    found = torch.zeros_like(values)
    depth, count = query.shape[1:]
    for image in range(len(query)):
        for asking in range(count):
            powers = [
                math.exp(float(query[image, :, asking] @ key[image, :, asked]) / math.sqrt(depth))
                * bool(valid[image, asked])
                for asked in range(count)
            ]
            if not valid[image, asking]:
                powers = [1.0] * count
            for asked, power in enumerate(powers):
                found[image, :, asking] += values[image, :, asked] * power / sum(powers)
    return found


def test_attention_is_that_by_loops_and_sees_no_padding() -> None:
    query, key, values = numbers(2, 5, 12), numbers(2, 5, 12, seed=1), numbers(2, 3, 12, seed=2)
    valid = torch.ones(2, 12, dtype=torch.bool)
    valid[0, 8:] = False
    found = attend(query, key, values, valid)
    torch.testing.assert_close(found, attended_by_loops(query, key, values, valid), rtol=1e-10, atol=1e-12)
    other = values.clone()
    other[0, :, 8:] = 1e6
    assert torch.equal(attend(query, key, other, valid)[..., :8], found[..., :8])


def refined_by_hand(branch: ActivationBranch, features: Features, maps: Tensor, valid: Tensor) -> Tensor:
    """`compute_self_att_v2` without its downsampling, and `pixel_normalization`."""
    height, width = maps.shape[-2:]
    middle = F.interpolate(features.middle, size=(height, width), mode="bilinear", align_corners=True)
    column = torch.cat([features.high, middle], 1).detach().flatten(2)
    query, key = (layer.weight.flatten(1) @ column for layer in (branch.query, branch.key))
    rows = [row * valid.shape[1] // height for row in range(height)]
    columns = [place * valid.shape[2] // width for place in range(width)]
    seen = valid[:, rows][..., columns].flatten(1).double()
    logits = torch.einsum("bdq,bdk->bqk", query, key) / math.sqrt(query.shape[1])
    logits = logits + (1 - torch.einsum("bq,bk->bqk", seen, seen)) * -1e9
    # In float32, which the release has, nothing is left of the product beside 1e9.
    logits = torch.where(logits < -1e8, torch.full_like(logits, -1e9), logits)
    scores = torch.einsum("bqk,btk->btq", logits.softmax(-1), maps.flatten(2)).view_as(maps) + maps
    if branch.first:
        background = torch.full_like(scores[:, :1], 2.0) - scores.max(1, keepdim=True).values
        scores = torch.cat([background, scores], 1)
    calibration, norm = branch.calibration[0], branch.calibration[1]
    mixed = torch.einsum("oc,bchw->bohw", calibration.weight.flatten(1), scores)
    mean, variance = mixed.mean((0, 2, 3), keepdim=True), mixed.var((0, 2, 3), unbiased=False, keepdim=True)
    shifted: Tensor = (mixed - mean) / (variance + 1e-5).sqrt() + norm.bias.view(1, -1, 1, 1)
    return shifted


@pytest.mark.parametrize("background", [True, False])
def test_refinement_is_that_by_hand_and_teaches_its_own_layers_alone(background: bool) -> None:
    branch = branch_for(background)
    high, middle = numbers(2, 4, 5, 6).requires_grad_(), numbers(2, 3, 10, 11, seed=1).requires_grad_()
    features = Features(high, middle, high)
    valid = torch.ones(2, 40, 44, dtype=torch.bool)
    valid[1, 20:] = False
    tags = torch.tensor([[True, False, True, True, True], [True, True, False, False, True]])[:, background:]
    _, activations = branch.classify(features)
    found = branch.refine(features, activations, tags, valid)
    expected = refined_by_hand(branch, features, normalised_maps(activations, tags), valid)
    assert found.shape == (2, 5, 5, 6)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    target = torch.randint(0, 5, (2, 5, 6), generator=torch.Generator().manual_seed(4))
    F.cross_entropy(found, target).backward()  # type: ignore[no-untyped-call]
    reached = {name for name, parameter in branch.named_parameters() if parameter.grad is not None}
    assert reached == {"key.weight", "query.weight", "calibration.0.weight", "calibration.1.bias"}
    assert high.grad is None and middle.grad is None


# --- fusion


def fused_by_loops(
    decoder: Tensor, maps: Tensor, share: float, temperature: float, normalised: bool, groups: int
) -> Tensor:
    found = np.zeros(tuple(decoder.shape))
    own = len(decoder) // groups
    for group in range(groups):
        images = range(group * own, (group + 1) * own)
        both = np.concatenate([source[images.start : images.stop].numpy().ravel() for source in (decoder, maps)])
        root = math.sqrt((both**2).mean() + 1e-8) if normalised else 1.0
        for image in images:
            for place in np.ndindex(*decoder.shape[2:]):
                mixed = np.zeros(decoder.shape[1])
                for source, part in ((decoder, share), (maps, 1 - share)):
                    powers = np.exp(source[(image, slice(None), *place)].numpy() / root)
                    mixed += part * powers / powers.sum()
                sharpened = mixed ** (1 / temperature)
                found[(image, slice(None), *place)] = sharpened / sharpened.sum()
    return torch.from_numpy(found)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    ("share", "temperature", "normalised"), [(0.5, 0.5, True), (0.3, 1.0, True), (0.8, 0.25, False)]
)
def test_fusion_is_that_by_loops(share: float, temperature: float, normalised: bool, groups: int) -> None:
    decoder, maps = 5 * numbers(4, 3, 4, 5), numbers(4, 3, 4, 5, seed=1)
    decoder[2:] *= 3
    found = fused_label(
        decoder, maps, temperature=temperature, decoder_share=share, normalised=normalised, groups=groups
    )
    expected = fused_by_loops(decoder, maps, share, temperature, normalised, groups)
    torch.testing.assert_close(found.exp(), expected, rtol=1e-7, atol=1e-12)


def test_fusion_of_a_pixel_computed_by_hand() -> None:
    # Odds 3 : 1 and 1 : 1 without a scale: (0.75 + 0.5) / 2 = 0.625; squared, 0.390625 to 0.140625.
    decoder, maps = torch.tensor([math.log(3.0), 0.0]).view(1, 2, 1, 1), torch.zeros(1, 2, 1, 1)
    keys = {"temperature": 0.5, "decoder_share": 0.5}
    found = fused_label(decoder, maps, normalised=False, **keys).exp().flatten()  # type: ignore[arg-type]
    torch.testing.assert_close(found, torch.tensor([25 / 34, 9 / 34]))
    # The root mean square of log 3 and three zeros is log 3 / 2: the decoder's logits become 2 and 0.
    found = fused_label(decoder, maps, normalised=True, **keys).exp().flatten()  # type: ignore[arg-type]
    odds = ((math.e**2 / (math.e**2 + 1) + 0.5) / (1 / (math.e**2 + 1) + 0.5)) ** 2
    torch.testing.assert_close(float(found[0] / found[1]), odds, rtol=1e-5, atol=0)


def test_without_maps_the_label_is_the_sharpened_decoder() -> None:
    decoder = numbers(2, 4, 3, 3)
    found = fused_label(decoder, None, temperature=0.5, decoder_share=0.5, normalised=True)
    squared = decoder.softmax(1) ** 2
    torch.testing.assert_close(found.exp(), squared / squared.sum(1, keepdim=True))


# --- a whole step


def picked(mask: Tensor, size: torch.Size) -> Tensor:
    rows = [row * mask.shape[-2] // size[0] for row in range(size[0])]
    columns = [place * mask.shape[-1] // size[1] for place in range(size[1])]
    return mask[:, rows][..., columns]


def label_loss(logits: Tensor, label: Tensor, stride: int) -> Tensor:
    """Cross-entropy of each group's pixels, where the losses are."""
    kept = torch.linspace(0, 39, -(-40 // stride)).round().long()
    logits = F.interpolate(logits, size=(len(kept), len(kept)), mode="bilinear", align_corners=True)
    label = label[:, kept][..., kept]
    pairs = zip(logits.chunk(2), label.chunk(2), strict=True)
    return torch.stack([F.cross_entropy(*pair, ignore_index=255) for pair in pairs]).mean()


def strong_by_hand(method: PseudoSeg, batch: Batch) -> tuple[Tensor, Tensor]:
    draw, seed = batch.unlabeled[0], method.config.seed
    side = round(method.options.cutout_side * 40)
    image = JITTER(draw.image, draw.valid, seed, draw.position)
    hole = cutout_masks(seed, draw.position, (40, 40), (side, side))
    return torch.where(hole.unsqueeze(1), torch.zeros_like(image), image), draw.valid & ~hole


def label_by_hand(method: PseudoSeg, image: Tensor, seen: Tensor) -> Tensor:
    network, own, branch = method.network, method.options, method.branch
    features = network.encode(image)
    decoder = network.classifier(network.decode(features))
    if branch is None:
        powers = decoder.softmax(1) ** (1 / own.temperature)
        return powers / powers.sum(1, keepdim=True)
    if own.activation_mode == "eval":
        network.backbone.eval()
        features = network.encode(image)
        network.backbone.train()
    weight, bias = branch.classifier.weight.flatten(1), branch.classifier.bias
    assert bias is not None
    guessed = (features.high.mean((2, 3)) @ weight.T + bias).sigmoid() >= 0.5
    maps = grad_cam_now(branch, features.high, guessed)
    refined = refined_by_hand(branch, features, maps, picked(seen, decoder.shape[-2:]))
    refined = F.interpolate(refined, size=decoder.shape[-2:], mode="bilinear", align_corners=True)
    shares = (own.decoder_share, own.temperature, own.normalised, 2)
    return fused_by_loops(decoder.detach(), refined.detach(), *shares)


def grad_cam_now(branch: ActivationBranch, high: Tensor, tags: Tensor) -> Tensor:
    with torch.enable_grad():
        return grad_cam(branch, high, tags)


def step_by_hand(method: PseudoSeg, batch: Batch) -> dict[str, Tensor]:
    network, branch, own = method.network, method.branch, method.options
    stride = method.config.loss.stride
    features = network.encode(batch.image)
    logits = network.classifier(network.decode(features))
    terms = {"supervised": label_loss(logits, batch.label, stride)}
    if branch is not None:
        weight, bias = branch.classifier.weight.flatten(1), branch.classifier.bias
        assert bias is not None
        classes = range(branch.first, method.config.data.num_classes)
        tags = torch.tensor([[bool((label == number).any()) for number in classes] for label in batch.label])
        maps = grad_cam(branch, features.high.detach(), tags)
        refined = refined_by_hand(branch, features, maps, picked(batch.valid, logits.shape[-2:]))
        terms["activation"] = label_loss(refined, batch.label, stride)
        p = (features.high.mean((2, 3)) @ weight.T + bias).sigmoid()
        terms["classification"] = -torch.where(tags, p, 1 - p).log().mean()
    strong, seen = strong_by_hand(method, batch)
    with torch.no_grad():
        label = label_by_hand(method, batch.unlabeled[0].image, seen)
    student = network.classifier(network.decode(network.encode(strong.double())))
    counted = picked(seen, student.shape[-2:]).double()
    kept = counted * (label.amax(1) >= own.confidence_gate)
    if method.config.loss.kind == "fpl":
        assert not own.confidence_gate
        flat = [source.movedim(1, -1)[kept > 0] for source in (student, label.log())]
        loss = fuzzy_positive_loss(*flat, threshold=method.config.loss.threshold)
    else:
        # Cross-entropy with the soft label, less the label's entropy.
        per_pixel = (label * (label.clamp_min(1e-300).log() - student.log_softmax(1))).sum(1)
        loss = (per_pixel * kept).sum() / counted.sum()
    assert bool((counted == 0).any()) and (not own.confidence_gate or 0 < float(kept.sum()) < float(counted.sum()))
    terms["consistency"] = loss
    return terms


@pytest.mark.parametrize(
    "keys",
    [
        [],
        ["method.confidence_gate=0.3", "method.temperature=0.25", "method.ramp=0.8", "method.weight=2"],
        VOC,
        [*VOC, "method.activation_mode=train", "method.decoder_share=0.3", "loss.stride=4"],
        [*VOC, "loss.kind=fpl", "loss.threshold=0.4", "method.normalised=false", "method.cutout_side=0.5"],
        ["method.class_activation=true", "method.attention_channels=8"],
    ],
    ids=["decoder", "gated", "maps", "train-mode", "fpl", "no-background"],
)
def test_a_step_is_that_of_the_released_code(run_file: Path, keys: list[str]) -> None:
    method = pseudoseg(run_file, *keys).double().train()
    other = copy.deepcopy(method)
    batch = padded(method.config)
    found = method.losses(batch, CLOCK)
    terms = step_by_hand(other, batch)
    assert set(found.terms) == set(terms)
    for name, term in terms.items():
        torch.testing.assert_close(found.terms[name], term, rtol=1e-8, atol=0)
    own = method.options
    ramp = math.exp(-5 * (1 - 0.5 / own.ramp) ** 2) if own.ramp > 0.5 else 1.0
    total = sum(terms.values()) + (own.weight * ramp - 1) * terms["consistency"]
    torch.testing.assert_close(found.objectives["main"], total, rtol=1e-8, atol=0)
    for objective in (found.objectives["main"], total):
        objective.backward()
    for (name, ours), theirs in zip(method.named_parameters(), other.parameters(), strict=True):
        if not ours.requires_grad:
            continue
        assert ours.grad is not None and theirs.grad is not None, name
        torch.testing.assert_close(
            ours.grad, theirs.grad, rtol=1e-7, atol=1e-8 * float(theirs.grad.abs().max()), msg=name
        )
    for (name, kept), buffer in zip(method.network.named_buffers(), other.network.buffers(), strict=True):
        torch.testing.assert_close(kept, buffer, rtol=1e-9, atol=1e-12, msg=name)


def test_the_label_is_a_constant_and_reaches_the_strong_view_alone(run_file: Path) -> None:
    method = pseudoseg(run_file, *VOC)
    found = method.losses(batch_for(method.config, 1), CLOCK)
    assert found.unsupervised is not None
    named = {name: parameter for name, parameter in method.named_parameters() if parameter.requires_grad}

    def reached(value: Tensor) -> set[str]:
        gradients = torch.autograd.grad(value, list(named.values()), retain_graph=True, allow_unused=True)
        pairs = zip(named, gradients, strict=True)
        return {name for name, gradient in pairs if gradient is not None and bool(gradient.any())}

    network = {name for name in named if name.startswith("network.")}
    backbone = {name for name in named if name.startswith("network.backbone")}
    assert reached(found.unsupervised) == network
    classifier = {"branch.classifier.weight", "branch.classifier.bias"}
    assert reached(found.terms["classification"]) == backbone | classifier
    assert reached(found.terms["activation"]) == set(named) - network - classifier
    assert reached(found.supervised) == set(named)


def test_a_gate_leaves_pixels_out_of_the_sum_and_not_of_the_mean(run_file: Path) -> None:
    batch = padded(configured(run_file))
    open_, gated = (
        pseudoseg(run_file, f"method.confidence_gate={gate}").double().losses(batch, CLOCK).pixel_terms["unlabeled"]
        for gate in (0.0, 0.12)
    )
    assert 0 < float(gated.value.detach()) < float(open_.value.detach())
    closed = pseudoseg(run_file, "method.confidence_gate=0.99").double().losses(batch, CLOCK)
    assert float(closed.terms["consistency"].detach()) == 0.0


def test_what_is_remembered_is_in_the_state(run_file: Path) -> None:
    method = pseudoseg(run_file, *VOC).train()
    before = copy.deepcopy(method.state_dict())
    optimizer = method.optimizers()["main"]
    method.losses(batch_for(method.config, 1), CLOCK).objectives["main"].backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    after = method.state_dict()
    changed = {name for name in after if not torch.equal(after[name], before[name])}
    assert {f"branch.calibration.1.{name}" for name in ("running_mean", "running_var", "bias")} <= changed
    assert torch.equal(after["branch.calibration.1.weight"], torch.ones(21)), "scales of the released layer are 1"
    # Labeled and unlabeled images pass it, and the network's own pass is one more, for the strong view.
    assert int(after["branch.calibration.1.num_batches_tracked"]) == 2
    assert int(after["network.backbone.stem.1.num_batches_tracked"]) == 3


def test_pictures_show_the_label_that_teaches(run_file: Path) -> None:
    method = pseudoseg(run_file, *VOC).double().eval()
    image = numbers(2, 3, 40, 40)
    with torch.no_grad():
        student, teacher = method.teaching_logits(image)
        alone = method.teaching_logits(image[:1])[1]
        assert torch.equal(student, method.predict(image))
    assert teacher.shape == student.shape and not torch.allclose(teacher.softmax(1), student.softmax(1), atol=1e-3)
    torch.testing.assert_close(alone, teacher[:1])


@pytest.mark.parametrize("keys", [[], VOC], ids=["decoder", "maps"])
def test_every_parameter_learns_under_bf16(run_file: Path, keys: list[str]) -> None:
    method = pseudoseg(run_file, *keys, "train.precision=bf16")
    with autocast(method.config.train, torch.device("cpu")):
        found = method.losses(batch_for(method.config, 1), CLOCK)
    assert all(value.dtype == torch.float32 for value in found.terms.values())
    found.objectives["main"].backward()  # type: ignore[no-untyped-call]
    assert_all_learn(method)
    exact = pseudoseg(run_file, *keys).losses(batch_for(method.config, 1), CLOCK)
    for name, term in exact.terms.items():
        torch.testing.assert_close(found.terms[name], term, rtol=0.05, atol=0.01)


def test_a_ramp_and_a_weight_scale_the_consistency(run_file: Path) -> None:
    method = pseudoseg(run_file, "method.weight=3", "method.ramp=0.5")
    batch = batch_for(method.config, 1)
    for step, factor in ((0, math.exp(-5)), (20, math.exp(-5 * 0.36)), (50, 1.0), (99, 1.0)):
        found = method.losses(batch, Clock(step, 100))
        assert found.unsupervised is not None
        torch.testing.assert_close(found.unsupervised, 3 * factor * found.terms["consistency"])


@pytest.mark.parametrize("name", ["cityscapes", "voc", "camvid", "synthetic_city", "synthetic_voc"])
def test_recipes_are_what_their_data_need(name: str) -> None:
    path = Path(__file__).parents[2] / "experiments" / "base" / f"{name}_pseudoseg.toml"
    config = load_config(path)
    method = config.method
    assert isinstance(method, PseudoSegOptions) and config.loss.kind == "soft" and not warnings_of(config)
    assert method.class_activation == name.endswith("voc")
    assert (method.weight, method.temperature, method.decoder_share, method.confidence_gate) == (1.0, 0.5, 0.5, 0.0)
    assert round(method.cutout_side * 513) == 100
    assert not warnings_of(load_config(path, overrides=["loss.kind=fpl"]))
