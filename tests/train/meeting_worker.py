"""One of several workers that meet: `python meeting_worker.py`, with the environment of a launcher."""

from __future__ import annotations

import torch

from fpl.train.meeting import worker_group

with worker_group(torch.device("cpu"), print):
    pass
