"""One small model, its tensors, and what edits make of them: for the tests of edits."""

from typing import Any

import torch
from architectures import build, tokens_of

from interp import run
from interp.edits import Edit
from interp.points import PlaceLike

BATCH, POS, HEADS, D_HEAD, D_MODEL = 3, 5, 3, 4, 12
MODEL = build("gpt2")
TOKENS = tokens_of("gpt2", batch=BATCH, pos=POS)
CACHE = run(MODEL, *TOKENS, record="all").cache
Z = CACHE["z", 0]


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def after(edit: Edit, tokens: tuple = TOKENS, place: PlaceLike = ("z", 0)) -> torch.Tensor:
    """The tensor at a place as the edit leaves it."""
    return run(MODEL, *tokens, record=[place], edits=[edit]).cache[place]


def changed(part: Any, value: torch.Tensor | float) -> torch.Tensor:
    """Z, another value in one part."""
    expected = Z.clone()
    expected[part] = value
    return expected
