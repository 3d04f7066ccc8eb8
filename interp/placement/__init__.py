"""Models whose layers lie on several devices of one process: ``interp.load(..., device_map=)``."""

from interp.placement.device_map import BALANCED, DeviceMap
from interp.placement.placed import PlacedTransformer, place

__all__ = ["BALANCED", "DeviceMap", "PlacedTransformer", "place"]
