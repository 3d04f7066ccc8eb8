"""Activations of a corpus on disk: written in shards, resumed bit-identically, read shuffled."""

from interp.harvests.dataset import Harvest
from interp.harvests.estimate import HarvestEstimate, estimate_harvest
from interp.harvests.index import INDEX, Index, StoredPlace
from interp.harvests.write import harvest

__all__ = [
    "INDEX",
    "Harvest",
    "HarvestEstimate",
    "Index",
    "StoredPlace",
    "estimate_harvest",
    "harvest",
]
