"""The rule of CAC, one place at a time in plain PyTorch: what test_cac.py holds the method against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fpl.config.schema import RunConfig
from fpl.data.augment import FOR_CHOICE, seeded
from fpl.data.batches import Draw
from fpl.methods.cac.crops import Views, place_views
from fpl.methods.cac.method import Cac
from tests.losses.reference import k_of, naive_losses, order, weight_of

# Some places of an untrained network are surer than this, and some are not.
GATE = 0.3


class Place(NamedTuple):
    """A place of 8 x 8 pixels that both views show whole: as the first view has it, and as the second."""

    features: tuple[Tensor, Tensor]
    logits: tuple[Tensor, Tensor]
    image: int


def views_of(config: RunConfig, draw: Draw) -> list[Views]:
    """Where the views are; how they are drawn is for test_cac_crops.py."""
    found = []
    for mask, position in zip(draw.valid, draw.position.tolist(), strict=True):
        lines = [mask.any(1).nonzero(), mask.any(0).nonzero()]
        rows, columns = ((int(line.min()), int(line.max()) + 1) for line in lines)
        generator = seeded(config.seed, FOR_CHOICE, 0, position)
        keys = {"least_overlap": 0.1, "flip": config.data.flip, "generator": generator}
        found.append(place_views(rows, columns, tuple(mask.shape), config.data.crop, **keys))
    return found


def look(method: Cac, image: Tensor) -> tuple[Tensor, Tensor]:
    """Features of length 1 and logits on the grid: the embedding pooled first, then projected and classified."""
    network = method.network
    embedding = network.decode(network.encode(image))
    pooled = torch.stack([embedding[..., i::2, j::2] for i in (0, 1) for j in (0, 1)]).mean(0)
    first, _, second = method.projector
    hidden = torch.einsum("oc,bchw->bohw", first.weight[..., 0, 0], pooled) + first.bias[:, None, None]
    features = torch.einsum("oc,bchw->bohw", second.weight[..., 0, 0], hidden.clamp(min=0)) + second.bias[:, None, None]
    return features / features.square().sum(1, keepdim=True).sqrt(), network.classifier(pooled)


def places_of(config: RunConfig, method: Cac, draw: Draw) -> tuple[list[Place], list[tuple[list[float], int]]]:
    """The shared places, and what the step remembers, each feature with its class; -1 on padding."""
    height, width = config.data.crop
    views, looks = views_of(config, draw), []
    for number in range(2):
        pieces = []
        for image, view in zip(draw.image, views, strict=True):
            top, left = view.tops[number], view.lefts[number]
            piece = image[:, top : top + height, left : left + width]
            pieces.append(piece.flip(2) if view.flips[number] else piece)
        looks.append(look(method, torch.stack(pieces)))
    places, remembered = [], []
    for image, view in enumerate(views):
        shown: list[dict[tuple[int, int], tuple[Tensor, Tensor]]] = [{}, {}]
        for number in range(2):
            for row in range(height // 8):
                for column in range(width // 8):
                    top, left = view.tops[number] + 8 * row, view.lefts[number] + 8 * column
                    at = width // 8 - 1 - column if view.flips[number] else column
                    features, logits = (maps[image, :, row, at] for maps in looks[number])
                    whole = bool(draw.valid[image, top : top + 8, left : left + 8].all())
                    remembered.append((features.tolist(), int(logits.argmax()) if whole else -1))
                    if whole:
                        shown[number][top, left] = (features, logits)
        for where in sorted(shown[0].keys() & shown[1].keys()):
            (f1, z1), (f2, z2) = shown[0][where], shown[1][where]
            places.append(Place((f1, f2), (z1, z2), image))
    return places, remembered


def contrast(
    places: list[Place], bank: list[tuple[list[float], int]], anchor: int, *, overlap: bool, fuzzy: bool, images: int
) -> Tensor:
    """L_12 for anchor 0, L_21 for anchor 1: equations 2 to 5 of the paper; or averaged as the released code does."""
    losses: list[tuple[int, Tensor]] = []
    for place in places:
        mine, other = place.logits[anchor].detach().softmax(0), place.logits[1 - anchor].detach().softmax(0)
        if not (other.max() > GATE and mine.max() < other.max()):
            continue
        probabilities = mine.tolist()
        friends = order(probabilities)[: k_of(probabilities, 0.5) if fuzzy else 1]
        feature = place.features[anchor]
        against = [torch.tensor(other, dtype=torch.float64) for other, label in bank if label not in (-1, *friends)]
        positive = torch.exp(feature @ place.features[1 - anchor].detach() / 0.1)
        negative = torch.exp(torch.stack(against) @ feature / 0.1).sum()
        losses.append((place.image, -torch.log(positive / (positive + negative))))
    if not overlap:
        return torch.stack([loss for _, loss in losses]).mean()
    total = torch.zeros((), dtype=torch.float64)
    for image in range(images):
        count = sum(place.image == image for place in places)
        total = total + sum((loss for own, loss in losses if own == image), torch.zeros(())) / count / images
    return total


def agreement(places: list[Place], student: int, kind: str) -> Tensor:
    """Our second reading: of places that the other view is surer of, its prediction is what is learned."""
    taught = [p for p in places if p.logits[student].softmax(0).max() < p.logits[1 - student].softmax(0).max()]
    mine = torch.stack([place.logits[student] for place in taught])
    theirs = torch.stack([place.logits[1 - student].detach() for place in taught])
    if kind == "ce":
        return F.cross_entropy(mine, theirs.argmax(1))
    probabilities = theirs.softmax(1).tolist()
    ks = [k_of(row, 0.5) for row in probabilities]
    weights = [weight_of(row, k, "concave") for row, k in zip(probabilities, ks, strict=True)]
    return (torch.tensor(weights, dtype=torch.float64) * naive_losses(mine, theirs, torch.tensor(ks))).mean()


def gradients(value: Tensor, parameters: Sequence[Tensor]) -> tuple[Tensor, ...]:
    found = torch.autograd.grad(value, parameters, retain_graph=True, allow_unused=True)
    return tuple(torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True))
