"""Labeled images alone: what every semi-supervised method must beat."""

from __future__ import annotations

from fpl.data.batches import Batch
from fpl.methods.base import Clock, Losses, Method


class Supervised(Method):
    """One network, the supervised loss, no unlabeled image."""

    def losses(self, batch: Batch, clock: Clock) -> Losses:
        """Supervised loss of the labeled images."""
        _, value = self.labeled_loss(self.network, self.network.raw(batch.image), batch.label)
        return Losses({"main": value}, supervised=value, terms={"supervised": value})
