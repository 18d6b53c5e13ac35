"""What the processes of `tests.warm` find imported."""

import torch

torch.set_num_threads(1)
