"""Which implementation is taken, and what is said where the fused one is missing."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fpl.losses import fuzzy_positive_loss, kernels
from fpl.losses.kernels import build, cpu, cpu_library
from tests.losses.kernels.cases import needs_cpu_kernel


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def fail() -> None:
        raise build.BuildError("no C++ compiler")

    monkeypatch.setattr(cpu_library, "library", fail)
    monkeypatch.delenv(kernels.VARIABLE, raising=False)
    for cached in (kernels.find_cpu, kernels._announce):
        cached.cache_clear()
    yield
    for cached in (kernels.find_cpu, kernels._announce):
        cached.cache_clear()


def logits(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(1, 3, 4, 4, generator=torch.Generator().manual_seed(0)).to(dtype)


@needs_cpu_kernel
def test_the_fused_one_is_taken_for_its_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(kernels.VARIABLE, raising=False)
    assert kernels.implementation(logits()) is kernels.find_cpu().module
    assert kernels.implementation(logits(torch.bfloat16)) is not None
    assert kernels.implementation(logits(torch.float64)) is None
    assert kernels.implementation(logits()[:0]) is None


@needs_cpu_kernel
def test_a_choice_by_name_beats_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kernels.VARIABLE, "tensor")
    assert kernels.implementation(logits()) is None
    with kernels.use("cpu"):
        assert kernels.implementation(logits()) is not None
        with kernels.use("tensor"):
            assert kernels.implementation(logits()) is None
    assert kernels.implementation(logits()) is None


def test_unknown_names_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kernels.VARIABLE, "gpu")
    with pytest.raises(ValueError, match=r"FPL_LOSS is 'gpu'; allowed: 'auto', 'tensor', 'cpu', 'triton'"):
        kernels.implementation(logits())
    with pytest.raises(ValueError, match="name is 'fast'"), kernels.use("fast"):
        pass


def test_without_a_compiler_tensors_do_it_and_it_is_said_once(no_compiler: None) -> None:
    student, teacher = logits().requires_grad_(), logits().roll(1, 1)
    with pytest.warns(UserWarning, match="without its cpu kernel: no C\\+\\+ compiler"):
        value = fuzzy_positive_loss(student, teacher)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(fuzzy_positive_loss(student, teacher), value)
    expected = fuzzy_positive_loss(student.double(), teacher.double())
    torch.testing.assert_close(value.double(), expected, rtol=1e-6, atol=0)
    assert kernels.describe("cpu") == (False, "PyTorch, without cpu: no C++ compiler")


def test_without_a_compiler_a_wish_by_name_is_an_error(no_compiler: None) -> None:
    with kernels.use("cpu"), pytest.raises(ValueError, match="not available: no C\\+\\+ compiler"):
        fuzzy_positive_loss(logits(), logits())


@pytest.mark.parametrize(("name", "device"), [("cpu", "meta"), ("cpu", "cuda"), ("triton", "meta")])
def test_a_wish_by_name_for_another_device_is_an_error(name: str, device: str) -> None:
    with kernels.use(name):
        with pytest.raises(ValueError, match=f"the {name} implementation .* is for logits on .*, and these are on"):
            kernels.check_chosen(device)
        if device == "meta":
            with pytest.raises(ValueError, match="these are on meta"):
                kernels.implementation(logits().to("meta"))
        fused, line = kernels.describe(device)
        assert not fused
        assert line.startswith("nothing: FPL_LOSS is")
        assert "kernel" not in line
        # PyTorch computes what no kernel takes.
        assert kernels.implementation(logits(torch.float64).to("meta")) is None


@pytest.mark.parametrize("interpreting", [True, False])
def test_triton_computes_on_the_cpu_when_it_interprets(interpreting: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1" if interpreting else "0")
    monkeypatch.setattr(kernels, "find_triton", lambda: kernels.Found(cpu, "a stand-in"))
    with kernels.use("triton"):
        if interpreting:
            assert kernels.implementation(logits()) is cpu
        else:
            with pytest.raises(ValueError, match="it is for logits on cuda, and these are on cpu"):
                kernels.implementation(logits())


def test_nothing_is_checked_without_a_wish(no_compiler: None) -> None:
    kernels.check_chosen("cpu")
    with kernels.use("tensor"):
        kernels.check_chosen("cuda")


def test_a_gpu_that_cannot_launch_falls_back_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = pytest.importorskip("fpl.losses.kernels.gpu")

    def fail() -> None:
        raise RuntimeError("Failed to find C compiler.\nPlease specify via CC")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(gpu, "probe", fail)
    monkeypatch.delenv(kernels.VARIABLE, raising=False)
    kernels.find_triton.cache_clear()
    try:
        reason = "triton cannot launch a kernel here: Failed to find C compiler."
        assert kernels.describe("cuda") == (False, f"PyTorch, without triton: {reason}")
        assert not kernels.available("triton")
    finally:
        kernels.find_triton.cache_clear()


@needs_cpu_kernel
def test_the_library_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    path = build.build()

    def count() -> Path:
        calls.append(None)
        return path

    monkeypatch.setattr(build, "build", count)
    monkeypatch.setattr(cpu_library, "build", count)
    cpu_library.library.cache_clear()
    kernels.find_cpu.cache_clear()
    assert kernels.find_cpu() == (cpu, str(path))
    assert len(calls) == 1
