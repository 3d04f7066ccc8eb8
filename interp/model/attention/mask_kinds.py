"""Masks other than the causal one, and the mask that a configuration asks for."""

from dataclasses import dataclass

import torch

from interp.config import AttentionConfig
from interp.model.attention.mask import Causal, Mask, Visible, without_padding
from interp.model.context import Context


@dataclass(frozen=True)
class Window:
    """A query attends to the last ``size`` positions up to its own."""

    size: int
    is_bidirectional: bool = False

    def is_causal(self, context: Context) -> bool:
        """True if every row fits into the window."""
        return context.n_key <= self.size

    def visible(self, context: Context) -> Visible:
        """A band below the diagonal, with padding masked."""
        keys = torch.arange(context.n_key, device=context.positions.device)
        earlier = keys <= context.columns[:, None]
        apart = context.positions[:, :, None] - context.key_positions[:, None, :]
        return without_padding(earlier & (apart < self.size), context)


@dataclass(frozen=True)
class TwoSidedWindow:
    """A query attends to keys less than ``size`` positions before or after its own."""

    size: int
    is_bidirectional: bool = True

    def is_causal(self, context: Context) -> bool:  # noqa: ARG002 - Mask's signature
        """False."""
        return False

    def visible(self, context: Context) -> Visible:
        """A band around the diagonal, with padding masked."""
        return without_padding(context.key_less_query.abs() < self.size, context)


@dataclass(frozen=True)
class Bidirectional:
    """A query attends to every real key."""

    is_bidirectional: bool = True

    def is_causal(self, context: Context) -> bool:  # noqa: ARG002 - Mask's signature
        """False."""
        return False

    def visible(self, context: Context) -> Visible | None:
        """All keys except padding."""
        if context.real is None:
            return None
        n = (1, context.n_query, context.n_key)
        return without_padding(
            torch.ones(n, dtype=torch.bool, device=context.positions.device), context
        )


@dataclass(frozen=True)
class AcrossStacks:
    """A query of the decoder attends to every real token of the source."""

    is_bidirectional: bool = True

    def is_causal(self, context: Context) -> bool:  # noqa: ARG002 - Mask's signature
        """False."""
        return False

    def visible(self, context: Context) -> Visible | None:
        """All keys of the source except padding."""
        real = context.encoder_real
        return None if real is None else real[:, None, None, :]


def mask_of(config: AttentionConfig, *, encoder: bool) -> Mask:
    """The mask of a layer of an encoder or a decoder, as configured."""
    if encoder and config.window is not None:
        return TwoSidedWindow(config.window)
    if encoder or config.bidirectional:
        return Bidirectional()
    return Causal() if config.window is None else Window(config.window)
