"""The recorded activations of a run: stored, or derived when they are read."""

from interp.cache.cache import Cache, Join
from interp.cache.compact import is_fresh, storage_of, view_of
from interp.cache.contents import Contents
from interp.cache.derive import Derivation, needs_of, required_places
from interp.cache.shapes import shape_in, source_columns

__all__ = [
    "Cache",
    "Contents",
    "Derivation",
    "Join",
    "is_fresh",
    "needs_of",
    "required_places",
    "shape_in",
    "source_columns",
    "storage_of",
    "view_of",
]
