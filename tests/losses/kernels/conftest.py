"""Triton's interpreter for machines without a GPU."""

from __future__ import annotations

import os

import torch

# Triton reads it when a kernel is declared, its own library included: it has to be set before triton is imported.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
