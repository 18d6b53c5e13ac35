"""The order in which a stream walks through its images, as a function of the seed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fpl.data.augment import FOR_ORDER, seeded


class Order:
    """Which of `count` images stands at a position of a stream: one permutation after the other.

    Args:
        seed: Seed of the run.
        stream: Number of the stream.
        count: Number of images, at least 1.
        apart_from: Another order of the same images that this one must differ from at every position (if count > 1).
    """

    def __init__(self, seed: int, stream: int, count: int, apart_from: Order | None = None) -> None:
        self.seed = seed
        self.stream = stream
        self.count = count
        self.apart_from = apart_from
        self._epoch = -1
        self._permutation: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def index(self, position: int) -> int:
        """Number of the image at a position, 0..count-1."""
        epoch, place = divmod(position, self.count)
        return int(self.permutation(epoch)[place])

    def permutation(self, epoch: int) -> NDArray[np.int64]:
        """Order of an epoch, int64 [count]. Only the latest one asked for is kept."""
        if epoch != self._epoch:
            self._permutation, self._epoch = self._draw(epoch), epoch
        return self._permutation

    def _draw(self, epoch: int) -> NDArray[np.int64]:
        generator = seeded(self.seed, FOR_ORDER, self.stream, epoch)
        permutation = generator.permutation(self.count)
        if self.apart_from is not None and self.count > 1:
            other = self.apart_from.permutation(epoch)
            # One of e = 2.7 permutations has no image in common places, so this ends soon and stays uniform.
            while (permutation == other).any():
                permutation = generator.permutation(self.count)
        return permutation
