"""What PyTorch allocates, and architectures wide enough that tensors are what takes the memory."""

import gc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from architectures import ARCHITECTURES
from torch.profiler import ProfilerActivity, profile

from interp import Config, LayerConfig, StackConfig

BOUND = 0.2
"""By how much an estimate may be off."""
WIDE = [name for name in ARCHITECTURES if name != "qwen-moe"]
"""All but one, whose rotary factors are of one width."""


def allocated(work: Callable[[], object]) -> tuple[int, int]:
    """Most bytes at a time, and those that are left while the result is there."""
    result = work()  # what is made once, such as layouts of places
    del result
    gc.disable()  # what earlier work left would be counted as freed by this
    try:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
            result = work()
    finally:
        gc.enable()
    now = peak = 0
    profiler: Any = profiled.profiler  # what its events are is not declared
    for event in profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    del result
    return peak, now


def wide(name: str) -> Config:
    """An architecture with larger sizes."""
    config = ARCHITECTURES[name]

    def widened(parts: StackConfig | LayerConfig) -> dict[str, object]:
        attention, mlp = parts.attention, parts.mlp
        return {
            "attention": attention and replace(attention, d_head=4 * attention.d_head),
            "mlp": mlp and replace(mlp, d_mlp=8 * mlp.d_mlp),
        }

    stacks = {
        stack_name: replace(
            stack,
            embedding=replace(stack.embedding, width=stack.embedding.width and 40),
            exceptions=tuple(replace(layer, **widened(layer)) for layer in stack.exceptions),
            **widened(stack),
        )
        for stack_name, stack in config.stacks.items()
    }
    sizes = {"d_model": 96, "d_vocab": 301, "n_ctx": 256}
    source = config.d_vocab_source and 310
    unembed = config.d_unembed and 40
    return replace(config, **sizes, d_vocab_source=source, d_unembed=unembed, **stacks)
