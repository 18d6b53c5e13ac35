"""The global batch as a function of (seed, step): there is no sampler whose state could be lost.

Stream s at step t holds in slot i the position p = t * B + i. Its image is entry p mod n of a permutation drawn for
(seed, s, epoch p // n), its augmentation is drawn for (seed, s, p). Both streams cycle without end. A rank takes a
contiguous slice of the slots, so that two workers together see exactly what one would have seen.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import replace

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, get_worker_info

from fpl.config.schema import RunConfig
from fpl.data.augment import FOR_PASTE, FOR_SAMPLE, Augmentation, seeded
from fpl.data.batch import Batch, Draw, Labeled, nothing_to_paste, send, tensors
from fpl.data.images import Images
from fpl.data.order import Order
from fpl.data.request import BatchRequest, PasteRequest
from fpl.data.spec import IGNORE
from fpl.data.splits import Split
from fpl.data.unlabeled import DRAW_STREAMS, LABELED_AGAIN, STREAMS, UnlabeledImages, read_truth
from fpl.errors import FplError
from fpl.interrupt import held_back
from fpl.text import enumerate_briefly

__all__ = [
    "Batch",
    "BatchRequest",
    "BatchStream",
    "Draw",
    "Labeled",
    "Order",
    "PasteRequest",
    "UnlabeledImages",
    "make_loader",
    "send",
]

PASTE = STREAMS.index("paste")
LOADER_SECONDS = 60.0
"""So long may loader processes take to the next batch; one that died or hangs is never waited for longer."""


class _Steps(Dataset[Batch | FplError]):
    """The batch of every step, for one rank."""

    def __init__(
        self,
        config: RunConfig,
        split: Split,
        images: Images,
        request: BatchRequest,
        rank: int,
        world: int,
        truth_steps: Container[int],
    ) -> None:
        data = config.data
        self.seed = config.seed
        self.truth_steps = truth_steps
        self.paste = paste = request.paste
        if paste is not None:
            # Padding is never pasted: it is no image, so it must not be labeled as a class.
            wide = {"scales": paste.scales, "scale_sampling": "balanced", "padding_label": IGNORE}
            self.paste_augmentation = Augmentation(data.model_copy(update=wide))
        self.images = images
        self.augmentation = Augmentation(data)
        crop = request.unlabeled_crop(data.crop)
        self.unlabeled_augmentation = Augmentation(data.model_copy(update={"crop": crop}))
        self.labeled, self.unlabeled = split.labeled, split.unlabeled
        self.labeled_batch, self.unlabeled_batch = data.labeled_batch, data.unlabeled_batch
        self.rank, self.world = rank, world
        self.orders = {0: Order(config.seed, 0, len(split.labeled))}
        self.draws, self.more_labeled = DRAW_STREAMS[: request.draws], LABELED_AGAIN[: request.labeled_streams - 1]
        for stream in self.more_labeled:
            self.orders[stream] = Order(config.seed, stream, len(split.labeled))
        for stream in self.draws:
            first = self.orders.get(DRAW_STREAMS[0])
            if first is None or request.pair == "other":
                self.orders[stream] = Order(config.seed, stream, len(split.unlabeled), apart_from=first)
            else:
                self.orders[stream] = first

    def __getitem__(self, step: int) -> Batch | FplError:
        # The DataLoader rebuilds a raised exception from a text; a returned one arrives as it is.
        try:
            batch = self.batch(step)
            if get_worker_info() is not None:
                _share(batch)
            return batch
        except FplError as error:
            return error
        except MemoryError as error:
            return FplError(f"memory ran out while a batch was read: {error}", hint=_LESS_MEMORY)

    def batch(self, step: int) -> Batch:
        image, label, valid = self._labeled(0, step)
        unlabeled = [self._draw(stream, step) for stream in self.draws]
        more = [Labeled(*self._labeled(stream, step)) for stream in self.more_labeled]
        return Batch(image, label, valid, unlabeled, step, self._partner(step) if self.paste else None, more)

    def _positions(self, step: int, batch: int) -> range:
        share = batch // self.world
        start = step * batch + self.rank * share
        return range(start, start + share)

    def _labeled(self, stream: int, step: int) -> tuple[Tensor, Tensor, Tensor]:
        samples = [
            self._sample(self.augmentation, stream, position, self.orders[stream].index(position))
            for position in self._positions(step, self.labeled_batch)
        ]
        image, label, valid = (torch.stack(parts) for parts in zip(*samples, strict=True))
        return image, label, valid

    def _sample(
        self, augmentation: Augmentation, stream: int, position: int, index: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        image_id = self.labeled[index]
        parameters = augmentation.draw(seeded(self.seed, FOR_SAMPLE, stream, position))
        image, label, valid = augmentation.apply(self.images.image(image_id), self.images.label(image_id), parameters)
        assert label is not None
        return image, label, valid

    def _partner(self, step: int) -> Labeled:
        assert self.paste is not None
        samples = []
        for position in self._positions(step, self.labeled_batch):
            generator = seeded(self.seed, FOR_PASTE, 0, position)
            if generator.random() >= self.paste.probability:
                samples.append(nothing_to_paste(self.augmentation.crop))
                continue
            same = self.paste.partner == "same"
            index = self.orders[0].index(position) if same else int(generator.integers(len(self.labeled)))
            samples.append(self._sample(self.paste_augmentation, PASTE, position, index))
        return Labeled(*(torch.stack(parts) for parts in zip(*samples, strict=True)))

    def _draw(self, stream: int, step: int) -> Draw:
        augmentation, positions = self.unlabeled_augmentation, self._positions(step, self.unlabeled_batch)
        indices = [self.orders[stream].index(position) for position in positions]
        images, valids, truths = [], [], []
        for position, index in zip(positions, indices, strict=True):
            parameters = augmentation.draw(seeded(self.seed, FOR_SAMPLE, stream, position))
            image, _, valid = augmentation.apply(self.images.image(self.unlabeled[index]), None, parameters)
            images.append(image)
            valids.append(valid)
            if step in self.truth_steps:
                truths.append(read_truth(augmentation, self.images, self.unlabeled[index], parameters))
        draw = Draw(torch.stack(images), torch.stack(valids), torch.tensor(indices), torch.tensor(positions))
        return replace(draw, truth=torch.stack(truths)) if truths else draw


class BatchStream:
    """The batches of the remaining steps; may be iterated again, with the same result. See `make_loader`."""

    def __init__(self, steps: _Steps, numbers: range, loader_workers: int) -> None:
        self._numbers = numbers
        self._loader: DataLoader[Batch | FplError] = DataLoader(
            steps,
            batch_size=None,
            sampler=numbers,
            num_workers=loader_workers,
            pin_memory=torch.cuda.is_available(),
            timeout=LOADER_SECONDS if loader_workers else 0,
            # Without one of its own, each iterator would draw from the generator that dropout uses, and a resumed run
            # makes one iterator more.
            generator=torch.Generator().manual_seed(0),
        )

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[Batch]:
        try:
            with held_back():
                batches = iter(self._loader)
            for batch in batches:
                if isinstance(batch, FplError):
                    raise batch
                yield batch
        except RuntimeError as error:
            # A bare RuntimeError that names no more than a pid or the seconds.
            if "DataLoader timed out" in str(error):
                what = f"loader processes gave no batch for {LOADER_SECONDS:.0f} s"
                hint = "is the storage stuck, or very slow (`fpl data cache`)? the same command continues"
            elif "DataLoader worker" in str(error) and "exited" in str(error):
                what, hint = f"a loader process died ({error})", f"most often out of memory: {_LESS_MEMORY}"
            else:
                raise
            raise FplError(what, hint=hint) from error


_LESS_MEMORY = "use fewer loader workers, or 0, smaller batches or crops"


def _share(batch: Batch) -> None:
    """Move a batch to shared memory while an error can still be reported.

    Left to the queue, that is done in a thread of the loader process, where the batch would be lost without a word.
    """
    try:
        for tensor in tensors(batch):
            tensor.share_memory_()  # type: ignore[no-untyped-call]
    except (RuntimeError, OSError) as error:
        raise FplError(
            f"no shared memory for a batch: {error}",
            hint=f"is /dev/shm full (docker: --shm-size), or `ulimit -n` low? {_LESS_MEMORY}",
        ) from error


def make_loader(
    config: RunConfig,
    split: Split,
    images: Images,
    request: BatchRequest,
    *,
    start_step: int = 0,
    rank: int = 0,
    world_size: int = 1,
    loader_workers: int = 0,
    truth_steps: Container[int] = (),
) -> BatchStream:
    """Batches of the steps start_step .. config.train.steps - 1 for one rank.

    Args:
        config: Seed, batch sizes, augmentation and number of steps.
        split: Labeled and unlabeled ids.
        images: The training images.
        request: What the method wants of every step.
        start_step: First step; resuming needs nothing else.
        rank: Number of this worker, from 0.
        world_size: Number of workers; must divide both batch sizes.
        loader_workers: Processes that read images; 0 reads in this one. The batches do not depend on it.
        truth_steps: Steps (from 0) at which draws carry the labels of their images, for diagnostics.

    Raises:
        FplError: The arguments do not fit each other; while iterating, whatever is wrong with a file.
    """
    request.check()
    if not split.labeled:
        raise FplError("the split has no labeled image", where=f"{split.dataset} {split.family} {split.fraction}")
    sizes = {"labeled_batch": config.data.labeled_batch}
    if request.draws:
        if not split.unlabeled:
            where = f"{split.dataset} {split.family} {split.fraction}"
            raise FplError("the split has no unlabeled image, but the method needs them", where=where)
        sizes["unlabeled_batch"] = config.data.unlabeled_batch
    for key, size in sizes.items():
        if size < 1 or size % world_size:
            fits = [count for count in range(1, size + 1) if size % count == 0]
            raise FplError(
                f"data.{key} = {size} cannot be shared equally by {world_size} workers",
                hint=f"workers that can: {enumerate_briefly(fits) or 'none'}",
            )
    steps = _Steps(config, split, images, request, rank, world_size, truth_steps)
    return BatchStream(steps, range(start_step, config.train.steps), loader_workers)
