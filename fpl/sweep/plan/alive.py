"""Following which memory is alive while PyTorch computes, and whose it is; on `meta` too, where nothing is stored."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fpl.sweep.plan.tally import BACKWARD, Watching, tensors_in

# Owner of what is allocated beside all passes.
BESIDE = -1


@dataclass
class Phase:
    """What happens between two borders of passes.

    Attributes:
        under_way: Number of the pass; `BESIDE` between passes.
        most: Owner -> the most bytes of it that were alive at once.
        backward: Whether a convolution was gone back through.
    """

    under_way: int
    most: dict[int, int] = field(default_factory=dict)
    backward: bool = False


class Alive(Watching):
    """Follows, while it is entered, every piece of memory from the operation that allocates it until nobody holds it.

    What was there before is not counted, and neither are other views of it.

    Attributes:
        now: Owner -> bytes alive.
        phases: What happened so far, in order.
        peak: The most bytes alive at once, whoever owns them.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now: dict[int, int] = {BESIDE: 0}
        self.phases = [Phase(BESIDE)]
        self.peak = 0
        # By the address of a storage, which another one may have when the first is gone.
        self._followed: dict[int, weakref.ref[Any]] = {}

    @property
    def total(self) -> int:
        """Bytes alive."""
        return sum(self.now.values())

    def enter(self, owner: int) -> None:
        """Begin a phase: what is allocated from here on is this owner's."""
        self.now.setdefault(owner, 0)
        self.phases.append(Phase(owner))
        self._note()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Carry out one operation, and follow what it allocates."""
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        given = {tensor.untyped_storage()._cdata for tensor in tensors_in((args, tuple(kwargs.values())))}
        for tensor in tensors_in(result):
            storage = tensor.untyped_storage()
            address = storage._cdata
            if address not in self._followed and address not in given:
                owner, size = self.phases[-1].under_way, storage.nbytes()
                self._followed[address] = weakref.ref(storage, self._forget(address, owner, size))
                self.now[owner] += size
        if function.overloadpacket is BACKWARD:
            self.phases[-1].backward = True
        self._note()
        return result

    def _forget(self, address: int, owner: int, size: int) -> Callable[[Any], None]:
        def gone(_: Any) -> None:
            del self._followed[address]
            self.now[owner] -= size

        return gone

    def _note(self) -> None:
        most = self.phases[-1].most
        for owner, size in self.now.items():
            most[owner] = max(most.get(owner, 0), size)
        self.peak = max(self.peak, self.total)
