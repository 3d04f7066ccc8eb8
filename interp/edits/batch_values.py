"""Replacement values computed from a batch: means over its tokens, and donors for resampling.

Donors are drawn from one cycle through all prompts, so that no prompt is its own donor and all
positions of a prompt have the same donor, as far as it is long enough (Chan et al. 2022, "Causal
Scrubbing": activations of another input).
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.edits.selection import EditSite
from interp.errors import InvalidEdit, InvalidInput
from interp.model import tokens_first


def summing_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of sums: float32 for half precision, in which sums would overflow or be rounded."""
    return torch.promote_types(dtype, torch.float32)


def token_mean(
    x: Float[Tensor, "batch pos *rest"], real: Bool[Tensor, "batch pos"] | None
) -> Float[Tensor, "1 1 *rest"]:
    """The mean over all tokens; ``real`` marks those that are not padding."""
    if real is None:
        return x.mean((0, 1), keepdim=True)
    wide = summing_dtype(x.dtype)
    weight = real.to(wide).reshape(*x.shape[:2], *[1] * (x.ndim - 2))
    return ((x * weight).sum((0, 1), keepdim=True) / weight.sum()).to(x.dtype)


def batch_mean(x: Tensor, site: EditSite) -> Tensor:
    """The mean over rows, and over real tokens if the point has a single token axis.

    Raises:
        InvalidEdit: the place is scores or pattern and the prompts are padded, so that rows have
            different lengths.
    """
    axes = site.place.point.axes
    if site.place.point.is_matrix:
        if site.context.real is not None or site.real(axes[-1]) is not None:
            raise InvalidEdit(f"{site.place}: a mean over rows needs prompts of one length.")
        return x.mean(0, keepdim=True)
    real = site.real(axes[1])
    return token_mean(x, None if real is None else real[:, -x.shape[1] :])


def donor_rows(n: int, seed: int) -> Int[Tensor, " batch"]:
    """For each of ``n`` rows, its predecessor in a cycle through all rows, drawn with ``seed``."""
    cycle = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return torch.empty_like(cycle).scatter_(0, cycle, cycle.roll(1))


def donor_tokens(
    real: Bool[Tensor, "batch pos"],
    seed: int,
    reference: Bool[Tensor, "donor column"] | None = None,
) -> tuple[Int[Tensor, "batch pos"], Int[Tensor, "batch pos"]]:
    """For each token of prompts of any length, the row and the column of its donor.

    The donor has the same position, in the nearest preceding prompt of the cycle that is long
    enough. For a position that no other prompt has, a position of the preceding prompt is drawn.
    Prompts of equal length have the donors of :func:`donor_rows`. With a reference of m prompts,
    the cycle goes through these, and prompt i starts from prompt i mod m.

    Args:
        real: which columns hold tokens.
        seed: seed of the cycle, and of the drawn positions.
        reference: which columns of other prompts hold tokens, if donors are taken from these
            prompts.

    Raises:
        InvalidInput: there is a single prompt, and no reference.
    """
    (n, width), on_cpu = real.shape, real.cpu()
    if reference is None and n < 2:  # noqa: PLR2004 - a prompt and its donor
        raise InvalidInput("Resampling needs at least two prompts; one was given.")
    donors = on_cpu if reference is None else reference.cpu()
    # By position, as padding may be anywhere: column[i, p] is the column of token p of donor i.
    column, lengths = tokens_first(donors), donors.sum(-1)
    position = torch.arange(width).expand(n, -1)
    has, gives = position < on_cpu.sum(-1)[:, None], torch.arange(width) < lengths[:, None]
    before = donor_rows(len(donors), seed)
    candidate = before[torch.arange(n) % len(donors)]
    row, has_value = candidate[:, None].repeat(1, width), gives[candidate]
    shared = has & (gives.sum(0) > (1 if reference is None else 0))
    while bool((shared & ~has_value).any()):
        candidate = before[candidate]
        row = row.where(has_value | ~gives[candidate], candidate[:, None])
        has_value = has_value | gives[candidate]
    generator = torch.Generator().manual_seed(seed)
    drawn = (torch.rand(n, width, generator=generator) * lengths[row]).long()
    donor = column[row, position.where(has_value, drawn)]
    order = tokens_first(on_cpu)
    rows, columns = (torch.empty_like(x).scatter_(1, order, x) for x in (row, donor))
    return rows.to(real.device), columns.to(real.device)
