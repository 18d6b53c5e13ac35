"""How a run's loop is carried out. Imports no torch: plans and the command line read it too."""

from __future__ import annotations

from dataclasses import dataclass

from fpl.config.defaults import DIAGNOSE_EVERY


@dataclass(frozen=True)
class LoopOptions:
    """How a run is carried out; none of it enters its identity.

    Attributes:
        threads: CPU threads of torch in each worker. On a CPU it decides the last bits of a result.
        loader_workers: Processes that read and augment images, per worker; 0 reads in the worker itself.
        checkpoint_every: Steps between two resumable checkpoints.
        log_every: Steps between two rows of the history.
        diagnose_every: Steps between two diagnostics of the pixel loss, for which the labels of the unlabeled images of
            that step are read, and no others; 0 for none, and then no label of an unlabeled image is ever read.
        examples: Unlabeled and validation images of which pictures are kept.
        tensorboard: Whether event files for TensorBoard are written too.
    """

    threads: int = 1
    loader_workers: int = 0
    checkpoint_every: int = 500
    log_every: int = 10
    diagnose_every: int = DIAGNOSE_EVERY
    examples: int = 0
    tensorboard: bool = False
