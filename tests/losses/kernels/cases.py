"""What the tests of the fused implementations share."""

from __future__ import annotations

import pytest

from fpl.losses import kernels

needs_cpu_kernel = pytest.mark.skipif(
    not kernels.available("cpu"), reason=f"no CPU kernel here: {kernels.find_cpu().reason}"
)
ANSWER = 'extern "C" int answer() { return 42; }\n'
