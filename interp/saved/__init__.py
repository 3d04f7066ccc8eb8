"""Models, caches and sweeps as files."""

from interp.saved.cache_file import load_cache
from interp.saved.cache_format import write_cache
from interp.saved.model_folder import (
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
from interp.saved.sweep_file import read_sweep, write_sweep

__all__ = [
    "CHAT",
    "COMPUTE_DTYPE",
    "CONFIG",
    "STEPS",
    "TOKENIZER",
    "load_cache",
    "read_sweep",
    "save_folder",
    "save_step",
    "weights_file",
    "write_cache",
    "write_files",
    "write_sweep",
]
