"""How fast does each pair of rotary dimensions turn? 1 / base^(2i/d), and slower where stretched.

A model trained on short texts reads longer ones if slow pairs turn more slowly still. The ways
that were published, as angles a position, in float64:

    linear     all pairs by one factor                             (Chen et al. 2023)
    dynamic    the base grows with the text ("NTK-aware")          (bloc97 and emozilla, 2023)
    llama3     slow pairs by a factor, fast ones not, between them a mixture (Llama 3.1, 2024)
    yarn       the same by how often a pair turns over the context (Peng et al. 2023)
    longrope   a factor a pair, one set for short texts and one for long (Ding et al. 2024)
"""

from collections.abc import Callable
from math import ceil, floor, log, pi

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.config import ScalingConfig

Rates = Float[Tensor, "*row pair"]
"""Radians a position; one row of them a text where they depend on its length."""
Lengths = Int[Tensor, " row"] | None
"""Tokens of each text; ``None`` stands for no more than the model was trained on."""


def plain(d: int, base: float | Tensor, device: torch.device | None = None) -> Rates:
    """1 / base^(2i/d)."""
    return 1.0 / base ** (torch.arange(0, d, 2, device=device).double() / d)


def scaled(d: int, base: float, scaling: ScalingConfig | None, lengths: Lengths) -> Rates:
    """What ``scaling`` makes of the plain rates."""
    if scaling is None:
        return plain(d, base)
    return BY_KIND[scaling.kind](d, base, scaling, lengths)


def depends_on_length(scaling: ScalingConfig | None) -> bool:
    """Whether early tokens turn otherwise in a longer text."""
    return scaling is not None and scaling.kind in ("dynamic", "longrope")


def _linear(d: int, base: float, scaling: ScalingConfig, lengths: Lengths) -> Rates:  # noqa: ARG001
    return plain(d, base) / scaling.factor


def _dynamic(d: int, base: float, scaling: ScalingConfig, lengths: Lengths) -> Rates:
    if lengths is None:
        return plain(d, base)
    times = lengths.double().clamp(min=scaling.original_ctx) / scaling.original_ctx
    grown = base * (scaling.factor * times - (scaling.factor - 1)) ** (d / (d - 2))
    return plain(d, grown[:, None], lengths.device)


def _llama3(d: int, base: float, scaling: ScalingConfig, lengths: Lengths) -> Rates:  # noqa: ARG001
    rates = plain(d, base)
    turns = scaling.original_ctx * rates / (2 * pi)  # over the context trained on
    kept = ((turns - scaling.low) / (scaling.high - scaling.low)).clamp(0, 1)
    return kept * rates + (1 - kept) * rates / scaling.factor


def _yarn(d: int, base: float, scaling: ScalingConfig, lengths: Lengths) -> Rates:  # noqa: ARG001
    def pair_that_turns(times: float) -> float:
        return d * log(scaling.original_ctx / (times * 2 * pi)) / (2 * log(base))

    low, high = pair_that_turns(scaling.beta_fast), pair_that_turns(scaling.beta_slow)
    if scaling.truncate:
        low, high = floor(low), ceil(high)
    low, high = max(low, 0), min(high, d - 1)
    width = high - low if high != low else 0.001
    slowed = ((torch.arange(d // 2).double() - low) / width).clamp(0, 1)
    rates = plain(d, base)
    return slowed * rates / scaling.factor + (1 - slowed) * rates


def _longrope(d: int, base: float, scaling: ScalingConfig, lengths: Lengths) -> Rates:
    short = plain(d, base) / torch.tensor(scaling.short, dtype=torch.float64)
    if lengths is None:
        return short
    long = plain(d, base) / torch.tensor(scaling.long, dtype=torch.float64)
    is_long = (lengths > scaling.original_ctx)[:, None]
    return torch.where(is_long, long.to(lengths.device), short.to(lengths.device))


BY_KIND: dict[str, Callable[[int, float, ScalingConfig, Lengths], Rates]] = {
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
