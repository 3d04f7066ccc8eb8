"""The model of the public API: a network that reads text, generates, and is saved."""

from interp.transformer.saving import (
    CHAT,
    COMPUTE_DTYPE,
    CONFIG,
    STEPS,
    TOKENIZER,
    save_folder,
    save_step,
    weights_file,
    write_files,
)
from interp.transformer.text_network import TextNetwork
from interp.transformer.transformer import Transformer

__all__ = [
    "CHAT",
    "COMPUTE_DTYPE",
    "CONFIG",
    "STEPS",
    "TOKENIZER",
    "TextNetwork",
    "Transformer",
    "save_folder",
    "save_step",
    "weights_file",
    "write_files",
]
