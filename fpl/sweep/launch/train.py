"""World size N, long runs: every run gets a fresh group of Ray Train workers.

The same as `gang` but for its life: the group ends with its run. Ten seconds of start are nothing to a run of hours,
which in return finds new processes with nothing of an earlier run in them, and leaves its GPUs to others in between.
"""

from __future__ import annotations

from fpl.sweep.launch.gang import GangTrial


class TrainTrial(GangTrial):
    """Carries every job out on workers of its own."""

    warm = False
