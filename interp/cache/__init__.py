"""The recorded activations of a run: stored, derived when they are read, saved to a file."""

from interp.cache.cache import Cache, Join
from interp.cache.compact import storage_of
from interp.cache.derive import Derivation, needs_of, required_places
from interp.cache.file import load_cache

__all__ = ["Cache", "Derivation", "Join", "load_cache", "needs_of", "required_places", "storage_of"]
