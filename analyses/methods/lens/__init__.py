"""Predictions from the stream of any layer: by the unembedding, or by trained translators."""

from analyses.methods.lens.decode import PlaceNames, decode, decoded_places, final_scale
from analyses.methods.lens.tuned_lens import TunedLens, translated

__all__ = ["PlaceNames", "TunedLens", "decode", "decoded_places", "final_scale", "translated"]
