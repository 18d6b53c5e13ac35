"""What the processes of `tests.warm` find imported: what a run needs.

Not `fpl.cli`, which looks up the rank of its process when it is imported.
"""

import torch

import fpl.sweep.local  # noqa: F401

torch.set_num_threads(1)
