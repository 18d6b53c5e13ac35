"""Triton's interpreter for machines without a GPU; folders for tests that compile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

# Triton reads it when a kernel is declared, its own library included: it has to be set before triton is imported.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny library's source; the cache is a fresh folder."""
    # Not at the head: what the kernels' tests import has to find the environment as it is set above.
    from .cases import ANSWER

    monkeypatch.setenv("FPL_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "answer.cpp").write_text(ANSWER)
    return folder


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder
