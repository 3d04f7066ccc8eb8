"""Prompts of any kind: one of several, and others of the same shape."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from interp import Transformer
from interp.model.batch import Batch

Rows = list[dict[str, Tensor]]
"""The numbers of each prompt, by name."""
OF_ENCODERS = ("a ready-made batch of an encoder", "a mask", "token types")
"""Kinds of prompts whose model is an encoder of tokens, which normalizes its stream."""
OF_IMAGES = ("images", "a ready-made batch of images")
WITHOUT_EDGES = dict.fromkeys(OF_ENCODERS, "normalizes the stream itself")
"""Kinds of prompts that analyses of edges refuse."""


def row_of(prompts: Any, number: int) -> Any:
    """One prompt of several, with the padding that it has beside the others."""
    if isinstance(prompts, Batch):
        return prompts.rows(torch.tensor([number]))
    if isinstance(prompts[0], Batch):
        return [row_of(prompts[0], number)]
    return prompts[number : number + 1]


def other_tokens(model: Transformer, prompts: Any, stack: str | None = None) -> Batch:
    """The same prompts with every token or pixel changed."""
    listed = isinstance(prompts, list) and isinstance(prompts[0], Batch)
    batch = model.batch(prompts[0] if listed else prompts, stack=stack)
    if batch.images is not None:
        return replace(batch, images=batch.images + 1)
    return replace(batch, ids=(batch.ids + 1) % model.d_vocab)
