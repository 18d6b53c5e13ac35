"""The methods by the name that `[method] name` gives."""

from fpl.methods.ael import Ael
from fpl.methods.base import Clock, Losses, Method
from fpl.methods.cps import Cps
from fpl.methods.supervised import Supervised

METHODS: dict[str, type[Method]] = {"supervised": Supervised, "cps": Cps, "ael": Ael}

__all__ = ["METHODS", "Clock", "Losses", "Method"]
