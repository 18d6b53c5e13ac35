"""A contrast of unreliable pixels: what a pixel surely is not is known even where nobody knows what it is.

From U2PL (Wang et al., CVPR 2022), section 3.3. A head gives every pixel a representation; a second one, its moving
average, looks at the teacher's features. For each class c that a group of images shows, with z representations and
<.,.> the cosine over the temperature,

    l_c = mean over M anchors z of  -log  e^<z, z+> / (e^<z, z+> + sum over N negatives z- of e^<z, z->),

and the loss is the mean of l_c over these classes, and of that over the groups. With p the teacher's probabilities,
O(c) the rank of class c among them, y a label or a pseudo-label:

    anchors of c:    y = c and p(c) > 0.3; on unlabeled images reliable pixels alone;
    z+:              the mean of the anchors, as the teacher represents them;
    negatives of c:  drawn from the queue of c, in which are the last pixels that are, as the teacher represents them,
                     labeled, with y != c and O(c) < 3, or unlabeled and unreliable, with 3 <= O(c) < 20.

Queues are of unit length, which is all that a cosine sees, in half precision, which changes it by less than 1 / 1000.
They are a `Bank`: in checkpoints, so that a resumed run draws the same negatives, and not in the weights that are kept.
All workers have the same ones.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fpl.config.contrast import ContrastOptions
from fpl.data.spec import IGNORE
from fpl.losses.checks import to_compute
from fpl.methods.banks import ClassBank
from fpl.methods.base import Workers, nearest_aligned
from fpl.methods.reliability import lowest
from fpl.methods.teacher import Ema, teacher_of
from fpl.models.dropout import drawn_numbers, global_uniform
from fpl.models.network import unit


class Evidence(NamedTuple):
    """What the contrast is told of a step's images, B = B_labeled + B_unlabeled; all but `student` is constant.

    Where both kinds are in one tensor they lie by group, in each the labeled ones first (`Method.by_group`).
    """

    student: Tensor
    """Representations [B, D, h, w] with their gradient (`Contrast.head`)."""
    teacher: Tensor
    """The same of the teacher (`Contrast.teacher_head`)."""
    logits: Tensor
    """The teacher's, [B, C, h, w]."""
    label: Tensor
    """Of labeled images, int64 [B_labeled, H, W]; 255 where there is none."""
    pseudo_label: Tensor
    """Of unlabeled images, int64 [B_unlabeled, H, W]."""
    entropy: Tensor
    """Of the teacher there, [B_unlabeled, H, W]."""


class Pool(NamedTuple):
    """The n pixels of a group of images, and for which of C classes each is what."""

    student: Tensor
    """[n, D]."""
    teacher: Tensor
    """[n, D]."""
    shown: Tensor
    """Where the class is seen, bool [n, C]."""
    anchor: Tensor
    """Where the pixel may be an anchor of the class, bool [n, C]."""
    negative: Tensor
    """Where it may be a negative of the class, bool [n, C]."""


class Contrast(nn.Module):
    """The representation heads, the queues, and the loss.

    Args:
        options: The contrast's.
        features: Channels of what the heads see (`SegmentationNetwork.fused_channels`).
        classes: C.
        workers: All of them.
    """

    def __init__(self, options: ContrastOptions, features: int, classes: int, workers: Workers) -> None:
        super().__init__()
        self.options = options
        self.classes = classes
        self.workers = workers
        self.head = representation_head(features, options.channels, options.dropout)
        self.teacher_head = teacher_of(self.head)
        self.bank = ClassBank(options.capacities(classes), options.channels)

    def follow(self, ema: Ema, step: int, *, overwrite: bool = False) -> None:
        """Move the teacher's head as its network moves; arguments are those of `Ema.update`."""
        ema.update(self.teacher_head, self.head, step, overwrite=overwrite)

    def loss(self, seen: Evidence, groups: int, progress: float) -> Tensor:
        """The contrast of a step, a scalar; the queues learn of its negatives first, as released.

        Args:
            seen: Of this worker's images.
            groups: Groups of consecutive images, among labeled and among unlabeled ones.
            progress: Share of training that is over, 0..1.
        """
        options = self.options
        with torch.autocast(seen.student.device.type, enabled=False):
            share = options.share_unreliable(progress)
            parts = zip(*(part.chunk(groups) for part in seen), strict=True)
            pools = [self._pool(Evidence(*part), share) for part in parts]
            units = F.normalize(torch.cat([pool.teacher for pool in pools]), dim=1)
            self.bank.push(units, torch.cat([pool.negative for pool in pools]), self.workers)
            device, count = seen.student.device, (groups, self.classes, options.anchors)
            for_anchors = global_uniform(count, device)
            for_negatives = global_uniform((*count, options.negatives), device)
            values = [self._group_loss(*group) for group in zip(pools, for_anchors, for_negatives, strict=True)]
            return torch.stack(values).mean()

    def _pool(self, seen: Evidence, share: float) -> Pool:
        """The pixels of one group, of whose unlabeled ones a share is unreliable."""
        representations = (to_compute(seen.student), to_compute(seen.teacher).detach())
        return Pool(*(_rows(part) for part in (*representations, *self._roles(seen, share))))

    @torch.no_grad()
    def _roles(self, seen: Evidence, share: float) -> tuple[Tensor, Tensor, Tensor]:
        """Where a class is shown, may have anchors, and may have negatives, in one group: each [B, C, h, w]."""
        options, size, labeled = self.options, (seen.logits.shape[-2], seen.logits.shape[-1]), len(seen.label)
        reliable = lowest(seen.entropy, 1.0 - share, groups=1)
        surest = reliable if options.definition == "paper" else lowest(seen.entropy, share, groups=1)
        label = torch.cat([nearest_aligned(seen.label, size), nearest_aligned(seen.pseudo_label, size)])
        known = label != IGNORE
        sure, unsure = known.clone(), known.clone()
        sure[labeled:] &= nearest_aligned(surest, size)
        unsure[labeled:] &= ~nearest_aligned(reliable, size)

        logits = to_compute(seen.logits)
        own = label.unsqueeze(1) == torch.arange(self.classes, device=label.device).view(-1, 1, 1)
        shown = own & sure.unsqueeze(1)
        anchor = shown & (logits.softmax(1) > options.anchor_confidence)
        rank = logits.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        negative = (rank >= options.low_rank) & (rank < options.high_rank)
        negative[:labeled] = (rank[:labeled] < options.low_rank) & ~own[:labeled]
        negative &= unsure.unsqueeze(1)
        if options.definition == "released":
            negative &= own
        return shown, anchor, negative

    def _group_loss(self, pool: Pool, for_anchors: Tensor, for_negatives: Tensor) -> Tensor:
        """The mean of l_c over the classes of a group; 0 where it shows fewer than two, as released.

        A class without anchors, or with an empty queue, adds nothing, but counts.

        Args:
            pool: The group's pixels.
            for_anchors: Numbers [C, M] in [0, 1) that choose.
            for_negatives: Numbers [C, M, N] in [0, 1) that choose.
        """
        options = self.options
        counts, present = pool.anchor.sum(0), pool.shown.any(0)
        # A class's anchor of number k, from 0, is the first pixel at which k + 1 of them have been seen.
        wanted = drawn_numbers(for_anchors, counts.unsqueeze(1))
        seen = pool.anchor.T.contiguous().long().cumsum(1)
        chosen = torch.searchsorted(seen, wanted, right=True).clamp_max(len(pool.student) - 1)
        anchors = F.normalize(pool.student[chosen], dim=2)
        queues = torch.arange(self.classes, device=counts.device)
        usable = counts > 0
        if options.definition == "released":
            # The i-th class of all has the queue of the i-th class that is there.
            usable = usable & (queues < present.sum())
            queues = (~present).to(torch.uint8).argsort(stable=True)
        usable = usable & (self.bank.counts[queues] > 0)
        with torch.no_grad():
            centres = self._centres(pool)
            queue = queues.unsqueeze(1).expand_as(for_anchors)
            negatives = self.bank.sample(queue, for_negatives).to(anchors.dtype)
        near = torch.einsum("cmd,cd->cm", anchors, centres).unsqueeze(2)
        far = torch.einsum("cmd,cmnd->cmn", anchors, negatives)
        similarity = torch.cat([near, far], dim=2) / options.temperature
        of_class = (similarity.logsumexp(2) - similarity[..., 0]).mean(1)
        total = torch.where(usable, of_class, torch.zeros_like(of_class)).sum()
        return total / present.sum().clamp_min(1) * (present.sum() > 1)

    def _centres(self, pool: Pool) -> Tensor:
        """z+ of every class, of unit length, [C, D]; zeros for one that has none."""
        members = (pool.anchor if self.options.definition == "paper" else pool.shown).to(pool.teacher.dtype)
        # Of unit length: how many pixels there were does not matter.
        return F.normalize(members.T @ pool.teacher, dim=1)


def representation_head(features: int, channels: int, dropout: float) -> nn.Sequential:
    """From fused features [B, features, h, w] to representations [B, channels, h, w] (released: `decoder.py`).

    Two convolutions of 3 x 3 with batch norm, ReLU and dropout of channels, and one of 1 x 1: the shape of the decoder
    and the classifier beside it. With 512 and 256 channels it has 1.84 M parameters.
    """
    return nn.Sequential(
        unit(features, channels, nn.BatchNorm2d, kernel=3, bias=True, dropout=dropout),
        unit(channels, channels, nn.BatchNorm2d, kernel=3, bias=True, dropout=dropout),
        nn.Conv2d(channels, channels, 1),
    )


def _rows(maps: Tensor) -> Tensor:
    """Pixels of maps [B, D, h, w] as rows, [B h w, D], image by image."""
    return maps.movedim(1, -1).flatten(0, -2)
