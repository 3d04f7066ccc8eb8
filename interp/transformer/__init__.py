"""The model of the public API: a network that reads text and generates."""

from interp.transformer.text_network import TextNetwork
from interp.transformer.transformer import Transformer

__all__ = ["TextNetwork", "Transformer"]
