"""Gradients averaged over two workers, against the mean computed by hand."""

from __future__ import annotations

from pathlib import Path

import torch

from fpl.train.runtime import Gradients, Workers
from tests.models.two_processes import run_two
from tests.train.gradients_worker import gradient_of, parameters

WORKER = Path(__file__).with_name("gradients_worker.py")


def test_every_gradient_is_the_mean_over_the_workers(tmp_path: Path) -> None:
    results = run_two(WORKER, tmp_path)
    for step in range(3):
        for index, parameter in enumerate(parameters()):
            shares = [gradient_of(parameter, index, step, rank) for rank in range(2)]
            for result in results:
                found = result["steps"][step][index]
                if shares[0] is None:
                    assert found is None
                else:
                    assert shares[1] is not None
                    torch.testing.assert_close(found, (shares[0] + shares[1]) / 2)
                    assert found.stride() == parameter.stride() and found.dtype == parameter.dtype
    for result in results:
        # One buffer per dtype, the same at every step, and the gradients are views of it.
        assert all(len(set(pointers)) == 1 for pointers in result["storages"].values())


def test_one_worker_keeps_its_gradients() -> None:
    (first, *_) = own = parameters()
    first.grad = given = torch.ones_like(first)
    Gradients(own, Workers()).average()
    assert first.grad is given and own[1].grad is None
